"""Delete the fillers that positioned a log, and find fillers that an interrupted replicator has left.

If a source begins above offset 0, the replicator appends fillers to the replica up to that offset. It deletes them in
two steps: once all are stored, all but the last, so that a crash after that leaves only one; and the last once the
first real batch is stored. It never empties the log, because an empty log loses its producer state
(docs/append-convention.md). A replicator that is killed in between leaves fillers. They are marked, but every consumer
that begins at the start of the log sees them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster, chunks
from fairlead.kafka.convention import filler_body
from fairlead.kafka.protocol.batch import HEADER_BYTES, BatchHeader, Buffer, parse_header, split
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch, broker_error
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.prepared import POSITION_KEY
from replication.batch.rebuild import first_body
from replication.catalog import is_always_whole

log = logging.getLogger(__name__)

ANSWER_BYTES: Final = 4 << 20
LOG_BYTES: Final = 128 << 10  # a filler batch takes 67 kB at most
PROBE_BYTES: Final = 1 << 10  # a broker sends nothing of a log whose first batch is larger than what is asked for
LARGE_AT_ONCE: Final = 24  # logs whose whole first batch is requested at a time: they fit in one answer
TRIM_AGAIN: Final = 60.0  # seconds
_AT_ONCE: Final = 500  # logs in one request
ONE_FILLER: Final = 256  # bytes; a further record takes less than one byte, because fillers compress so well
_POSITION: Final = filler_body(POSITION_KEY)


def positions(batch: Buffer) -> bool:
    """Return whether a batch holds only positioning fillers; not if it cannot be read. Reads the first record only:
    all its records are equal."""
    try:
        return first_body(batch) == _POSITION
    except CorruptBatch:
        return False


def left_over(records: Buffer) -> tuple[int | None, bool]:
    """Find the end of the positioning fillers in batches fetched from a log's start.

    Returns:
        The offset after the last filler, None when there is none; and whether another batch follows. Only then may
        the fillers be deleted, because a log is never emptied. Where a header is damaged, no fillers are found.
    """
    reach: int | None = None
    try:
        for batch in split(records):
            with memoryview(records) as view, view[batch.start : batch.stop] as stored:
                if not positions(stored):
                    return reach, True
            reach = batch.header.next_offset
    except CorruptBatch:
        return None, True
    return reach, False


async def reach_of_fillers(cluster: Cluster, tp: TopicPartition) -> int | None:
    """Return the offset after the positioning fillers at a log's start; None if the log begins with another batch.

    Raises:
        WireError: the cluster cannot be reached, or answers with a retriable error.
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
    """Find the logs that begin with positioning fillers, and the offset before which to delete them.

    Logs that hold nothing but fillers are left out. ``starts`` has the start offset of each log to read. Pass only
    replicas that may have such fillers: where a link copies from the start, those that begin below their source.

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
            break  # the remaining logs have only fillers
        left = {tp: at for tp, at in left.items() if tp not in answered} | {
            tp: at for tp, at in left.items() if tp in answered
        }
    return out


def may_position(header: BatchHeader) -> bool:
    """Return whether a batch may hold positioning fillers, judged by its header. Most batches of data cannot."""
    return header.codec is Codec.ZSTD and header.length <= ONE_FILLER + header.count


async def interrupted(
    target: Cluster, source: Cluster, logs: Collection[TopicPartition], start: str
) -> dict[TopicPartition, int]:
    """Find replicas whose positioning fillers were not deleted.

    If a link begins at the start of its logs (``start`` is ``earliest``), only a replica that begins below its source
    can have such fillers. If it begins later, any replica can, so the header of its first batch is read.

    Returns:
        The offset before which to delete the fillers, 0 where there are none. Logs that cannot be asked about now are
        left out.

    Raises:
        WireError: a cluster cannot be reached.
    """
    there, here = await source.start_offsets(logs), await target.start_offsets(logs)
    below: dict[TopicPartition, int] = {}
    above: dict[TopicPartition, int] = {}
    found: dict[TopicPartition, int] = {}
    for tp in logs:
        if isinstance(begins := here[tp], int) and isinstance(first := there[tp], int):
            found[tp] = 0
            if begins < first:
                below[tp] = begins
            elif start != "earliest" and not is_always_whole(tp.topic):
                above[tp] = begins
    for some in chunks(list(above), _AT_ONCE):
        below |= await _suspects(target, {tp: above[tp] for tp in some})
    for some in chunks(list(below), _AT_ONCE):
        found |= await leftovers(target, {tp: below[tp] for tp in some})
    return found


async def _suspects(cluster: Cluster, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the logs whose first batch may hold positioning fillers, with their start offsets."""
    first = await _first_headers(cluster, starts, PROBE_BYTES)
    for some in chunks([tp for tp in starts if tp not in first], LARGE_AT_ONCE):
        first |= await _first_headers(cluster, {tp: starts[tp] for tp in some}, LOG_BYTES)
    return {tp: starts[tp] for tp, header in first.items() if header is not None and may_position(header)}


async def _first_headers(
    cluster: Cluster, starts: Mapping[TopicPartition, int], size: int
) -> dict[TopicPartition, BatchHeader | None]:
    """Read the header of each log's first batch; None where it is damaged, or the broker answers with an error. Leave
    out logs that are empty, or whose first batch is larger than ``size`` bytes."""
    answers = await cluster.fetch(starts, max_wait_ms=0, max_bytes=ANSWER_BYTES, partition_max_bytes=size, isolation=0)
    found: dict[TopicPartition, BatchHeader | None] = {}
    for tp, part in answers.items():
        if part.error_code:
            found[tp] = None
        elif len(part.records) >= HEADER_BYTES:
            found[tp] = None
            with contextlib.suppress(CorruptBatch):
                found[tp] = parse_header(part.records)
    return found


class Trimmer:
    """Collect requests to delete records and carry them out in the background."""

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
        """Delete until cancelled. What fails for now is tried again after ``TRIM_AGAIN``. If the broker refuses for
        good, log it; the fillers stay, and are marked as fillers."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            some, self._before = self._before, {}
            later: dict[TopicPartition, int] = {}
            try:
                for tp, result in (await self._cluster.delete_records(some)).items():
                    if isinstance(result, BrokerError):
                        log.warning("%s: fillers below %d stay: %s", tp, some[tp], result.what)
                        if result.retriable:
                            later[tp] = some[tp]
            except FairleadError as error:
                log.warning("fillers at the start of %d logs stay: %s", len(some), error.what)
                later = some
            for tp, offset in later.items():
                asyncio.get_running_loop().call_later(TRIM_AGAIN, self.delete_before, tp, offset)
