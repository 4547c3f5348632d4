"""Deletes the fillers that positioned a log, and finds those that an interrupted replicator has left.

A replica whose source begins above offset 0 is positioned by fillers. They are deleted in two steps: all but the last
when they are all in, so that a crash leaves at most one; the last when the first real batch is in. Never everything: an
emptied log loses its producer state (docs/append-convention.md). A replicator that dies in between leaves fillers:
marked, but visible to every consumer that begins at the start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster, chunks
from fairlead.kafka.convention import filler_body
from fairlead.kafka.protocol.batch import HEADER_BYTES, BatchHeader, Buffer, parse_header, split
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import BrokerError, broker_error
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.prepared import POSITION_KEY
from replication.batch.rebuild import first_body
from replication.catalog import is_always_whole

log = logging.getLogger(__name__)

ANSWER_BYTES: Final = 4 << 20
LOG_BYTES: Final = 128 << 10  # a filler batch takes 67 kB at most
PROBE_BYTES: Final = 1 << 10  # a broker sends nothing of a log whose first batch is larger than what is asked for
LARGE_AT_ONCE: Final = 24  # logs whose first batch is asked for whole: they fit in one answer
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


async def reach_of_fillers(cluster: Cluster, tp: TopicPartition) -> int | None:
    """How far the positioning fillers at a log's start reach; None where it begins with anything else.

    Raises:
        WireError: the cluster cannot be reached, or answers with an error that may pass.
    """
    begins = (await cluster.start_offsets([tp]))[tp]
    reach: int | None = None
    at = begins
    while isinstance(at, int):
        part = (await cluster.fetch({tp: at}, max_wait_ms=0, partition_max_bytes=LOG_BYTES, isolation=0))[tp]
        error = broker_error(part.error_code, tp) if part.error_code else None
        if error is not None and error.retriable:
            raise error
        further, ends = left_over(part.records)
        if error is not None or further is None:
            return reach
        reach = at = further
        if ends:
            return reach
    if at.retriable:
        raise at
    return reach


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


def may_position(header: BatchHeader) -> bool:
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
    """Those of these logs whose first batch can be one that positions a log."""
    first = await _first_headers(cluster, starts, PROBE_BYTES)
    for some in chunks([tp for tp in starts if tp not in first], LARGE_AT_ONCE):
        first |= await _first_headers(cluster, {tp: starts[tp] for tp in some}, LOG_BYTES)
    return {tp: starts[tp] for tp, header in first.items() if header is not None and may_position(header)}


async def _first_headers(
    cluster: Cluster, starts: Mapping[TopicPartition, int], size: int
) -> dict[TopicPartition, BatchHeader | None]:
    """The header of each log's first batch, None where the broker answers with an error; logs that are empty, or whose
    first batch is larger than ``size``, are left out."""
    answers = await cluster.fetch(starts, max_wait_ms=0, max_bytes=ANSWER_BYTES, partition_max_bytes=size, isolation=0)
    return {
        tp: None if part.error_code else parse_header(part.records)
        for tp, part in answers.items()
        if part.error_code or len(part.records) >= HEADER_BYTES
    }


class Trimmer:
    """Collects what is to be deleted and does it in the background."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._before: dict[TopicPartition, int] = {}
        self._wanted = asyncio.Event()

    def delete_before(self, tp: TopicPartition, offset: int) -> None:
        """Delete the log's records below ``offset`` soon."""
        if offset > 0:
            self._before[tp] = max(offset, self._before.get(tp, 0))
            self._wanted.set()

    async def run(self) -> None:
        """Delete until cancelled; what fails stays, marked, and is said."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            some, self._before = self._before, {}
            try:
                for tp, result in (await self._cluster.delete_records(some)).items():
                    if isinstance(result, BrokerError):
                        log.warning("%s: fillers below %d stay: %s", tp, some[tp], result.what)
            except FairleadError as error:
                log.warning("fillers at the start of %d logs stay: %s", len(some), error.what)
