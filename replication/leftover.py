"""Fillers that an interrupted positioning has left at a log's start.

A replica whose source begins above offset 0 is positioned by fillers, which are deleted when the first real batch is
in. A replicator that dies in between leaves them: marked, but there for every consumer that begins at the start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from fairlead.wire.batch import HEADER_BYTES, Buffer, split
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import filler_body
from fairlead.wire.types import TopicPartition
from replication.item import POSITION_KEY
from replication.rebuild import first_body

ANSWER_BYTES: Final = 4 << 20
LOG_BYTES: Final = 128 << 10  # a filler batch takes 60 kB at most
_POSITION: Final = filler_body(POSITION_KEY)


def positions(batch: Buffer) -> bool:
    """Whether a batch holds nothing but fillers that position a log: all its records are the same then."""
    return first_body(batch) == _POSITION


def left_over(records: Buffer) -> tuple[int | None, bool]:
    """How far positioning fillers reach in batches fetched from a log's start.

    Returns:
        the offset after the last of them, None when there is none; and whether something else follows, so that they
        may be deleted: a log is never emptied.
    """
    reach: int | None = None
    for start, stop, header in split(records):
        with memoryview(records) as view, view[start:stop] as batch:
            if not positions(batch):
                return reach, True
        reach = header.next_offset
    return reach, False


async def leftovers(cluster: Cluster, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Of logs that begin at these offsets, those that begin with fillers of a positioning, and the offset before which
    they are to be deleted. Logs that have nothing else are left out.

    Ask for replicas that begin below their source: no other was ever positioned and not trimmed.

    Raises:
        WireError: the cluster cannot be reached.
    """
    found: dict[TopicPartition, int] = {}
    out: dict[TopicPartition, int] = {}
    left = dict(starts)
    while left:
        answers = await cluster.fetch(
            left, max_wait_ms=0, max_bytes=ANSWER_BYTES, partition_max_bytes=LOG_BYTES, isolation=0
        )
        answered = {tp: part for tp, part in answers.items() if part.error_code or len(part.records) >= HEADER_BYTES}
        for tp, part in answered.items():
            reach, ends = (None, True) if part.error_code else left_over(part.records)
            if reach is not None:
                found[tp] = left[tp] = reach
            if ends or reach is None:
                del left[tp]
                if tp in found:
                    out[tp] = found[tp]
        if not answered:
            break  # nothing follows in any of them
        left = {tp: at for tp, at in left.items() if tp not in answered} | {
            tp: at for tp, at in left.items() if tp in answered
        }
    return out


async def interrupted(
    target: Cluster, source: Cluster, logs: Collection[TopicPartition], *, at_once: int = 500
) -> dict[TopicPartition, int]:
    """Of these logs, followed from ``source``, those that begin with fillers to be deleted, and before which offset.

    Raises:
        WireError: a cluster cannot be reached.
    """
    there, here = await source.start_offsets(logs), await target.start_offsets(logs)
    below = {
        tp: start
        for tp in logs
        if isinstance(start := here[tp], int) and isinstance(first := there[tp], int) and start < first
    }
    found: dict[TopicPartition, int] = {}
    each = list(below)
    for number in range(0, len(each), at_once):
        found |= await leftovers(target, {tp: below[tp] for tp in each[number : number + at_once]})
    return found
