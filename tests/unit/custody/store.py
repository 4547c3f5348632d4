"""What a bridge of the model appends: readings to the logs that it holds, strays to its own log, and drained strays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from edge.claims import Claims
from edge.holdings import Custody, Holdings
from edge.messages import Identity
from edge.repeats import Verdict
from edge.strays import StrayIndex
from fairlead.custody import CustodyView
from tests.unit.custody.disk import Copy, Died, Disk, Move, Rec, Refused, Stray, moment
from tests.unit.custody.memory import Memory

if TYPE_CHECKING:
    from tests.unit.custody.model import World

Steps = Iterator[None]
Control = Callable[[], Steps]


class Store:
    """The memory of a bridge, and its appends."""

    def __init__(self, world: World, disk: Disk) -> None:
        self.world = world
        self.faults = world.faults
        self.disk = disk
        self.site = disk.site
        self.alive = True
        self.view = CustodyView()
        self.holdings = Holdings(self.site, self.view)
        self.claims = Claims(self.site, self.view)
        self.index = StrayIndex()
        self.positions: dict[str, tuple[int, int]] = {}  # next offset and sequence of logs held
        self.memories: dict[str, Memory] = {}
        self.progress: dict[str, dict[str, int]] = {}  # log -> strays log -> drained so far in this term
        self.waiting: dict[str, list[Move]] = {}
        self.strays_end = 0

    def holds(self, log: str) -> bool:
        return self.holdings.state(log) is Custody.HELD

    def hold(self, log: str, term: int) -> None:
        """Append to a log from now on."""
        self.unload(log)
        self.holdings.hold(log, term)
        records = self.disk.copies[log].records
        self.positions[log] = (len(records), records[-1].sequence + 1)

    def unload(self, log: str) -> None:
        self.memories.pop(log, None)
        self.positions.pop(log, None)
        self.progress.pop(log, None)

    def broke(self, log: str) -> None:
        """An append was refused for good: nothing more is appended, and the log itself tells why."""
        self.holdings.broke(log)
        self.unload(log)

    def memory(self, log: str) -> Memory:
        if log not in self.memories:
            self.memories[log] = Memory(self.disk.copies[log], self.faults)
        return self.memories[log]

    def append(self, log: str, body: Identity, origin: str) -> None:
        """Append one reading, or raise ``Refused``."""
        offset, sequence = self.positions[log]
        memory = self.memory(log)
        late = memory.is_late(body) and (bool(origin) or not self.faults.only_strays_are_late)
        record = Rec(self.holdings.term(log), sequence, body, late, origin)
        self.world.append(self.disk, log, record, offset)
        self.positions[log] = (offset + 1, sequence + 1)
        memory.add(body, late=late)

    def keep(self, stray: Stray) -> Steps:
        """Keep a reading or an event of a log that is not held here."""
        body = stray.body
        if isinstance(body, Identity) and self.index.check((stray.log, body)) is Verdict.REPEAT:
            return
        own = self.disk.strays[self.site]
        if len(own) != self.strays_end:
            raise Died("another bridge keeps strays here")
        own.append(stray)
        self.disk.kept.add(stray)
        self.world.changes += 1
        if isinstance(body, Identity):
            self.index.add(stray.log, self.strays_end, body)
        else:
            self.waiting.setdefault(stray.log, []).append(body)
        self.strays_end += 1
        yield

    def drain(self, log: str) -> Steps:
        """Bring the strays of every site that are seen here into the log, the own ones first."""
        for site in (self.site, *(each for each in self.disk.sites if each != self.site)):
            strays = self.disk.strays[site]
            end = self.strays_end if site == self.site else len(strays)  # of its own it knows what it wrote
            known = self.drained(log).get(site, 0)
            for offset in list(self.index.offsets(log)) if site == self.site else range(known, end):
                body = strays[offset].body
                if strays[offset].log != log or not isinstance(body, Identity):
                    continue
                if not self.holds(log):
                    return
                if self.memory(log).is_repeat(body):
                    continue
                try:
                    self.append(log, body, f"strays.{site}@{offset}")
                except Refused:
                    self.broke(log)
                    return
                yield
            if not self.holds(log):
                return
            self.progress.setdefault(log, {})[site] = end
            if site == self.site:
                self.index.drained(log, upto=end)

    def drained(self, log: str) -> dict[str, int]:
        """Per site, the offset in its strays log before which all of this log's strays are in it."""
        grant = self.view.grant(log)
        known = dict(grant.drained) if grant is not None else {}
        for site, end in self.progress.get(log, {}).items():
            known[site] = max(end, known.get(site, 0))
        return known

    def copy(self, log: str) -> Copy:
        return self.disk.copies[log]

    def overtaken(self, move: Move) -> bool:
        """Whether custody has moved by something that happened later."""
        grant = self.view.grant(move.log)
        return grant is not None and moment(move.at) < grant.at and not self.faults.delayed_events_count
