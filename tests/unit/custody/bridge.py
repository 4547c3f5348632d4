"""One running bridge of the model: lanes, strays, drains. Every ``yield`` is a place where it may crash or be paused.

It mirrors ``edge.bridge`` with the real ``CustodyView``, ``Holdings``, ``StrayIndex`` and ``Repeats``.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from edge.holdings import Custody
from edge.messages import Identity
from edge.strays import StrayIndex
from fairlead.custody import Grant, SplitCustodyError
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry
from tests.unit.custody.disk import Died, Disk, Message, Move, Refused, Stray, Violation
from tests.unit.custody.moves import Moves
from tests.unit.custody.store import Control, Steps, Store

if TYPE_CHECKING:
    from tests.unit.custody.model import World


class Bridge(Store):
    """What a crash makes forget, and what the bridge does with it."""

    def __init__(self, world: World, disk: Disk) -> None:
        super().__init__(world, disk)
        self.moves = Moves(self)
        self.read = dict.fromkeys(disk.sites, 0)
        self.ledger_end = 0
        self.lanes: dict[str, deque[Message | Control]] = {log: deque() for log in world.logs}
        self.tasks: dict[str, Steps] = {}
        self.queued: set[str] = set()  # controls that are in a lane already, by name
        self.starting: Steps | None = self._start()

    # -- being run

    def run(self, choice: int, steps: int) -> bool:
        """Do something; False when there was nothing to do or the bridge died doing it."""
        try:
            if self.starting is not None:
                return self._advance_start(steps)
            logs = self.world.logs
            for turn in range(len(logs) + 2):
                what = (choice + turn) % (len(logs) + 2)
                if what == 0 and self._deliver(steps):
                    return True
                if what == 1 and self._follow():
                    return True
                if what >= 2 and self._advance(logs[what - 2], steps):
                    return True
        except Died:
            self.world.died(self)
        return False

    def _advance_start(self, steps: int) -> bool:
        for _ in range(steps):
            if self.starting is not None and next(self.starting, self) is self:
                self.starting = None
                self.world.connected(self)
        return True

    def _advance(self, log: str, steps: int) -> bool:
        task = self.tasks.get(log)
        if task is None:
            if not self.lanes[log]:
                return False
            task = self.tasks[log] = self._lane(log)
        for _ in range(steps):
            if next(task, self) is self:
                del self.tasks[log]
                break
        return True

    def _deliver(self, count: int) -> bool:
        if self.disk not in self.world.sessions or self.world.sessions[self.disk] is not self:
            return False
        new = [message for message in self.disk.queue if not message.delivered][:count]
        self.world.changes += len(new)
        for message in new:
            message.delivered = True
            self.lanes[message.log].append(message)
            if self.faults.acknowledges_first and isinstance(message.body, Identity):
                self.world.acknowledge(self, message)
        return bool(new)

    def control(self, log: str, name: str, what: Control) -> bool:
        """Put something into a log's lane, unless it is there already."""
        key = f"{name} {log}"
        if key in self.queued:
            return False
        self.queued.add(key)

        def run() -> Steps:
            self.queued.discard(key)
            yield from what()

        self.lanes[log].append(run)
        return True

    # -- starting

    def _start(self) -> Steps:
        yield
        for site in self.disk.sites:
            for entry in self.disk.ledgers[site]:
                self.apply(entry, at_start=True)
            self.read[site] = len(self.disk.ledgers[site])
        self.ledger_end = self.read[self.site]
        for log in self.world.logs:
            if (grant := self.view.grant(log)) is not None:
                self.holdings.news(grant)
        yield
        self.recall_strays()
        yield
        if not self.faults.no_completion:
            for log in self.world.logs:
                yield from self.moves.complete(log)
        for log in self.world.logs:
            self.moves.resume(log)

    def recall_strays(self) -> None:
        """Find the own strays that still wait: readings from where the log's marker says, events wherever they are."""
        self.index = StrayIndex()
        self.waiting = {}
        own = self.disk.strays[self.site]
        for offset, stray in enumerate(own):
            grant = self.view.grant(stray.log)
            drained = grant is not None and offset < grant.drained.get(self.site, 0)
            if isinstance(stray.body, Identity):
                if not drained:
                    self.index.add(stray.log, offset, stray.body)
            elif not self.moves.is_settled(stray.body) and not (drained and self.faults.waiting_by_drained):
                self.waiting.setdefault(stray.log, []).append(stray.body)
        self.strays_end = self.index.end = len(own)

    # -- the ledgers

    def _follow(self) -> bool:
        before = self.world.changes
        news = self.catch_up()
        for log in self.world.logs:
            news |= self.moves.look(log)
        return news or self.world.changes != before

    def catch_up(self) -> bool:
        """Take in all that the ledgers here have; True when there was news."""
        if len(self.disk.ledgers[self.site]) != self.ledger_end:
            raise Died("an entry in the own ledger that another bridge wrote")
        self.read[self.site] = self.ledger_end
        news = False
        for site, entries in self.disk.ledgers.items():
            while self.read[site] < len(entries):
                self.apply(entries[self.read[site]], at_start=False)
                self.read[site] += 1
                news = True
        return news

    def apply(self, entry: LedgerEntry, *, at_start: bool) -> None:
        if isinstance(entry, ClaimEntry):
            self.claims.learn(entry)
        if not isinstance(entry, CustodyEntry):
            return
        try:
            news = self.view.apply(entry)
        except SplitCustodyError as error:
            raise Violation(f"I5: {error}") from error
        grant = self.view.grant(entry.log)
        if not news or at_start or grant is None:
            return
        self.holdings.news(grant)
        self.learn(entry, grant)

    def learn(self, entry: CustodyEntry, grant: Grant) -> None:
        """What a log's newest entry changes in what is remembered of it."""
        if self.holdings.state(entry.log) is not Custody.HELD:
            self.unload(entry.log)
        self.progress.pop(entry.log, None)
        self.index.drained(entry.log, upto=grant.drained.get(self.site, 0))
        if entry.event == "SEIZURE" and not self.faults.strays_not_reread:
            end = self.strays_end
            self.recall_strays()
            self.strays_end = end  # what this bridge knows of is what it wrote itself

    # -- a log's lane

    def _lane(self, log: str) -> Steps:
        queue = self.lanes[log]
        while queue:
            item = queue.popleft()
            if not isinstance(item, Message):
                yield from item()
            elif isinstance(item.body, Move):
                yield from self.moves.event(item, item.body)
            else:
                yield from self._reading(item, item.body)
            if queue:
                yield

    def _reading(self, message: Message, body: Identity) -> Steps:
        log = message.log
        if self.holds(log) and self.index.has(log):
            yield from self.drain(log)
        if self.holds(log):
            if self.memory(log).is_repeat(body):
                self.world.acknowledge(self, message)
                return
            try:
                self.append(log, body, "")
                yield
                self.world.acknowledge(self, message)
                return
            except Refused:
                self.broke(log)
        if not (message.again and body in self.disk.copies[log].has):
            yield from self.keep(Stray(log, body))
        self.world.acknowledge(self, message)

    def broke(self, log: str) -> None:
        super().broke(log)
        self.control(log, "complete", partial(self.moves.complete, log))
