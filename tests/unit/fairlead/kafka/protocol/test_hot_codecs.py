"""The hand-written Produce and Fetch codecs against kafka-python's."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from fairlead.kafka.protocol import fetch_codec, produce_codec
from fairlead.kafka.protocol.fetch_codec import Wanted
from fairlead.kafka.protocol.types import TP, FetchedPartition, ProduceResult
from tests.support.examples import examples

I16 = st.integers(-(2**15), 2**15 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.sampled_from("abcXYZ0129._-é"), min_size=1, max_size=20)
LOGS = st.builds(TP, NAMES, st.integers(0, 300))
TEXT = st.one_of(st.none(), st.text(max_size=200))
BATCHES = st.one_of(st.binary(max_size=300), st.integers(8000, 20_000).map(bytes))
IDS = st.uuids().map(lambda value: value.bytes)


VERSIONS = pytest.mark.parametrize("version", [produce_codec.VERSION, produce_codec.BY_ID])


def topic_id(topic: str) -> uuid.UUID:
    """Return the id that a topic has in these tests."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, topic)


@VERSIONS
@given(st.dictionaries(LOGS, BATCHES, max_size=20), st.integers(0, 2**31 - 1))
@settings(max_examples=examples(60))
def test_produce_request(version: int, batches: dict[TP, bytes], timeout_ms: int) -> None:
    by_topic: dict[str, list[Any]] = {}
    topic_type = ProduceRequest.TopicProduceData
    for log, batch in batches.items():
        part = topic_type.PartitionProduceData(version=version, index=log.partition, records=batch)
        by_topic.setdefault(log.topic, []).append(part)
    topics = [
        topic_type(version=version, name=name, topic_id=topic_id(name), partition_data=parts)
        for name, parts in by_topic.items()
    ]
    oracle = ProduceRequest(version=version, transactional_id=None, acks=-1, timeout_ms=timeout_ms, topic_data=topics)
    ids = {log: topic_id(log.topic).bytes for log in batches} if version == produce_codec.BY_ID else None
    ours = b"".join(bytes(part) for part in produce_codec.encode_request(batches, timeout_ms, ids))
    assert ours == bytes(oracle.encode(version=version))


def test_partitions_of_two_topics_of_one_name_are_sent_apart() -> None:
    """One partition's topic id may be older than another's, as each is that of the topic in which its end was read."""
    old, new = topic_id("old"), topic_id("new")
    ids = {TP("a", 0): old.bytes, TP("a", 1): new.bytes, TP("a", 2): old.bytes}
    body = b"".join(bytes(part) for part in produce_codec.encode_request(dict.fromkeys(ids, b"x"), 1, ids))
    sent = ProduceRequest.decode(body, version=13).topic_data
    numbers = {each.topic_id: [part.index for part in each.partition_data] for each in sent}
    assert numbers == {old: [0, 2], new: [1]}


def test_large_batches_are_sent_without_a_copy() -> None:
    large = bytearray(20_000)
    assert any(part is large for part in produce_codec.encode_request({TP("a"): b"small", TP("b"): large}, 1))


@VERSIONS
@given(
    st.dictionaries(LOGS, st.tuples(I16, I64, I64, I64, TEXT, st.lists(TEXT, max_size=3), st.booleans()), max_size=20)
)
@settings(max_examples=examples(60))
def test_produce_response(
    version: int, answers: dict[TP, tuple[int, int, int, int, str | None, list[str | None], bool]]
) -> None:
    topic_type = ProduceResponse.TopicProduceResponse
    part_type = topic_type.PartitionProduceResponse
    topics, expected = [], {}
    for log, (code, base, time, start, message, details, tagged) in answers.items():
        leader = {}
        if tagged and version == produce_codec.BY_ID:  # a tagged field, which is to be skipped
            leader["current_leader"] = part_type.LeaderIdAndEpoch(version=version, leader_id=7, leader_epoch=9)
        errors = [
            part_type.BatchIndexAndErrorMessage(version=version, batch_index=index, batch_index_error_message=text)
            for index, text in enumerate(details)
        ]
        part = part_type(
            version=version,
            index=log.partition,
            error_code=code,
            base_offset=base,
            log_append_time_ms=time,
            log_start_offset=start,
            record_errors=errors,
            error_message=message,
            **leader,
        )
        topics.append(
            topic_type(version=version, name=log.topic, topic_id=topic_id(log.topic), partition_responses=[part])
        )
        detail = next((text for text in details if text), None)
        expected[log] = ProduceResult(code, base, time, start, message or detail)
    oracle = ProduceResponse(version=version, responses=topics, throttle_time_ms=70)
    frame = bytearray(b"head") + oracle.encode(version=version)
    names = {topic_id(log.topic).bytes: log.topic for log in answers} if version == produce_codec.BY_ID else None
    found, throttle_time_ms = produce_codec.decode_response(frame, 4, names)
    assert throttle_time_ms == 70
    # An empty text and none at all are the same to a reader.
    assert {
        log: msgspec.structs.replace(result, error_message=result.error_message or None)
        for log, result in found.items()
    } == {
        log: msgspec.structs.replace(result, error_message=result.error_message or None)
        for log, result in expected.items()
    }


@given(
    st.lists(st.builds(Wanted, IDS, I32, I64), max_size=20),
    st.lists(st.tuples(IDS, I32), max_size=20),
    st.tuples(I32, I32, I32, I32, st.integers(0, 1), I32, I32),
    st.one_of(st.just(""), NAMES),
)
@settings(max_examples=examples(60))
def test_fetch_request(
    wanted: list[Wanted],
    forgotten: list[tuple[bytes, int]],
    numbers: tuple[int, int, int, int, int, int, int],
    rack: str,
) -> None:
    wait, least, most, each, isolation, session, epoch = numbers
    topic_type = FetchRequest.FetchTopic
    oracle = FetchRequest(
        version=13,
        replica_id=-1,
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=most,
        isolation_level=isolation,
        session_id=session,
        session_epoch=epoch,
        topics=[
            topic_type(
                version=13,
                topic_id=uuid.UUID(bytes=one.topic_id),
                partitions=[
                    topic_type.FetchPartition(
                        version=13, partition=one.partition, fetch_offset=one.offset, partition_max_bytes=each
                    )
                ],
            )
            for one in wanted
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(version=13, topic_id=uuid.UUID(bytes=topic_id), partitions=[number])
            for topic_id, number in forgotten
        ],
        rack_id=rack,
    )
    ours = fetch_codec.encode_request(
        wanted,
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=most,
        partition_max_bytes=each,
        isolation=isolation,
        session_id=session,
        session_epoch=epoch,
        forgotten=forgotten,
        rack=rack,
    )
    assert bytes(ours) == bytes(oracle.encode(version=13))


PARTITIONS = st.tuples(
    IDS,
    I32,
    I16,
    I64,
    I64,
    I64,
    st.one_of(st.none(), st.lists(st.tuples(I64, I64), max_size=20)),
    st.one_of(st.none(), BATCHES),
    st.booleans(),
    st.one_of(st.just(-1), st.integers(0, 2**31 - 1)),
)


@given(st.lists(PARTITIONS, max_size=20), I16, I32)
@settings(max_examples=examples(60))
def test_fetch_response(partitions: list[Any], code: int, session: int) -> None:
    topic_type = FetchResponse.FetchableTopicResponse
    part_type = topic_type.PartitionData
    topics = []
    for topic_id, number, error, high, stable, start, aborted, records, tagged, preferred in partitions:
        leader = {}
        if tagged:  # a tagged field, which is to be skipped
            leader["current_leader"] = part_type.LeaderIdAndEpoch(version=13, leader_id=7, leader_epoch=9)
        part = part_type(
            version=13,
            partition_index=number,
            error_code=error,
            high_watermark=high,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted_transactions=None
            if aborted is None
            else [
                part_type.AbortedTransaction(version=13, producer_id=producer, first_offset=first)
                for producer, first in aborted
            ],
            preferred_read_replica=preferred,
            records=records,
            **leader,
        )
        topics.append(topic_type(version=13, topic_id=uuid.UUID(bytes=topic_id), partitions=[part]))
    oracle = FetchResponse(version=13, throttle_time_ms=3, error_code=code, session_id=session, responses=topics)
    frame = bytearray(b"head") + oracle.encode(version=13)
    answer = fetch_codec.decode_response(frame, 4)
    assert (answer.error_code, answer.session_id) == (code, session)
    assert answer.partitions == [
        (
            topic_id,
            number,
            FetchedPartition(error, high, stable, start, tuple(aborted or ()), memoryview(records or b"")),
        )
        for topic_id, number, error, high, stable, start, aborted, records, *_ in partitions
    ]
    assert answer.preferred == {(each[0], each[1]): each[-1] for each in partitions if each[-1] >= 0}


def test_fetched_records_are_a_writable_view_into_the_frame() -> None:
    topic_type = FetchResponse.FetchableTopicResponse
    part = topic_type.PartitionData(
        version=13,
        partition_index=0,
        error_code=0,
        high_watermark=1,
        last_stable_offset=1,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=b"needle",
    )
    topic = topic_type(version=13, topic_id=uuid.uuid4(), partitions=[part])
    response = FetchResponse(version=13, throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])
    frame = bytearray(response.encode(version=13))
    records = fetch_codec.decode_response(frame, 0).partitions[0][2].records
    records[:6] = b"thread"
    assert b"thread" in frame and b"needle" not in frame


def test_many_logs_in_one_request_and_answer() -> None:
    logs = [TP(f"containers.BIGU{index:07d}") for index in range(500)]
    body = b"".join(bytes(part) for part in produce_codec.encode_request(dict.fromkeys(logs, b"x" * 200), 1))
    decoded = ProduceRequest.decode(body, version=9)
    assert [topic.name for topic in decoded.topic_data] == [log.topic for log in logs]
    wanted = [Wanted(uuid.uuid4().bytes, 0, index) for index in range(500)]
    request = fetch_codec.encode_request(
        wanted, max_wait_ms=0, min_bytes=1, max_bytes=1, partition_max_bytes=1, isolation=0
    )
    found = FetchRequest.decode(bytes(request), version=13).topics
    assert [(topic.topic_id.bytes, topic.partitions[0].fetch_offset) for topic in found] == [
        (entry.topic_id, entry.offset) for entry in wanted
    ]
