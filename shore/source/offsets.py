"""Positions in many logs: their compact form in a checkpoint, admission of a bounded batch, packing into tasks. Pure.

A position is the offset of the next record to read. Within this package a log partition is named by text: the topic
for partition 0 (Fairlead's own logs have no other), ``<topic>/<partition>`` for the rest; ``/`` cannot be in a topic.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

Positions = dict[str, int]
StoredPositions = dict[str, dict[str, int]]


class Range(NamedTuple):
    """Records of one log partition from ``start`` (inclusive) to ``stop`` (exclusive)."""

    topic: str
    partition: int
    start: int
    stop: int

    @property
    def span(self) -> int:
        return self.stop - self.start


def partition_id(topic: str, partition: int) -> str:
    return topic if partition == 0 else f"{topic}/{partition}"


def parse_partition_id(text: str) -> tuple[str, int]:
    topic, slash, partition = text.partition("/")
    return topic, int(partition) if slash else 0


def store(positions: Mapping[str, int]) -> StoredPositions:
    """As written to the checkpoint for every batch: grouped by stream, so that its name stands once.

    About 20 bytes a container log; Spark's own Kafka source needs 54. A log at position 0 needs no mention.
    """
    stored: StoredPositions = {}
    for log in sorted(log for log, position in positions.items() if position):
        stream, dot, key = log.partition(".")
        if not dot:
            stream, key = "", log
        stored.setdefault(stream, {})[key] = positions[log]
    return stored


def restore(stored: Mapping[str, Mapping[str, int]]) -> Positions:
    """Inverse of ``store``."""
    return {
        f"{stream}.{key}" if stream else key: position
        for stream, keys in stored.items()
        for key, position in keys.items()
    }


def admit(start: Mapping[str, int], end: Mapping[str, int], limit: int | None) -> Positions:
    """Where a batch of at most ``limit`` offsets ends, given where the logs stand and where they end.

    Shares are max-min fair: short lags are taken whole, long ones get equal shares, so that one log with a large
    backlog holds no other up. What is left over after equal shares goes to the longest lags. Every log in ``end``
    or ``start`` is in the answer; one that ends before its position (truncated, recreated, vanished) keeps it.
    """
    admitted = {log: start.get(log, 0) for log in (*start, *end)}
    lags = sorted((end[log] - admitted[log], log) for log in end if end[log] > admitted[log])
    left = sum(lag for lag, _ in lags) if limit is None else max(0, limit)
    for index, (lag, log) in enumerate(lags):
        share = min(lag, left // (len(lags) - index))
        admitted[log] += share
        left -= share
    return admitted


def ranges(start: Mapping[str, int], stop: Mapping[str, int]) -> list[Range]:
    """What lies between two positions; logs without news have no range."""
    found = []
    for log, end in stop.items():
        begin = start.get(log, 0)
        if end > begin:
            topic, partition = parse_partition_id(log)
            found.append(Range(topic, partition, begin, end))
    return found


def pack(work: Iterable[Range], tasks: int, *, smallest: int = 20_000) -> list[list[Range]]:
    """Pack ranges into at most ``tasks`` lists of about equal span, a log's records staying together and in order.

    Longest first onto the lightest list. Fewer lists are made when there is less than ``smallest`` records for each:
    a task costs more than reading that many.
    """
    todo = sorted(work, key=lambda r: (-r.span, r))
    total = sum(r.span for r in todo)
    if not todo:
        return []
    count = max(1, min(tasks, len(todo), -(-total // smallest)))
    heap = [(0, index) for index in range(count)]
    packed: list[list[Range]] = [[] for _ in range(count)]
    for item in todo:
        load, index = heapq.heappop(heap)
        packed[index].append(item)
        heapq.heappush(heap, (load + item.span, index))
    return packed
