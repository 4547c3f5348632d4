"""The appender's state machine for one log: the records that wait, and the batch in flight. No I/O.

At most one batch of a log is in flight. Entries stay in the queue until their records are stored, so a batch whose
outcome is unknown is neither forgotten nor overtaken by a later one. ``judge`` implements the table of
docs/append-convention.md: what each broker answer to an append means.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from fairlead.kafka.client.guard import UNKNOWN_TERM
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.batch import BatchHeader
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import (
    INVALID_PRODUCER_EPOCH,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    Conflict,
    Fenced,
    Misplaced,
    WireError,
    broker_error,
    is_retriable,
)
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP, Appended, LogPosition, ProduceResult

CRC: Final = slice(17, 21)


# Structs, because each reading needs one of each, and a dataclass takes several times as long to make.
class PendingAppend(msgspec.Struct, eq=False):
    """One call of the appender: records to append in order, or one marker."""

    records: Sequence[NewRecord]
    future: asyncio.Future[Appended]
    term: int | None = None  # the term that the caller expects; for a marker, the term that it opens
    is_marker: bool = False
    hold: bool = True
    expected_end: int | None = None
    done: int = 0
    base: int = -1


class OpenBatch(msgspec.Struct, eq=False):
    """One encoded batch. ``offset`` is where it must be stored; ``marker`` is where its term began."""

    data: bytes
    offset: int
    term: int
    marker: int
    count: int
    shares: list[tuple[PendingAppend, int]]
    is_marker: bool = False

    @property
    def crc(self) -> int:
        return int.from_bytes(self.data[CRC], "big")


class AppendVerdict(enum.Enum):
    """What to do after a broker's answer."""

    MINE = enum.auto()  # this request stored the batch
    EXAMINE = enum.auto()  # the offset may already hold a batch: compare CRCs
    MISPLACED = enum.auto()  # stored at another offset
    FENCED = enum.auto()  # a later term exists
    LATER = enum.auto()  # outcome unknown, or not possible now: run the guard, then send the same bytes again
    REFUSED = enum.auto()  # the broker will never accept this batch; do not send it again as it is


def judge(result: ProduceResult, expected: int | None) -> AppendVerdict:
    """Decide what one broker answer means.

    ``expected`` is the offset that the batch must get. None accepts any offset; only markers may use it.
    """
    code = result.error_code
    if code == 0:
        if not result.appended_now:
            # A duplicate answer. At another offset the stored batch cannot be ours; comparing CRCs shows that too.
            return AppendVerdict.EXAMINE
        return AppendVerdict.MINE if expected is None or result.base_offset == expected else AppendVerdict.MISPLACED
    if code == OUT_OF_ORDER_SEQUENCE_NUMBER:
        return AppendVerdict.EXAMINE
    if code == INVALID_PRODUCER_EPOCH:
        return AppendVerdict.FENCED
    return AppendVerdict.LATER if is_retriable(code) else AppendVerdict.REFUSED


RESTING: Final = object()  # owner of a log that a timer will try again


@dataclass(slots=True, eq=False)
class LogQueue:
    """State of one log in an appender."""

    log: TP
    position: LogPosition | None = None
    known: bool = False  # ``position`` has been read, and no append has failed since
    read_over: tuple[int, int] = (-1, 0)  # (leader, incarnation of the connection) over which ``position`` was read
    topic_id: bytes | None = None  # of the topic in which ``position`` was read
    entries: list[PendingAppend] = field(
        default_factory=list
    )  # a list: most of the many logs have no entries, and an empty deque is large
    batch: OpenBatch | None = None
    owner: object | None = None  # the one request that carries the log now, or ``RESTING``
    stopped: WireError | None = None  # why the log takes no appends until it is adopted or a term is opened
    alone: int = 0  # number of entries to send one by one, after the broker refused their common batch
    attempts: int = 0

    def is_known(self, over: tuple[int, int]) -> bool:
        """Whether ``position`` was read over this connection (leader, incarnation), which is up, and still holds."""
        return self.known and over[1] != 0 and self.read_over == over

    # --- building

    def build(self, max_bytes: int, codec: Codec) -> OpenBatch | None:
        """Return the next batch, or the one whose outcome is still open; None when no entry is left.

        Requires ``known``. Fails the entries that cannot be appended.
        """
        if self.batch is not None:
            return self.batch
        while self.entries:
            entry = self.entries[0]
            trouble = None if entry.future.done() else self._trouble(entry)
            if trouble is not None:
                entry.future.set_exception(trouble)
            if entry.future.done():  # failed in this iteration, or cancelled by its caller
                del self.entries[0]
                continue
            self.batch = self._marker(entry) if entry.is_marker else self._records(max_bytes, codec)
            return self.batch
        return None

    def _trouble(self, entry: PendingAppend) -> WireError | None:
        """Return the error that forbids appending this entry at the current position, or None."""
        position = self.position
        if entry.is_marker:
            end = 0 if position is None else position.end
            if entry.expected_end is not None and end != entry.expected_end and not self._opened(entry):
                return Conflict(
                    f"log {self.log} ends at {end}, not at {entry.expected_end}, so term {entry.term} is not opened",
                    hint="read the log's end again; somebody else appended to it",
                    log=str(self.log),
                    end=end,
                    expected_end=entry.expected_end,
                )
            if position is not None and position.term > (entry.term or 0):
                return fenced(self.log, entry.term or 0, position.term)
            return None
        if self.stopped is not None:
            return again(self.stopped)
        if position is None or position.term == UNKNOWN_TERM:
            what = "is empty" if position is None else "ends with a batch that Fairlead did not write"
            return Misplaced(
                f"nothing can be appended to log {self.log}: it {what}, so no term is open",
                hint="open a term first",
                log=str(self.log),
                end=0 if position is None else position.end,
            )
        if entry.term is not None and entry.term != position.term:
            return fenced(self.log, entry.term, position.term)
        return None

    def _opened(self, entry: PendingAppend) -> bool:
        """Whether the log is already in this marker entry's term, so that this marker may have opened it."""
        return self.position is not None and self.position.term == entry.term

    def _marker(self, entry: PendingAppend) -> OpenBatch:
        term = entry.term or 0
        end = 0 if self.position is None else self.position.end
        data = term_batch(entry.records, term=term, offset=end, marker=end)
        return OpenBatch(data, end, term, end, 1, [(entry, 1)], is_marker=True)

    def _records(self, max_bytes: int, codec: Codec) -> OpenBatch:
        position = self.position
        if position is None:
            raise AssertionError("a batch of records needs an open term")
        records, shares = self._alone() or self._shared(max_bytes, position.term)
        if self.alone > 0:
            self.alone -= 1
        end, term, marker = position
        data = term_batch(records, term=term, offset=end, marker=marker, codec=codec)
        return OpenBatch(data, end, term, marker, len(records), shares)

    def _alone(self) -> tuple[Sequence[NewRecord], list[tuple[PendingAppend, int]]] | None:
        """Return the batch of a single waiting record, whatever its size (the usual case), or None."""
        entry = self.entries[0]
        if len(self.entries) > 1 or len(entry.records) > 1:
            return None
        return entry.records, [(entry, 1)]

    def _shared(self, room: int, term: int) -> tuple[Sequence[NewRecord], list[tuple[PendingAppend, int]]]:
        """Return at least one record, as many as fit into ``room`` bytes, and the entries that they belong to."""
        records: list[NewRecord] = []
        shares: list[tuple[PendingAppend, int]] = []
        for entry in self.entries:
            if entry.is_marker or (shares and (self.alone > 0 or entry.term not in (None, term))):
                break
            if entry.future.done():
                continue
            taken = 0
            for record in entry.records[entry.done :]:
                size = record.size_bound()
                if size > room and records:
                    break
                records.append(record)
                room -= size
                taken += 1
            if taken:
                shares.append((entry, taken))
            if taken < len(entry.records) - entry.done:
                break
        return records, shares

    # --- outcomes

    def apply_answer(self, result: ProduceResult) -> AppendVerdict:
        """Apply a broker's answer, and return the verdict. The caller must handle ``EXAMINE`` and ``LATER``."""
        batch = self.in_flight()
        expected = None if batch.is_marker and batch.shares[0][0].expected_end is None else batch.offset
        verdict = judge(result, expected)
        if verdict is AppendVerdict.MINE:
            self.landed(result.base_offset)
        elif verdict is AppendVerdict.FENCED:
            self.fail(fenced(self.log, batch.term, None), stop=True)
        elif verdict is AppendVerdict.MISPLACED:
            self.fail(misplaced(self.log, batch, result.base_offset), stop=True)
        elif verdict is AppendVerdict.REFUSED:
            self.refused(broker_error(result.error_code, self.log, result.error_message))
        return verdict

    def apply_stored(self, offset: int, stored: BatchHeader | None) -> None:
        """Settle the batch in flight by the batch stored at its offset (None: nothing is stored there)."""
        batch = self.in_flight()
        if stored is not None and stored.crc == batch.crc and stored.base_offset == offset:
            self.landed(offset)
        elif stored is not None and stored.producer_epoch > batch.term:
            self.fail(fenced(self.log, batch.term, stored.producer_epoch), stop=True)
        else:
            self.fail(conflict(self.log, batch, offset, nothing=stored is None))

    def in_flight(self) -> OpenBatch:
        """Return the batch in flight, which must exist."""
        if self.batch is None:
            raise AssertionError(f"no batch of log {self.log} is in flight")
        return self.batch

    def landed(self, base: int) -> None:
        """Advance the position past the batch, stored from offset ``base`` on, and complete its entries."""
        batch, self.batch = self.in_flight(), None
        self.attempts = 0
        self.position = LogPosition(base + batch.count, batch.term, base if batch.is_marker else batch.marker)
        if batch.is_marker:
            entry = batch.shares[0][0]
            self.stopped = None if entry.hold else granted(self.log, batch.term)
        at = base
        for entry, count in batch.shares:
            if entry.done == 0:
                entry.base = at
            entry.done += count
            at += count
            if entry.done == len(entry.records) and not entry.future.done():
                entry.future.set_result(Appended(entry.base, entry.done))
        over = 0
        for entry in self.entries:
            if entry.done < len(entry.records) and not entry.future.done():
                break
            over += 1
        del self.entries[:over]

    def refused(self, error: WireError) -> None:
        """Handle a batch that the broker never accepts: fail its only entry, or send several entries one by one."""
        batch, self.batch = self.in_flight(), None
        self.attempts = 0
        if len(batch.shares) > 1:
            self.alone = len(batch.shares)
            return
        entry = batch.shares[0][0]
        if not entry.future.done():
            entry.future.set_exception(error)

    def fail(self, error: WireError | BaseException, *, stop: bool = False) -> None:
        """Fail all entries; the position must be read again. With ``stop``, the log takes no more appends."""
        self.batch = None
        self.known = False
        self.attempts = 0
        if stop and isinstance(error, WireError):
            self.stopped = error
        entries, self.entries = self.entries, []
        for entry in entries:
            if not entry.future.done():
                entry.future.set_exception(again(error) if isinstance(error, WireError) else error)

    def settle_position(self, found: LogPosition | None) -> None:
        """Take over a position that was read while no batch was under way; stop the log if it is impossible."""
        old, self.position = self.position, found
        self.known = True
        if old is None:
            return
        if found is None or found.end < old.end:
            end = 0 if found is None else found.end
            self.stopped = Misplaced(
                f"log {self.log} ends at {end} although records up to {old.end} were stored in it",
                hint="the topic was recreated or lost its tail; keep both versions, then open a new term",
                log=str(self.log),
                end=end,
                stored=old.end,
            )
        elif found.term > old.term > UNKNOWN_TERM:
            self.stopped = fenced(self.log, old.term, found.term)


def again(error: WireError) -> WireError:
    """Copy an error, so that each waiting caller has its own traceback."""
    copy = error.__class__.__new__(error.__class__)
    copy.__dict__.update(error.__dict__)
    copy.args = error.args
    return copy


def fenced(log: TP, term: int, later: int | None) -> Fenced:
    """Make the error for an append in ``term`` when a later term exists (``later``; None: unknown which)."""
    now = "a later term exists" if later is None else f"term {later} is open"
    return Fenced(
        f"this writer may not append to log {log} in term {term}: {now}",
        hint="stop writing to this log; whoever holds it now is in the custody ledger (`fairlead custody`)",
        log=str(log),
        term=term,
        later_term=later,
    )


def granted(log: TP, term: int) -> Fenced:
    """Make the error for an append after this writer gave the log away with the marker of ``term``."""
    return Fenced(
        f"log {log} was granted to another writer in term {term}, so nothing may be appended to it here",
        hint="wait until it is granted back, then adopt it",
        log=str(log),
        term=term - 1,
        later_term=term,
    )


def misplaced(log: TP, batch: OpenBatch, base_offset: int) -> Misplaced:
    """Make the error for a batch that was stored at another offset than its sequence says."""
    return Misplaced(
        f"records for offset {batch.offset} of log {log} were stored at offset {base_offset}: another client wrote "
        "to the log, or its brokers forgot who did",
        hint="keep both versions and recreate this copy of the log; only its holder may have WRITE on it",
        log=str(log),
        offset=batch.offset,
        base_offset=base_offset,
        term=batch.term,
    )


def conflict(log: TP, batch: OpenBatch, offset: int, *, nothing: bool = False) -> Conflict:
    """Make the error for an offset that holds another writer's record."""
    if nothing:
        what = f"the brokers refuse the sequence of offset {offset} of log {log} although nothing is stored there"
        hint = "a writer of an older term slipped in after the brokers forgot the newer one; open a new term"
    else:
        what = f"somebody else's record is at offset {offset} of log {log} in term {batch.term}"
        hint = "two writers use one term; find the other one before going on"
    return Conflict(what, hint=hint, log=str(log), offset=offset, term=batch.term)
