"""Fillers that an interrupted positioning has left at a log's start.

A replica whose source begins above offset 0 is positioned by fillers, which are deleted when the first real batch is
in. A replicator that dies in between leaves them: marked, but there for every consumer that begins at the start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from fairlead.wire.batch import HEADER_BYTES, Buffer, Header, parse_header, split
from fairlead.wire.cluster import Cluster
from fairlead.wire.codecs import Codec
from fairlead.wire.convention import filler_body
from fairlead.wire.routing import chunks
from fairlead.wire.types import TopicPartition
from replication.item import POSITION_KEY
from replication.rebuild import first_body
from replication.start import is_always_whole

ANSWER_BYTES: Final = 4 << 20
LOG_BYTES: Final = 128 << 10  # a filler batch takes 60 kB at most
PROBE_BYTES: Final = 1 << 10  # of a log: enough for the header of its first batch
ONE_FILLER: Final = 256  # bytes; a record more takes less than one, since fillers compress to nearly nothing
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


def may_position(header: Header) -> bool:
    """Whether a batch can be one that positions a log, as far as its header tells; most batches of data cannot."""
    return header.codec is Codec.ZSTD and header.length <= ONE_FILLER + header.count


async def interrupted(
    target: Cluster, source: Cluster, logs: Collection[TopicPartition], start: str, *, at_once: int = 500
) -> dict[TopicPartition, int]:
    """Of these logs, followed from ``source``, those that begin with fillers to be deleted, and before which offset.

    Where a link begins at the start of its logs (``start`` is ``earliest``), only a replica that begins below its
    source can have such fillers. Where it begins later, any replica can, and the header of its first batch is asked.

    Raises:
        WireError: a cluster cannot be reached.
    """
    there, here = await source.start_offsets(logs), await target.start_offsets(logs)
    below: dict[TopicPartition, int] = {}
    above: dict[TopicPartition, int] = {}
    for tp in logs:
        if isinstance(begins := here[tp], int) and isinstance(first := there[tp], int):
            if begins < first:
                below[tp] = begins
            elif start != "earliest" and not is_always_whole(tp.topic):
                above[tp] = begins
    found: dict[TopicPartition, int] = {}
    for some in chunks(list(above), at_once):
        below |= await _suspects(target, {tp: above[tp] for tp in some})
    for some in chunks(list(below), at_once):
        found |= await leftovers(target, {tp: below[tp] for tp in some})
    return found


async def _suspects(cluster: Cluster, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    answers = await cluster.fetch(
        starts, max_wait_ms=0, max_bytes=ANSWER_BYTES, partition_max_bytes=PROBE_BYTES, isolation=0
    )
    return {
        tp: starts[tp]
        for tp, part in answers.items()
        if not part.error_code and len(part.records) >= HEADER_BYTES and may_position(parse_header(part.records))
    }
