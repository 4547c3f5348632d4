"""Requests about offsets and producers, by kafka-python's codec: ListOffsets, DescribeProducers, DeleteRecords. Pure.

Each request function gives (request, response class); each answer function (error code, value) by log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kafka.protocol.admin import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from fairlead.wire.connection import DELETE_RECORDS_VERSION, DESCRIBE_PRODUCERS_VERSION, LIST_OFFSETS_VERSION
from fairlead.wire.types import TP, ProducerState

LATEST: Final = -1
EARLIEST: Final = -2

Request = tuple[Any, Any]


def _by_topic(logs: Collection[TP]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in logs:
        topics.setdefault(topic, []).append(partition)
    return topics


def list_request(times: Mapping[TP, int]) -> Request:
    """Offsets of logs, each at its own time, or at ``LATEST`` or ``EARLIEST``."""
    version = LIST_OFFSETS_VERSION
    topic_type = ListOffsetsRequest.ListOffsetsTopic
    partition_type = topic_type.ListOffsetsPartition
    topics = [
        topic_type(
            version=version,
            name=topic,
            partitions=[
                partition_type(version=version, partition_index=number, timestamp=times[TP(topic, number)])
                for number in numbers
            ],
        )
        for topic, numbers in _by_topic(times).items()
    ]
    request = ListOffsetsRequest(version=version, replica_id=-1, isolation_level=0, topics=topics)
    return request, ListOffsetsResponse


def listed(answer: Any) -> dict[TP, tuple[int, int | None]]:
    """Offsets by log."""
    return {
        TP(topic.name, entry.partition_index): (entry.error_code, entry.offset)
        for topic in answer.topics
        for entry in topic.partitions
    }


def producers_request(logs: Collection[TP]) -> Request:
    """What the brokers remember of the producers of these logs."""
    version = DESCRIBE_PRODUCERS_VERSION
    topics = [
        DescribeProducersRequest.TopicRequest(version=version, name=topic, partition_indexes=numbers)
        for topic, numbers in _by_topic(logs).items()
    ]
    return DescribeProducersRequest(version=version, topics=topics), DescribeProducersResponse


def producers(answer: Any) -> dict[TP, tuple[int, tuple[ProducerState, ...] | None]]:
    """Producer states by log."""
    return {
        TP(topic.name, entry.partition_index): (
            entry.error_code,
            tuple(
                ProducerState(state.producer_id, state.producer_epoch, state.last_sequence, state.last_timestamp)
                for state in entry.active_producers or ()
            ),
        )
        for topic in answer.topics
        for entry in topic.partitions
    }


def delete_request(before: Mapping[TP, int], timeout_ms: int) -> Request:
    """Delete the records below an offset, by log."""
    version = DELETE_RECORDS_VERSION
    topic_type = DeleteRecordsRequest.DeleteRecordsTopic
    partition_type = topic_type.DeleteRecordsPartition
    topics = [
        topic_type(
            version=version,
            name=topic,
            partitions=[
                partition_type(version=version, partition_index=number, offset=before[TP(topic, number)])
                for number in numbers
            ],
        )
        for topic, numbers in _by_topic(before).items()
    ]
    return DeleteRecordsRequest(version=version, topics=topics, timeout_ms=timeout_ms), DeleteRecordsResponse


def deleted(answer: Any) -> dict[TP, tuple[int, int | None]]:
    """New start offsets by log."""
    return {
        TP(topic.name, entry.partition_index): (entry.error_code, entry.low_watermark)
        for topic in answer.topics
        for entry in topic.partitions
    }
