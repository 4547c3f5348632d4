"""The hand-written codecs of rare requests, byte for byte against kafka-python's."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from fairlead.kafka.client import login
from fairlead.kafka.protocol import admin_codec, offsets_codec, versions
from fairlead.kafka.protocol.types import TP, ProducerState
from tests.support.examples import examples
from tests.support.kafka.oracle import I16, I32, I64, NAMES, TEXT, read, same

LOGS = st.builds(TP, NAMES, st.integers(0, 300))
VALUE = st.one_of(st.none(), st.text(max_size=20))


def by_topic(logs: Any, make: Any) -> list[tuple[str, list[Any]]]:
    topics: dict[str, list[Any]] = {}
    for log in logs:
        topics.setdefault(log.topic, []).append(make(log))
    return list(topics.items())


@settings(max_examples=examples(60))
@given(st.dictionaries(LOGS, I64, max_size=20))
def test_list_offsets_request(times: dict[TP, int]) -> None:
    kind = ListOffsetsRequest.ListOffsetsTopic
    part = kind.ListOffsetsPartition
    topics = [
        kind(version=7, name=name, partitions=parts)
        for name, parts in by_topic(
            times, lambda log: part(version=7, partition_index=log.partition, timestamp=times[log])
        )
    ]
    oracle = ListOffsetsRequest(version=7, replica_id=-1, isolation_level=0, topics=topics)
    same(offsets_codec.list_request(times), oracle)


@settings(max_examples=examples(60))
@given(st.dictionaries(LOGS, st.tuples(I16, I64), max_size=20))
def test_list_offsets_answer(found: dict[TP, tuple[int, int]]) -> None:
    kind = ListOffsetsResponse.ListOffsetsTopicResponse

    def part(log: TP) -> Any:
        code, offset = found[log]
        return kind.ListOffsetsPartitionResponse(
            version=7, partition_index=log.partition, error_code=code, timestamp=5, offset=offset, leader_epoch=3
        )

    topics = [kind(version=7, name=name, partitions=parts) for name, parts in by_topic(found, part)]
    answer = ListOffsetsResponse(version=7, throttle_time_ms=9, topics=topics)
    assert read(offsets_codec.list_request({}), answer) == found


@settings(max_examples=examples(60))
@given(st.dictionaries(LOGS, I64, max_size=20), st.integers(0, 2**31 - 1))
def test_delete_records_request(before: dict[TP, int], timeout_ms: int) -> None:
    kind = DeleteRecordsRequest.DeleteRecordsTopic
    part = kind.DeleteRecordsPartition
    topics = [
        kind(version=2, name=name, partitions=parts)
        for name, parts in by_topic(
            before, lambda log: part(version=2, partition_index=log.partition, offset=before[log])
        )
    ]
    oracle = DeleteRecordsRequest(version=2, topics=topics, timeout_ms=timeout_ms)
    same(offsets_codec.delete_request(before, timeout_ms), oracle)


@settings(max_examples=examples(60))
@given(st.dictionaries(LOGS, st.tuples(I16, I64), max_size=20))
def test_delete_records_answer(found: dict[TP, tuple[int, int]]) -> None:
    kind = DeleteRecordsResponse.DeleteRecordsTopicResult

    def part(log: TP) -> Any:
        code, start = found[log]
        return kind.DeleteRecordsPartitionResult(
            version=2, partition_index=log.partition, low_watermark=start, error_code=code
        )

    topics = [kind(version=2, name=name, partitions=parts) for name, parts in by_topic(found, part)]
    answer = DeleteRecordsResponse(version=2, throttle_time_ms=9, topics=topics)
    assert read(offsets_codec.delete_request({}, 1), answer) == found


@given(st.uuids(), st.integers(0, 2**31 - 1))
def test_delete_topic_request(topic_id: uuid.UUID, timeout_ms: int) -> None:
    topic = DeleteTopicsRequest.DeleteTopicState(version=6, name=None, topic_id=topic_id)
    oracle = DeleteTopicsRequest(version=6, topics=[topic], timeout_ms=timeout_ms)
    same(admin_codec.delete_topic_request(topic_id.bytes, timeout_ms), oracle)


@given(st.uuids(), st.none() | st.text(max_size=20), st.none() | st.text(max_size=20), I16)
def test_delete_topic_answer(topic_id: uuid.UUID, name: str | None, message: str | None, code: int) -> None:
    result = DeleteTopicsResponse.DeletableTopicResult(
        version=6, name=name, topic_id=topic_id, error_code=code, error_message=message
    )
    answer = DeleteTopicsResponse(version=6, throttle_time_ms=9, responses=[result])
    assert read(admin_codec.delete_topic_request(topic_id.bytes, 1), answer) == code


@settings(max_examples=examples(60))
@given(st.lists(LOGS, max_size=20, unique=True))
def test_describe_producers_request(logs: list[TP]) -> None:
    kind = DescribeProducersRequest.TopicRequest
    topics = [
        kind(version=0, name=name, partition_indexes=parts) for name, parts in by_topic(logs, lambda log: log.partition)
    ]
    same(offsets_codec.producers_request(logs), DescribeProducersRequest(version=0, topics=topics))


STATES = st.lists(st.builds(ProducerState, I64, I32, I32, I64), max_size=4).map(tuple)


@settings(max_examples=examples(60))
@given(st.dictionaries(LOGS, st.tuples(I16, STATES, TEXT), max_size=20))
def test_describe_producers_answer(found: dict[TP, tuple[int, tuple[ProducerState, ...], str | None]]) -> None:
    kind = DescribeProducersResponse.TopicResponse

    def part(log: TP) -> Any:
        code, states, message = found[log]
        made = [
            kind.PartitionResponse.ProducerState(
                version=0,
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=-1,
                current_txn_start_offset=-1,
            )
            for state in states
        ]
        return kind.PartitionResponse(
            version=0, partition_index=log.partition, error_code=code, error_message=message, active_producers=made
        )

    topics = [kind(version=0, name=name, partitions=parts) for name, parts in by_topic(found, part)]
    answer = DescribeProducersResponse(version=0, throttle_time_ms=9, topics=topics)
    expected = {log: (code, states) for log, (code, states, _) in found.items()}
    assert read(offsets_codec.producers_request([]), answer) == expected


@settings(max_examples=examples(60))
@given(st.lists(NAMES, max_size=20, unique=True), st.lists(NAMES, max_size=8))
def test_describe_configs_request(topics: list[str], names: list[str]) -> None:
    kind = DescribeConfigsRequest.DescribeConfigsResource
    asked = [kind(version=4, resource_type=2, resource_name=topic, configuration_keys=names) for topic in topics]
    oracle = DescribeConfigsRequest(version=4, resources=asked, include_synonyms=False, include_documentation=False)
    same(admin_codec.describe_settings_request(topics, names), oracle)


@settings(max_examples=examples(60))
@given(NAMES, st.lists(NAMES, max_size=8))
def test_describe_configs_request_for_defaults(topic: str, names: list[str]) -> None:
    kind = DescribeConfigsRequest.DescribeConfigsResource
    asked = [kind(version=4, resource_type=2, resource_name=topic, configuration_keys=names)]
    oracle = DescribeConfigsRequest(version=4, resources=asked, include_synonyms=True, include_documentation=False)
    same(admin_codec.describe_defaults_request(topic, names), oracle)


@settings(max_examples=examples(60))
@given(
    st.sampled_from((0, 3, 29)),
    st.dictionaries(NAMES, st.lists(st.tuples(VALUE, st.sampled_from((1, 2, 3, 4, 5))), max_size=4), max_size=5),
)
def test_describe_configs_answer_for_defaults(code: int, found: dict[str, list[tuple[str | None, int]]]) -> None:
    kind = DescribeConfigsResponse.DescribeConfigsResult
    entry = kind.DescribeConfigsResourceResult
    configs = [
        entry(
            version=4,
            name=name,
            value=places[0][0] if places else None,
            read_only=False,
            config_source=places[0][1] if places else 5,
            is_sensitive=False,
            synonyms=[
                entry.DescribeConfigsSynonym(version=4, name="log." + name, value=value, source=source)
                for value, source in places
            ],
            config_type=2,
            documentation=None,
        )
        for name, places in found.items()
    ]
    result = kind(
        version=4,
        error_code=code,
        error_message=None,
        resource_type=2,
        resource_name="t",
        configs=configs if code == 0 else [],
    )
    answer = DescribeConfigsResponse(version=4, throttle_time_ms=9, results=[result])
    first = {name: [value for value, source in places if source != 1] for name, places in found.items()}
    assert read(admin_codec.describe_defaults_request("t", []), answer) == {
        name: values[0] for name, values in first.items() if code == 0 and values and values[0] is not None
    }


@settings(max_examples=examples(60))
@given(
    st.dictionaries(
        NAMES, st.tuples(st.sampled_from((0, 3, 29)), TEXT, st.dictionaries(NAMES, VALUE, max_size=5)), max_size=8
    ),
    st.booleans(),
)
def test_describe_configs_answer(found: dict[str, tuple[int, str | None, dict[str, str | None]]], more: bool) -> None:
    kind = DescribeConfigsResponse.DescribeConfigsResult
    entry = kind.DescribeConfigsResourceResult

    def setting(name: str, value: str | None) -> Any:
        synonyms = [entry.DescribeConfigsSynonym(version=4, name="other", value=value, source=5)] if more else []
        return entry(
            version=4,
            name=name,
            value=value,
            read_only=False,
            config_source=5,
            is_sensitive=value is None,
            synonyms=synonyms,
            config_type=2,
            documentation="long" if more else None,
        )

    results = [
        kind(
            version=4,
            error_code=code,
            error_message=message,
            resource_type=2,
            resource_name=topic,
            configs=[setting(*each) for each in values.items()],
        )
        for topic, (code, message, values) in found.items()
    ]
    answer = DescribeConfigsResponse(version=4, throttle_time_ms=9, results=results)
    assert read(admin_codec.describe_settings_request([], []), answer) == {
        topic: {name: value for name, value in values.items() if value is not None}
        for topic, (code, _, values) in found.items()
        if code == 0
    }


@settings(max_examples=examples(60))
@given(st.dictionaries(I16, st.tuples(I16, I16), max_size=80))
def test_api_versions(offered: dict[int, tuple[int, int]]) -> None:
    same(versions.question(), ApiVersionsRequest(version=0))
    kind = ApiVersionsResponse.ApiVersion
    keys = [kind(version=0, api_key=k, min_version=a, max_version=b) for k, (a, b) in offered.items()]
    assert read(versions.question(), ApiVersionsResponse(version=0, error_code=0, api_keys=keys)) == offered


@settings(max_examples=examples(60))
@given(NAMES, I16, st.lists(NAMES, max_size=5))
def test_sasl_handshake(name: str, code: int, offered: list[str]) -> None:
    same(login.handshake(name), SaslHandshakeRequest(version=1, mechanism=name))
    answer = SaslHandshakeResponse(version=1, error_code=code, mechanisms=offered)
    assert read(login.handshake(name), answer) == (code, tuple(offered))


@settings(max_examples=examples(60))
@given(st.binary(max_size=300), I16, TEXT, I64)
def test_sasl_authenticate(data: bytes, code: int, message: str | None, lifetime: int) -> None:
    same(login.authenticate(data), SaslAuthenticateRequest(version=2, auth_bytes=data))
    answer = SaslAuthenticateResponse(
        version=2, error_code=code, error_message=message, auth_bytes=data, session_lifetime_ms=lifetime
    )
    assert read(login.authenticate(b""), answer) == (code, message, data, lifetime)


def test_a_cut_answer_is_an_error() -> None:
    kind = ListOffsetsResponse.ListOffsetsTopicResponse
    answer = ListOffsetsResponse(version=7, throttle_time_ms=0, topics=[kind(version=7, name="a.b" * 9, partitions=[])])
    whole = bytearray(answer.encode(version=7))
    for size in range(len(whole) - 1):
        with pytest.raises((IndexError, struct.error)):
            offsets_codec.list_request({}).decode(memoryview(whole[:size]))
