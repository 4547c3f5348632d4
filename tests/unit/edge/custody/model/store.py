"""The memory of a bridge of the model, and how it carries out the actions of the shipped custody protocol.

Each ``yield`` follows an action and is a place where the bridge may crash or be suspended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from edge.custody.protocol import (
    Action,
    AdoptTerm,
    AppendEntry,
    AppendEvent,
    AppendMarker,
    CopyStrays,
    CreateLog,
    CustodyProtocol,
    FindStaleTail,
    FindStrays,
    ForgetLog,
    GiveUpLog,
    KeepTail,
    KeptTail,
    PrepareLog,
    ReadLedgers,
    ReadMarker,
    ReadPosition,
    RememberLogs,
    Steps,
    StoredMarker,
    StoreStrays,
    Transfer,
)
from edge.holdings import CustodyState, Holdings
from edge.logwriter.dedup import DedupResult
from edge.messages import MessageId
from edge.strays.store import KeptReading, StrayBook, StrayIndex, Strays
from fairlead.custody.superseded import Stale
from fairlead.custody.view import CustodyView
from fairlead.errors import FairleadError
from fairlead.kafka.protocol.errors import Conflict, ConnectionLost, Fenced, Misplaced, broker_error
from fairlead.kafka.protocol.types import TP, LogPosition
from fairlead.records.custody import CustodyEntry, Marker
from tests.unit.edge.custody.model.disk import PORTS, Copy, Died, Disk, Rec, Refused, Stray, moment
from tests.unit.edge.custody.model.memory import Memory

if TYPE_CHECKING:
    from tests.unit.edge.custody.model.model import World

T = TypeVar("T")
Pauses = Iterator[None]
Barrier = Callable[[], Pauses]


class OwnStrays:
    """The strays that this site itself keeps."""

    def __init__(self, site: str) -> None:
        self.log = f"strays.{site}"
        self.index = StrayIndex()

    def has_any_for(self, log: str) -> bool:
        return log in self.index.kept

    def is_box_log(self, log: str) -> bool:
        return True


class Store:
    """The memory of a bridge, and its appends."""

    def __init__(self, world: World, disk: Disk) -> None:
        self.world = world
        self.disk = disk
        self.site = disk.site
        self.alive = True
        self.view = CustodyView()
        self.holdings = Holdings(self.site, self.view)
        self.strays = OwnStrays(self.site)
        others = tuple(f"strays.{site}" for site in disk.sites if site != self.site)
        self.book = StrayBook(cast(Strays, self.strays), others, self.view, trusted=self._trusts)
        self.given: set[tuple[str, str | None]] = set()  # logs with the sites that some entry here has given them to
        self.protocol = CustodyProtocol(
            self.holdings, self.book, sites=disk.sites, now=lambda: moment(world.clock), nonce=world.nonce
        )
        self.ledger_end = 0
        self.positions: dict[str, LogPosition | None] = {}  # ends of the logs, as this bridge knows them
        self.stopped: set[str] = set()  # logs that accept no append until the bridge adopts, checks or opens them anew
        self.memories: dict[str, Memory] = {}
        self.looked: dict[str, int] = {}  # own term in which the bridge searched for a log's strays anew
        self.waiting: dict[str, list[Transfer]] = {}

    def _trusts(self, strays: str, log: str) -> bool:
        """Return whether strays may be appended to a log: a ship's only if the ship was once given the log."""
        keeper = strays.removeprefix("strays.")
        return keeper in PORTS or (log, keeper) in self.given

    def holds(self, log: str) -> bool:
        return self.holdings.state(log) is CustodyState.HELD

    def copy(self, log: str) -> Copy:
        return self.disk.copies[log]

    def memory(self, log: str) -> Memory:
        if log not in self.memories:
            self.memories[log] = Memory(self.copy(log))
        return self.memories[log]

    # -- notifications to the bridge

    def catch_up(self) -> bool:
        raise NotImplementedError

    def lose(self, log: str) -> None:
        raise NotImplementedError

    # -- appends from the queues

    def append(self, log: str, body: MessageId, origin: str) -> None:
        """Append one reading, or raise ``Refused``."""
        position = self.positions.get(log)
        if log in self.stopped or position is None or position.term != self.holdings.term(log):
            raise Refused("stopped")
        memory = self.memory(log)
        late = memory.repeats.is_late(body)
        record = Rec(position.term, position.end - position.marker, body, late, origin)
        self.world.append(self.disk, log, record)
        self.positions[log] = position._replace(end=position.end + 1)
        memory.repeats.add(body, late=late)

    def is_overtaken(self) -> bool:
        """Return whether another bridge of the site has kept strays: this one stops when it keeps its next."""
        return len(self.disk.strays[self.site]) != self.strays.index.end

    def keep(self, stray: Stray) -> Pauses:
        """Keep a reading or an event of a log that this site does not hold."""
        body, own = stray.body, self.disk.strays[self.site]
        if isinstance(body, MessageId):
            if self.strays.index.check((stray.log, body)) is DedupResult.REPEAT:
                return
        elif body in self.waiting.get(stray.log, ()):
            return
        if self.is_overtaken():
            raise Died("another bridge keeps strays here")
        own.append(stray)
        self.disk.kept.add(stray)
        self.world.changes += 1
        if isinstance(body, MessageId):
            self.strays.index.add(stray.log, len(own) - 1, body)
        else:
            self.waiting.setdefault(stray.log, []).append(body)
            self.strays.index.end = len(own)
        yield

    def prepare(self, log: str) -> Pauses:
        """Prepare for an append: find strays that a seizure has put back, and append everything that waits."""
        if not self.holds(log):
            return
        if self.is_troubled():
            self.lose(log)
            return
        term = self.holdings.term(log)
        if self.looked.get(log) != term:
            yield from self.drive(self.protocol.look_again(log))
            self.looked[log] = term
        if self.book.has_any_for(log):
            yield from self.drive(self.protocol.drain([log]))

    # -- actions of the protocol

    def drive(self, steps: Steps[T]) -> Generator[None, None, T]:
        """Carry out a procedure; the generator returns the procedure's result."""
        outcome: object = None
        error: Exception | None = None
        while True:
            try:
                action = steps.send(outcome) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome, error = None, None
            try:
                outcome = yield from self._carry_out(action)
            except FairleadError as trouble:
                error = trouble
            yield

    def is_troubled(self) -> bool:
        """Return whether the broker answers the next request with a retriable error."""
        if not self.disk.trouble:
            return False
        self.disk.trouble -= 1
        self.world.changes += 1
        self.world.troubles += 1
        return True

    def _ask(self, log: str) -> None:
        if self.is_troubled():
            raise ConnectionLost("the broker restarts") if self.disk.trouble % 2 else broker_error(6, TP(log))

    def _carry_out(self, action: Action) -> Generator[None, None, Any]:
        match action:
            case CreateLog() | StoreStrays():
                pass
            case ReadLedgers():
                self.catch_up()
            case ReadPosition(log, anew):
                self._ask(log)
                return self._look(log, anew=anew)
            case AdoptTerm(log, term):
                self._ask(log)
                return self.adopt(log, term)
            case AppendMarker(marker, expected_end, hold):
                return self._append_marker(marker, expected_end, hold=hold)
            case ReadMarker(log, offset, stored):
                if not stored:
                    self._ask(log)
                records = self.copy(log).records
                body = records[offset].body if offset < len(records) else None
                return StoredMarker(body if isinstance(body, Marker) else None, b"") if body is not None else None
            case AppendEntry(entry):
                if len(self.disk.ledgers[self.site]) != self.ledger_end:
                    raise Died("another bridge writes the own ledger")
                self.disk.take_entry(self.site, entry)
                self.world.changes += 1
                self.ledger_end += 1
                if isinstance(entry, CustodyEntry):
                    self.world.entered(entry)
            case AppendEvent(event):
                self.world.changes += event.event_id not in self.disk.events
                self.disk.events.add(event.event_id)
            case PrepareLog(log):
                yield from self.prepare(log)
            case RememberLogs(offsets):
                for log in offsets:
                    self.catch_up()  # the bridge follows the ledgers while it reads a log
                    yield
                    if self.is_troubled():
                        self.lose(log)
            case CopyStrays(topic, _, offsets):
                if not all(offsets.values()):
                    raise ValueError("strays of a log are asked for that has none")
                yield from self._copy_strays(topic, {at: log for log, each in offsets.items() for at in each})
            case FindStrays(log, topic, start, end):
                yield
                return self._find_strays(log, topic, start, end)
            case ForgetLog(log):
                self.memories.pop(log, None)
            case GiveUpLog(log):
                self.lose(log)
            case FindStaleTail(log):
                self._ask(log)
                return self.stale(log)
            case KeepTail(log, start, end):
                readings = [each.body for each in self.copy(log).records[start:end] if isinstance(each.body, MessageId)]
                for reading in readings:
                    yield from self.keep(Stray(log, reading))
                return KeptTail(len(readings), self.strays.log, self.strays.index.end)
        return None

    def _look(self, log: str, *, anew: bool = False) -> LogPosition | None:
        if anew or log not in self.positions:
            self.positions[log] = self.copy(log).position()
        if anew:
            self.stopped.discard(log)
        return self.positions[log]

    def adopt(self, log: str, term: int) -> LogPosition:
        """Continue in a term whose marker is the last record; raises the same errors as the appender."""
        position = self.positions[log] = self.copy(log).position()
        if position is not None and position.term > term:
            raise Fenced(f"term {position.term} is open")
        if position is None or position.term != term or position.marker != position.end - 1:
            _, now, marker = position or (0, 0, -1)
            raise Misplaced("it does not end with that marker", term=now, marker=marker)
        self.stopped.discard(log)
        return position

    def _append_marker(self, marker: Marker, expected_end: int | None, *, hold: bool) -> int:
        log, term = marker.log, marker.term
        known = self._look(log)
        if known is not None and known.term > term:
            raise Fenced(f"term {known.term} is open")
        if expected_end is not None and expected_end != (known.end if known is not None else 0):
            raise Conflict("the log ends elsewhere")
        if marker.event == "SEIZURE" and len(self.disk.ledgers[self.site]) != self.ledger_end:
            raise Died("asleep between its last look at the ledgers and the marker: left out")
        self.world.markers[log, term] = marker
        self.positions.pop(log, None)
        try:
            offset = self.world.append(self.disk, log, Rec(term, 0, marker))
        except Refused as error:
            self.stopped.add(log)
            raise (Fenced if error.args == ("47",) else Conflict)("the marker is refused") from error
        if expected_end is not None and offset != expected_end:
            self.stopped.add(log)
            raise Misplaced("stored elsewhere", base_offset=offset)
        self.positions[log] = LogPosition(offset + 1, term, offset)
        if hold:
            self.stopped.discard(log)
        else:
            self.stopped.add(log)
        return offset

    def _copy_strays(self, topic: str, wanted: dict[int, str]) -> Pauses:
        strays = self.disk.strays[topic.removeprefix("strays.")]
        for offset, log in sorted(wanted.items()):
            body = strays[offset].body
            if not isinstance(body, MessageId) or not self.holds(log) or self.memory(log).is_repeat(body):
                continue
            try:
                self.append(log, body, f"{topic}@{offset}")
            except Refused:
                self.lose(log)
            yield

    def _find_strays(self, log: str, topic: str, start: int, end: int) -> list[KeptReading]:
        found: list[KeptReading] = []
        for offset, stray in enumerate(self.disk.strays[topic.removeprefix("strays.")][start:end], start):
            if stray.log == log and isinstance(stray.body, MessageId):
                found.append(KeptReading(offset, stray.body))
        return found

    def stale(self, log: str) -> Stale | None:
        """Return the part of the copy that a seizure has cut off."""
        seizures, copy = self.view.seizures(log), self.copy(log)
        cut = copy.stale_from([(each.term, each.marker) for each in seizures])
        if cut is None:
            return None
        return Stale(cut, len(copy.records), copy.records[-1].term, seizures[-1].term)
