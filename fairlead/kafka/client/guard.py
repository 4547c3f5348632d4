"""The guard of the append convention: find where a log ends, in which term, and what is stored at an offset.

A broker can lose its producer state (it expires by record time, or the log is emptied and restarted); it then accepts
any first append. So a writer reads the position before its first append on a connection (docs/append-convention.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Final

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.connection import backoff
from fairlead.kafka.client.reader import batches_of, is_empty, lacks_batch
from fairlead.kafka.convention import PRODUCER_ID, is_ours, marker_offset, sequence
from fairlead.kafka.protocol.batch import BatchHeader
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, BrokerError, CorruptBatch, WireError, broker_error
from fairlead.kafka.protocol.fetch_codec import failed
from fairlead.kafka.protocol.types import TP, LogPosition, ProducerState

UNKNOWN_TERM: Final = 0
SETTLE_SECONDS: Final = 5.0  # wait so long for appends above the high watermark; then the committed tail decides

Found = LogPosition | None | BrokerError | CorruptBatch


def position_of(end: int, tail: BatchHeader) -> LogPosition:
    """Return the position of a log that ends at ``end`` with batch ``tail``."""
    if not is_ours(tail):
        return LogPosition(end, UNKNOWN_TERM, -1)
    return LogPosition(end, tail.producer_epoch, marker_offset(tail))


def from_state(end: int, states: Iterable[ProducerState]) -> LogPosition | None:
    """Return the position by the broker's producer state; None when the broker has none.

    A negative marker is impossible: the state is newer than ``end``, or the term is longer than 2^31 records.
    """
    for state in states:
        if state.producer_id == PRODUCER_ID and state.last_sequence >= 0:
            return LogPosition(end, state.epoch, end - 1 - state.last_sequence)
    return None


def agree(one: LogPosition, other: LogPosition) -> bool:
    """Whether both give the next record the same term and sequence."""
    return one.term == other.term and sequence(one.end, one.marker) == sequence(other.end, other.marker)


async def read_positions(cluster: Cluster, logs: Collection[TP]) -> dict[TP, Found]:
    """Return each log's position as it is now; None when the log is empty, and its error when it cannot be read.

    Sends ListOffsets and DescribeProducers for all logs at once. Reads the last batch of a log whose producer state is
    missing, which has several replicas, or whose end has moved meanwhile.

    Raises:
        ConnectionLost: no broker can be reached.
    """
    found: dict[TP, Found] = {}
    left = list(logs)
    deadline = asyncio.get_running_loop().time() + SETTLE_SECONDS
    attempt = 0
    while left:
        patient = asyncio.get_running_loop().time() < deadline
        left = await _read(cluster, left, found, patient=patient)
        if left:
            await asyncio.sleep(backoff(attempt, 0.5))
            attempt += 1
    return found


async def _read(cluster: Cluster, logs: list[TP], found: dict[TP, Found], *, patient: bool) -> list[TP]:
    """Read the positions once. If ``patient``, return the logs whose tail is not committed yet."""
    ends: dict[TP, int] = {}
    for log, end in (await cluster.end_offsets(logs)).items():
        if isinstance(end, BrokerError):
            found[log] = end
        elif end == 0:
            found[log] = None
        else:
            ends[log] = end
    read: dict[TP, int] = {}
    remembered: dict[TP, LogPosition | None] = {}
    known: dict[TP, LogPosition] = {}
    uncommitted: list[TP] = []
    if ends:
        for log, states in (await cluster.describe_producers(ends)).items():
            if isinstance(states, BrokerError):
                found[log] = states
                continue
            position = from_state(ends[log], states)
            # Unlike the end, the state includes appends above the high watermark, so with replicas the two may differ.
            if position is None or position.marker < 0 or cluster.metadata.replicas(log) > 1:
                read[log] = ends[log]
                remembered[log] = position
            else:
                known[log] = position
    # Another writer (a replicator, or an earlier holder) may have appended between the two requests. The state is then
    # newer than the end, and the broker would accept the next append one offset too late. A tail has term and marker of
    # its own moment, so reading it works however busy the other writer is.
    for log, end in (await cluster.end_offsets(known) if known else {}).items():
        if isinstance(end, BrokerError):
            found[log] = end
        elif end == known[log].end:
            found[log] = known[log]
        else:
            read[log], remembered[log] = end, None
    for log, tail in (await tails(cluster, read)).items():
        if isinstance(tail, WireError):
            found[log] = tail
            continue
        position = LogPosition(read[log], UNKNOWN_TERM, -1) if tail is None else position_of(read[log], tail)
        before = remembered[log]
        if patient and before is not None and not agree(before, position):
            uncommitted.append(log)
        else:
            found[log] = position
    return uncommitted


async def tails(cluster: Cluster, ends: dict[TP, int]) -> dict[TP, BatchHeader | BrokerError | CorruptBatch | None]:
    """Return the header of each log's last batch; None where the log ends at ``ends`` but has no batch left.

    The result has the error of a log that cannot be read, or whose batch there is damaged.
    """
    found: dict[TP, BatchHeader | BrokerError | CorruptBatch | None] = {}
    left = dict(ends)
    while left:
        answers = await cluster.fetch({log: end - 1 for log, end in left.items()}, max_wait_ms=0)
        nothing = is_empty(answers)
        for log, content in answers.items():
            if content.error_code == OFFSET_OUT_OF_RANGE:
                found[log] = None
            elif content.error_code:
                found[log] = broker_error(content.error_code, log)
            else:
                try:
                    for view in batches_of(log, content):
                        found[log] = view.header  # the last batch wins; if the answer was full, ask again
                except CorruptBatch as error:
                    found.setdefault(log, error)  # behind a whole batch, it was appended meanwhile
                if log not in found and nothing and content.high_watermark >= left[log]:
                    found[log] = lacks_batch(log, content, left[log] - 1)
        left = {log: end for log, end in left.items() if log not in found}
    return found


async def stored_at(cluster: Cluster, log: TP, offset: int, *, wait: float = 0.0) -> BatchHeader | None:
    """Return the header of the stored batch that contains ``offset``; None when there is none after ``wait`` seconds.

    Raises:
        BrokerError, CorruptBatch: the log cannot be read.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait
    while True:
        wait_ms = max(0, min(500, int((deadline - loop.time()) * 1000)))
        content = (await cluster.fetch({log: offset}, max_wait_ms=wait_ms)).get(log, failed(OFFSET_OUT_OF_RANGE))
        if content.error_code and content.error_code != OFFSET_OUT_OF_RANGE:
            raise broker_error(content.error_code, log)
        for view in batches_of(log, content):
            if view.header.base_offset <= offset < view.header.next_offset:
                return view.header
        left = deadline - loop.time()
        if left <= 0:
            return None
        if content.error_code or wait_ms == 0:
            await asyncio.sleep(min(0.05, left))
