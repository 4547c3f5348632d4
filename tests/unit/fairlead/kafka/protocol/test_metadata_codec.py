"""The hand-written decoder of Metadata answers against kafka-python's encoder."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from fairlead.kafka.client.metadata import MetadataCache
from fairlead.kafka.protocol.metadata_codec import TopicListing, TopicMetadata, decode_response, metadata_request
from fairlead.kafka.protocol.versions import METADATA
from tests.support.examples import examples

METADATA_VERSION = METADATA[1]
NAMES = st.text(st.sampled_from("abcXYZ0129._-é"), min_size=1, max_size=30)
NODES = st.integers(-1, 2**31 - 1)
TOPICS = st.builds(
    lambda name, code, identity, leaders, replicas: TopicMetadata(name, code, identity.bytes, leaders, replicas),
    NAMES,
    st.integers(-1, 130),
    st.uuids(),
    st.dictionaries(st.integers(0, 300), NODES, max_size=5),
    st.integers(1, 200),
)
LISTED = st.lists(TOPICS, max_size=12, unique_by=lambda topic: topic.name)
BROKERS = st.dictionaries(NODES, st.tuples(NAMES, st.integers(0, 65535)), max_size=4)


def encoded(brokers: dict[int, tuple[str, int]], topics: list[TopicMetadata]) -> bytes:
    made = [topic_of(topic) for topic in topics]
    nodes = [
        MetadataResponse.MetadataResponseBroker(version=METADATA_VERSION, node_id=node, host=host, port=port, rack=None)
        for node, (host, port) in brokers.items()
    ]
    answer = MetadataResponse(
        version=METADATA_VERSION, throttle_time_ms=7, brokers=nodes, cluster_id="c", controller_id=1, topics=made
    )
    return bytes(answer.encode(version=METADATA_VERSION))


def topic_of(topic: TopicMetadata) -> Any:
    kind = MetadataResponse.MetadataResponseTopic
    partitions = [
        kind.MetadataResponsePartition(
            version=METADATA_VERSION,
            error_code=0,
            partition_index=number,
            leader_id=leader,
            leader_epoch=3,
            replica_nodes=list(range(topic.replicas)),
            isr_nodes=list(range(topic.replicas)),
            offline_replicas=[],
        )
        for number, leader in topic.leaders.items()
    ]
    return kind(
        version=METADATA_VERSION,
        error_code=topic.error_code,
        name=topic.name,
        topic_id=uuid.UUID(bytes=topic.topic_id),
        is_internal=False,
        partitions=partitions,
    )


@settings(max_examples=examples(80))
@given(BROKERS, st.lists(TOPICS, max_size=8))
def test_answers(brokers: dict[int, tuple[str, int]], topics: list[TopicMetadata]) -> None:
    found = decode_response(memoryview(encoded(brokers, topics)))
    assert found.brokers == brokers
    assert list(found.topics) == [
        each if each.leaders else msgspec.structs.replace(each, replicas=1) for each in topics
    ]


@settings(max_examples=examples(60))
@given(st.none() | st.lists(NAMES, max_size=8))
def test_requests(names: list[str] | None) -> None:
    topic = MetadataRequest.MetadataRequestTopic
    oracle = MetadataRequest(
        version=METADATA_VERSION,
        topics=None if names is None else [topic(version=METADATA_VERSION, name=name) for name in names],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    asked = metadata_request(names)
    assert (asked.api_key, asked.version) == (oracle.API_KEY, METADATA_VERSION)
    assert asked.body == bytes(oracle.encode(version=METADATA_VERSION))


def test_a_cut_answer_is_an_error() -> None:
    topic = TopicMetadata("a.b", 0, uuid.uuid4().bytes, {0: 1}, 1)
    whole = encoded({1: ("host", 9092)}, [topic])
    with pytest.raises((IndexError, struct.error)):
        list(decode_response(memoryview(whole[:-30])).topics)


def test_the_cache_keeps_what_has_not_changed() -> None:
    same, other = uuid.uuid4().bytes, uuid.uuid4().bytes
    cache = MetadataCache()
    cache.apply(decode_response(memoryview(encoded({1: ("h", 1)}, [TopicMetadata("a.b", 0, same, {0: 1}, 1)]))), None)
    first = cache.topics()["a.b"]
    cache.apply(decode_response(memoryview(encoded({}, [TopicMetadata("a.b", 0, same, {0: 1}, 1)]))), None)
    assert cache.topics()["a.b"] is first
    cache.apply(decode_response(memoryview(encoded({}, [TopicMetadata("a.b", 0, same, {0: 2, 1: 2}, 1)]))), None)
    assert cache.topics()["a.b"].partitions == {0: 2, 1: 2}
    cache.apply(decode_response(memoryview(encoded({}, [TopicMetadata("a.b", 0, other, {0: 2}, 1)]))), None)
    assert cache.topic_id("a.b") == other
    cache.apply(decode_response(memoryview(encoded({}, []))), None)
    assert cache.topics() == {}
    assert cache.topic_id("a.b") is None


def test_topics_of_one_partition_share_what_is_the_same() -> None:
    """A site has very many of them; a dictionary for each would be most of what is kept about them."""
    topics = [TopicMetadata(f"a.{number}", 0, uuid.uuid4().bytes, {0: number % 2}, 1) for number in range(6)]
    topics.append(TopicMetadata("b.first is missing", 0, uuid.uuid4().bytes, {1: 0}, 1))
    found = list(decode_response(memoryview(encoded({1: ("h", 1)}, topics))).topics)
    assert found == topics
    assert len({id(topic.leaders) for topic in found}) == 3


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(BROKERS, LISTED), max_size=6), st.data())
def test_a_listing_says_what_is_different_from_the_one_before(
    answers: list[tuple[dict[int, tuple[str, int]], list[TopicMetadata]]], data: st.DataObject
) -> None:
    """Following the differences gives what decoding each whole answer gives, with topics that come, go and change, in
    the same order or in another one."""
    listing = TopicListing()
    followed: dict[str, TopicMetadata] = {}
    before: list[TopicMetadata] = []
    for brokers, others in answers:
        kept = [each for each in before if data.draw(st.booleans())]
        new = [each for each in others if each.name not in {topic.name for topic in kept}]
        topics = data.draw(st.permutations([*kept, *new])) if data.draw(st.booleans()) else [*kept, *new]
        body = memoryview(encoded(brokers, topics))
        changes = listing.update(body)
        for name in changes.gone if changes else ():
            del followed[name]
        followed |= {topic.name: topic for topic in changes.topics} if changes else {}
        whole = decode_response(body)
        assert followed == {topic.name: topic for topic in whole.topics}
        assert changes is None or changes.brokers == whole.brokers
        assert len(listing) == len(topics)
        assert listing.update(body) is None
        before = topics


def test_of_a_long_listing_only_the_differences_are_decoded() -> None:
    """One new topic among thousands, one that is gone and one that has moved are the only ones that are decoded."""
    topics = [TopicMetadata(f"log.{n:05}", 0, uuid.UUID(int=n).bytes, {0: 1}, 1) for n in range(5000)]
    listing = TopicListing()
    first = listing.update(memoryview(encoded({}, topics)))
    assert first is not None and len(first.topics) == 5000
    moved = msgspec.structs.replace(topics[4000], leaders={0: 2})
    new = TopicMetadata("new", 0, uuid.UUID(int=9999).bytes, {0: 1, 1: 2}, 3)
    now = [*topics[:1000], new, *topics[1000:2000], *topics[2001:4000], moved, *topics[4001:]]
    changes = listing.update(memoryview(encoded({}, now)))
    assert changes is not None
    assert changes.topics == [new, moved]
    assert changes.gone == {"log.02000"}
