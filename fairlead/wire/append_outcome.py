"""From a broker's answer, or a look at the log, to the next state of a log's queue.

The table is the one at the end of the design's section on the append convention; ``outcome`` holds its pure part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead.wire.append_queue import Batch, LogQueue, fenced
from fairlead.wire.batch import Header
from fairlead.wire.errors import Conflict, Misplaced, broker_error
from fairlead.wire.guard import SETTLE_SECONDS, UNKNOWN_TERM, read_positions, stored_at
from fairlead.wire.outcome import Verdict, judge
from fairlead.wire.types import TP, LogPosition, ProduceResult

if TYPE_CHECKING:
    from fairlead.wire.cluster import Cluster

DUPLICATE_SECONDS: Final = 30.0  # how long a batch that is stored may take to become readable


def settle(queue: LogQueue, result: ProduceResult) -> Verdict:
    """Apply an answer as far as it decides by itself; ``EXAMINE`` and ``LATER`` are left to the caller."""
    batch = under_way(queue)
    expected = None if batch.is_marker and batch.shares[0][0].expected_end is None else batch.offset
    verdict = judge(result, expected)
    if verdict is Verdict.MINE:
        queue.landed(result.base_offset)
    elif verdict is Verdict.FENCED:
        queue.fail(fenced(queue.log, batch.term, None), stop=True)
    elif verdict is Verdict.MISPLACED:
        queue.fail(misplaced(queue.log, batch, result.base_offset), stop=True)
    elif verdict is Verdict.REFUSED:
        queue.refused(broker_error(result.error_code, queue.log, result.error_message))
    return verdict


async def examine(cluster: Cluster, queue: LogQueue, result: ProduceResult) -> bool:
    """Decide by what is stored, after a duplicate answer or error 45; False when that cannot be decided now.

    Raises:
        BrokerError: the log cannot be read.
    """
    batch = under_way(queue)
    duplicate = result.error_code == 0
    if batch.is_marker and not duplicate:
        found = (await read_positions(cluster, [queue.log]))[queue.log]
        if found is None or not isinstance(found, LogPosition) or found.term < batch.term:
            return False
        await resolve(cluster, queue, found)
        return queue.batch is None
    offset = result.base_offset if duplicate else batch.offset
    replicated = cluster.metadata.replicas(queue.log) > 1
    wait = DUPLICATE_SECONDS if duplicate else SETTLE_SECONDS if replicated else 0.0
    stored = await stored_at(cluster, queue.log, offset, wait=wait)
    if stored is None and duplicate:
        return False
    _decide(queue, batch, offset, stored)
    return True


async def resolve(cluster: Cluster, queue: LogQueue, found: LogPosition | None) -> None:
    """Decide about a batch whose outcome is open, by the log's position now. Afterwards the batch is stored, has
    failed, or stays to be sent again (``queue.batch``), with the position taken over.

    Raises:
        BrokerError: the log cannot be read.
    """
    batch = under_way(queue)
    end = 0 if found is None else found.end
    term = UNKNOWN_TERM if found is None else found.term
    if term > batch.term:
        # The term may have been closed after our batch was stored: look before giving up.
        stored = None if batch.is_marker else await _stored_below(cluster, queue, batch, end)
        if stored is not None and stored.crc == batch.crc:
            queue.landed(batch.offset)
        queue.fail(fenced(queue.log, batch.term, term), stop=True)
    elif batch.is_marker:
        await _resolve_marker(cluster, queue, batch, found)
    elif end > batch.offset:
        _decide(queue, batch, batch.offset, await _stored_below(cluster, queue, batch, end))
        queue.known = False
    elif end == batch.offset and term == batch.term:
        queue.position = found
        queue.known = True
    else:
        error = Misplaced(
            f"log {queue.log} ends at {end} in term {term} although records up to {batch.offset} were stored in term "
            f"{batch.term}",
            hint="the topic was recreated or lost its tail; keep both versions, then open a new term",
            log=str(queue.log),
            end=end,
            stored=batch.offset,
        )
        queue.fail(error, stop=True)


async def _resolve_marker(cluster: Cluster, queue: LogQueue, batch: Batch, found: LogPosition | None) -> None:
    if found is not None and found.term == batch.term:
        stored = await stored_at(cluster, queue.log, found.marker)
        if stored is not None and stored.crc == batch.crc:
            queue.landed(found.marker)
            queue.position = found
        else:
            queue.fail(conflict(queue.log, batch, found.marker))
        return
    end = 0 if found is None else found.end
    expected = batch.shares[0][0].expected_end
    if expected is not None and expected != end:
        queue.fail(conflict(queue.log, batch, end))
        return
    # A marker's bytes say nothing about its offset, so the same bytes go to the log's end, wherever it is now.
    batch.offset = batch.marker = end
    queue.position = found
    queue.known = True


async def _stored_below(cluster: Cluster, queue: LogQueue, batch: Batch, end: int) -> Header | None:
    return await stored_at(cluster, queue.log, batch.offset) if end > batch.offset else None


def _decide(queue: LogQueue, batch: Batch, offset: int, stored: Header | None) -> None:
    if stored is not None and stored.crc == batch.crc and stored.base_offset == offset:
        queue.landed(offset)
    elif stored is not None and stored.producer_epoch > batch.term:
        queue.fail(fenced(queue.log, batch.term, stored.producer_epoch), stop=True)
    else:
        queue.fail(conflict(queue.log, batch, offset, nothing=stored is None))


def under_way(queue: LogQueue) -> Batch:
    """The batch that an answer is about."""
    if queue.batch is None:
        raise AssertionError(f"no batch of log {queue.log} is under way")
    return queue.batch


def misplaced(log: TP, batch: Batch, base_offset: int) -> Misplaced:
    """The error for a batch that was stored at another offset than its sequence says."""
    return Misplaced(
        f"records for offset {batch.offset} of log {log} were stored at offset {base_offset}: another client wrote "
        "to the log, or its brokers forgot who did",
        hint="keep both versions and recreate this copy of the log; only its holder may have WRITE on it",
        log=str(log),
        offset=batch.offset,
        base_offset=base_offset,
        term=batch.term,
    )


def conflict(log: TP, batch: Batch, offset: int, *, nothing: bool = False) -> Conflict:
    """The error for an offset that somebody else has taken."""
    if nothing:
        what = f"the brokers refuse the sequence of offset {offset} of log {log} although nothing is stored there"
        hint = "a writer of an older term slipped in after the brokers forgot the newer one; open a new term"
    else:
        what = f"somebody else's record is at offset {offset} of log {log} in term {batch.term}"
        hint = "two writers use one term; find the other one before going on"
    return Conflict(what, hint=hint, log=str(log), offset=offset, term=batch.term)
