"""The request about sizes on disk, byte for byte against kafka-python's."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeLogDirsRequest, DescribeLogDirsResponse

from fairlead.kafka.protocol.admin_codec import log_dirs_request
from fairlead.kafka.protocol.types import TP
from tests.support.kafka.oracle import I16, I32, I64, NAMES, TEXT, read, same

VERSION = 4
PARTITIONS = st.dictionaries(NAMES, st.dictionaries(st.integers(0, 2**31 - 1), I64, min_size=1, max_size=3), max_size=3)


@given(PARTITIONS)
def test_logs_are_asked_for(topics: dict[str, dict[int, int]]) -> None:
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    asked = [topic(version=VERSION, topic=name, partitions=list(numbers)) for name, numbers in topics.items()]
    logs = [TP(name, number) for name, numbers in topics.items() for number in numbers]
    same(log_dirs_request(logs), DescribeLogDirsRequest(version=VERSION, topics=asked))


@given(st.lists(PARTITIONS, max_size=3), I16, I32, TEXT)
def test_sizes_of_all_disks_are_read(
    disks: list[dict[str, dict[int, int]]], code: int, throttle: int, path: str
) -> None:
    """A copy that moves to another disk does not count."""
    disk = DescribeLogDirsResponse.DescribeLogDirsResult
    topic = disk.DescribeLogDirsTopic
    partition = topic.DescribeLogDirsPartition

    def entry(topics: dict[str, dict[int, int]], *, future: bool) -> Any:
        return disk(
            version=VERSION,
            error_code=0,
            log_dir=path or "",
            topics=[
                topic(
                    version=VERSION,
                    name=name,
                    partitions=[
                        partition(
                            version=VERSION,
                            partition_index=number,
                            partition_size=size + 1 if future else size,
                            offset_lag=7,
                            is_future_key=future,
                        )
                        for number, size in sizes.items()
                        if not future or size < 2**63 - 1
                    ],
                )
                for name, sizes in topics.items()
            ],
            total_bytes=10,
            usable_bytes=5,
        )

    expected = {TP(name, n): size for topics in disks for name, sizes in topics.items() for n, size in sizes.items()}
    results = [entry(topics, future=future) for topics in disks for future in (False, True)]
    answer = DescribeLogDirsResponse(version=VERSION, throttle_time_ms=throttle, error_code=code, results=results)
    assert read(log_dirs_request([]), answer) == (code, expected)
