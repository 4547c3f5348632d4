"""Positions in many logs: their compact form in a checkpoint, the end of a bounded batch, packing into tasks. Pure.

A position is the offset of the next record to read. This package names a log partition by text: the topic for partition
0 (Fairlead's own logs have no other), ``<topic>/<partition>`` for the rest. A topic's name cannot contain ``/``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

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


LOG_COSTS: Final = 10  # records: fetching from one more log costs task and broker as much as reading these (100 us)
BEGIN = "/"  # prefix of a stream's name, for the start positions of logs that the offset before does not know


def store(
    positions: Mapping[str, int], begin: Mapping[str, int] | None = None, *, begun: bool = False
) -> StoredPositions:
    """Return positions as the checkpoint stores them for every batch: grouped by stream.

    A container log takes about 20 bytes; Spark's own Kafka source needs 54. Logs at position 0 are left out.

    Args:
        begin: Where the batch begins in logs that the offset before it does not know. The batch's own offset holds it,
            so that a repeated batch is the same batch, whatever has happened to the logs.
        begun: Make the result differ from that of a query that has not begun, even where there is no log yet.
    """
    stored = _grouped(positions)
    stored |= {BEGIN + stream: keys for stream, keys in _grouped(begin or {}).items()}
    if begun:
        stored.setdefault(BEGIN, {})
    return stored


def _grouped(positions: Mapping[str, int]) -> StoredPositions:
    grouped: StoredPositions = {}
    for log in sorted(log for log, position in positions.items() if position):
        stream, dot, key = log.partition(".")
        if not dot:
            stream, key = "", log
        grouped.setdefault(stream, {})[key] = positions[log]
    return grouped


def restore(stored: Mapping[str, Mapping[str, int]]) -> Positions:
    """Return the ``positions`` that were given to ``store``."""
    return _named((stream, keys) for stream, keys in stored.items() if not stream.startswith(BEGIN))


def restore_begin(stored: Mapping[str, Mapping[str, int]]) -> Positions:
    """Return the ``begin`` that was given to ``store``."""
    return _named((stream[1:], keys) for stream, keys in stored.items() if stream.startswith(BEGIN))


def _named(grouped: Iterable[tuple[str, Mapping[str, int]]]) -> Positions:
    return {
        f"{stream}.{key}" if stream else key: position for stream, keys in grouped for key, position in keys.items()
    }


def admit(
    start: Mapping[str, int],
    end: Mapping[str, int],
    limit: int | None,
    *,
    limit_bytes: int | None = None,
    size: Callable[[str], int] = lambda log: 1,
) -> Positions:
    """Return where a batch of at most ``limit`` offsets ends that begins at ``start``. The logs end at ``end``.

    Shares are max-min fair: short lags are taken whole, long ones get equal shares, so that a log with a large backlog
    does not delay others. What is left over after equal shares goes to the longest lags. The result has every log in
    ``end`` or ``start``. A log that ends before its position (truncated, recreated, vanished) keeps its position.

    Args:
        limit_bytes: Bounds the admitted offsets once more in the same way, by bytes. At least one record is admitted,
            however large.
        size: Estimated bytes of a record of a log, 1 or more.
    """
    admitted = {log: start.get(log, 0) for log in (*start, *end)}
    spans = {log: end[log] - admitted[log] for log in end if end[log] > admitted[log]}
    if limit is not None:
        spans = _fair(spans, max(0, limit), lambda log: 1)
    if limit_bytes is not None and spans:
        longest = max(spans, key=lambda log: (spans[log], log))
        spans = _fair(spans, max(0, limit_bytes), size) or {longest: 1}
    for log, span in spans.items():
        admitted[log] += span
    return admitted


def _fair(spans: Mapping[str, int], budget: int, size: Callable[[str], int]) -> dict[str, int]:
    """Return how much of each span a budget admits, where a record costs ``size(log)``. Empty shares are left out."""
    costs = {log: max(1, size(log)) for log in spans}
    taken: dict[str, int] = {}
    left = budget
    for index, log in enumerate(sorted(spans, key=lambda log: (spans[log] * costs[log], log))):
        share = min(spans[log], left // (len(spans) - index) // costs[log])
        if share:
            taken[log] = share
        left -= share * costs[log]
    return taken


def ranges(start: Mapping[str, int], stop: Mapping[str, int]) -> list[Range]:
    """Return the ranges between two positions. Logs without new records have none."""
    found = []
    for log, end in stop.items():
        begin = start.get(log, 0)
        if end > begin:
            topic, partition = parse_partition_id(log)
            found.append(Range(topic, partition, begin, end))
    return found


def pack(work: Iterable[Range], tasks: int, *, smallest: int = 20_000, keep_whole: bool = False) -> list[list[Range]]:
    """Pack ranges into at most ``tasks`` lists of about equal cost. A range costs its span plus ``LOG_COSTS``.

    A range longer than a task's equal share is cut, so that a long log does not delay its task. Its parts may be read
    side by side, as every row has its offset. With ``keep_whole``, a log's records stay together and in order. The
    longest range goes first, always to the list with the lowest cost. There are fewer lists when each would cost less
    than ``smallest`` records, because a task costs more than reading that many.
    """
    todo = list(work)
    total = sum(map(_cost, todo))
    if not todo:
        return []
    count = max(1, min(tasks, -(-total // smallest)))
    if keep_whole:
        count = min(count, len(todo))
    elif count > 1:
        share = -(-sum(r.span for r in todo) // count)
        todo = [part for r in todo for part in _cut(r, share)]
    todo.sort(key=lambda r: (-r.span, r))
    heap = [(0, index) for index in range(count)]
    packed: list[list[Range]] = [[] for _ in range(count)]
    for item in todo:
        load, index = heapq.heappop(heap)
        packed[index].append(item)
        heapq.heappush(heap, (load + _cost(item), index))
    return [_joined(task) for task in packed if task]


def _cost(work: Range) -> int:
    return work.span + LOG_COSTS


def _joined(task: list[Range]) -> list[Range]:
    """Join neighbouring parts of a log that came to the same task."""
    found: list[Range] = []
    for part in sorted(task):
        if found and found[-1][:2] == part[:2] and found[-1].stop == part.start:
            found[-1] = found[-1]._replace(stop=part.stop)
        else:
            found.append(part)
    return found


def _cut(work: Range, longest: int) -> list[Range]:
    """Cut a range into the fewest equal parts that are not longer than ``longest``."""
    parts = -(-work.span // longest)
    edges = [work.start + work.span * index // parts for index in range(parts + 1)]
    return [work._replace(start=begin, stop=stop) for begin, stop in pairwise(edges)]
