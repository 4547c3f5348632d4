"""One running bridge of the model: it starts, follows the ledgers, and works through the queues of its logs.

The shipped ``CustodyProtocol`` makes every decision about custody. Only the work around it is written a second time
here: which procedure starts when, and a queue that appends one reading at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from edge.custody.protocol import CustodyMove, EventOutcome, EventResult, Steps, Transfer, Try
from edge.errors import LostCustodyError, NotHolderError
from edge.holdings import CustodyState
from edge.messages import MessageId
from edge.strays.store import KeptReading
from fairlead.errors import FairleadError
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry
from tests.unit.edge.custody.model.disk import Died, Disk, Message, Order, Refused, Stray, Violation
from tests.unit.edge.custody.model.store import Barrier, Pauses, Store

if TYPE_CHECKING:
    from tests.unit.edge.custody.model.model import World


class Bridge(Store):
    """The memory of a bridge, which a crash erases, and the bridge's actions on it."""

    def __init__(self, world: World, disk: Disk) -> None:
        super().__init__(world, disk)
        self.read = dict.fromkeys(disk.sites, 0)
        self.queues: dict[str, deque[Message | Barrier]] = {log: deque() for log in world.logs}
        self.tasks: dict[str, Pauses] = {}
        self.queued: set[str] = set()  # names of barriers that are in a queue already
        self.tried: dict[str, int] = {}  # by barrier name, the value of ``world.changes`` when it last ended
        self.broken: set[str] = set()  # logs whose custody must be checked
        self.refused_before: list[Order] = []  # seizures that were refused before this bridge started
        self.starting: Pauses | None = self._start()

    # -- scheduling

    def run(self, choice: int, steps: int) -> bool:
        """Take a step; return False when there was nothing to do or the bridge died doing it."""
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
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"the bridge of {self.site} stops: {error!r}") from error
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
            if not self.queues[log]:
                return False
            task = self.tasks[log] = self._run_queue(log)
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
            self.queues[message.log].append(message)
        return bool(new)

    def barrier(self, log: str, name: str, what: Barrier) -> bool:
        """Put a barrier into a log's queue, unless it is there already or was tried and nothing has changed since."""
        key = f"{name} {log}"
        if key in self.queued or self.tried.get(key) == self.world.changes:
            return False
        self.queued.add(key)

        def run() -> Pauses:
            self.queued.discard(key)
            yield from what()
            self.tried[key] = self.world.changes

        self.queues[log].append(run)
        return True

    def quietly(self, steps: Callable[[], Steps[object]]) -> Pauses:
        """Carry out a procedure; on a retriable error leave it for a later attempt."""
        try:
            yield from self.drive(steps())
        except FairleadError as error:
            if not error.retriable and not isinstance(error, LostCustodyError | NotHolderError):
                raise

    # -- starting

    def _start(self) -> Pauses:
        yield
        for site in self.disk.sites:
            for entry in self.disk.ledgers[site]:
                self._take(site, entry, at_start=True)
            self.read[site] = len(self.disk.ledgers[site])
        self.ledger_end = self.read[self.site]
        self.refused_before = [
            order
            for order in self.disk.orders
            if order.transfer.event == "SEIZURE" and self.protocol.is_refused(order.transfer.event_id)
        ]
        yield
        for log in self.protocol.begin(self.world.logs):
            yield from self._complete(log)
        yield
        self._recall_own_strays()
        yield
        self._follow_strays(at_start=True)
        for log in self.book.logs():
            if self.holds(log):
                self._took_over(log)

    def _complete(self, log: str) -> Pauses:
        while True:
            try:
                self._ask(log)
                position = self.positions[log] = self.copy(log).position()
                if self.protocol.take_up(log, position) and position is not None:
                    yield from self.drive(self.protocol.complete(log, position))
                return
            except FairleadError as error:
                if not error.retriable:
                    raise
            yield

    def _recall_own_strays(self) -> None:
        for offset, stray in enumerate(self.disk.strays[self.site]):
            self.strays.index.end = offset + 1
            body = stray.body
            if isinstance(body, Transfer):
                known = body.event_id in self.disk.events
                entered = any(
                    isinstance(entry, CustodyEntry) and (entry.log, entry.event_id) == (stray.log, body.event_id)
                    for entry in self.disk.ledgers[self.site]
                )
                settled = self.protocol.is_settled(stray.log, body.event_id, body.at, known=known, entered=entered)
                if not settled and body.event_id not in self.disk.letters:
                    self.waiting.setdefault(stray.log, []).append(body)
            elif offset < (floor := self.book.floor(stray.log, self.strays.log)):
                self.strays.index.passed(stray.log, floor)
            else:
                self.strays.index.add(stray.log, offset, body)

    # -- following the ledgers

    def _follow(self) -> bool:
        before = self.world.changes
        news = self.catch_up()
        news |= self._follow_strays(at_start=False)
        for log in self.world.logs:
            news |= self._look_at(log)
        return news or self.world.changes != before

    def catch_up(self) -> bool:
        """Read all new entries of the ledgers here, its own as well; return True if there were any."""
        if len(self.disk.ledgers[self.site]) != self.ledger_end:
            raise Died("an entry in the own ledger that another bridge wrote")
        news = False
        for site, entries in self.disk.ledgers.items():
            while self.read[site] < len(entries):
                self._take(site, entries[self.read[site]], at_start=False)
                self.read[site] += 1
                news = True
        return news

    def _take(self, site: str, entry: LedgerEntry, *, at_start: bool) -> None:
        own = site == self.site
        if isinstance(entry, ClaimEntry):
            self.protocol.claims.learn(entry)
        elif isinstance(entry, CustodyEntry):
            drains = self.book.has_any_for(entry.log) and entry.log in self.tasks
            news = self.protocol.apply(entry, own=own, at_start=at_start)
            if self.protocol.splits:
                raise Violation(f"I5: {self.protocol.splits}")
            if news is not None and news.before is CustodyState.HELD and news.now is CustodyState.ELSEWHERE:
                self.memories.pop(entry.log, None)
            self.given.add((entry.log, entry.to_site))
            if not at_start:
                self.drain_soon(entry.log)
            self.world.passed_on += drains and not self.book.has_any_for(entry.log)
        if own:
            self.protocol.learn(entry)

    def _follow_strays(self, *, at_start: bool) -> bool:
        news = False
        for topic, index in self.book.indexes():
            site = topic.removeprefix("strays.")
            if site == self.site:
                continue
            for offset in range(index.end, len(self.disk.strays[site])):
                stray = self.disk.strays[site][offset]
                index.end = offset + 1
                if isinstance(stray.body, MessageId):
                    waits = self.book.learn(topic, stray.log, KeptReading(offset, stray.body))
                    if waits and not at_start:
                        self.drain_soon(stray.log)
                news = True
        return news

    # -- procedures that start each time the ledgers were followed

    def _look_at(self, log: str) -> bool:
        """Start what is due for a log: take it over, report a diverged copy, answer claims, carry out orders. Return
        True if something was started.
        """
        begun = self._take_over(log)
        stale = self.stale(log)
        if stale is not None and self.holds(log) and self.view.holder(log) == self.site:
            raise Violation(f"I5: {self.site} holds {log} in a copy that was cut off at {stale.cut}")
        if stale is not None and not self.protocol.is_returned(log, stale):
            begun |= self.barrier(log, "return", partial(self.quietly, partial(self.protocol.return_tail, log)))
        if log in self.broken:
            begun |= self.barrier(log, "recheck", partial(self._recheck, log))
        if self.protocol.claims.next(log) is not None:
            begun |= self.barrier(log, "claim", partial(self.quietly, partial(self.protocol.answer, log)))
        if self.waiting.get(log):
            begun |= self.barrier(log, "events", partial(self._retry, log))
        for order in self.disk.orders:
            if order.transfer.log == log and order.transfer.event_id not in self.disk.answered:
                begun |= self.barrier(log, order.transfer.event_id, partial(self._obey, order))
            elif order in self.refused_before and order.transfer.log == log:
                self.refused_before.remove(order)
                begun |= self.barrier(log, order.transfer.event_id, partial(self._enter, order))
        return begun

    def _take_over(self, log: str) -> bool:
        grant = self.view.grant(log)
        if grant is None or log not in self.holdings.incoming or len(self.copy(log).records) <= grant.marker:
            return False
        try:
            self._ask(log)
            held = self.protocol.adopted(grant, self.adopt(log, grant.term))
        except FairleadError as error:
            held = self.protocol.adopted(grant, error)
            if self.holdings.state(log) is CustodyState.BROKEN:
                self.broken.add(log)
        if held:
            self.world.changes += 1
            self._took_over(log)
        return held

    def _took_over(self, log: str) -> None:
        """Bring in the log's strays after it came to be held here, even if no reading comes."""
        self.memories.pop(log, None)
        self.prepare_soon(log)

    def drain_soon(self, log: str) -> None:
        """Bring in the strays that wait for a log that is held here, even if no reading comes."""
        if self.holds(log) and self.book.has_any_for(log):
            self.prepare_soon(log)

    def prepare_soon(self, log: str) -> None:
        """As the shipped bridge does: also when nothing was written since the last time, for it may have read more."""
        self.tried.pop(f"prepare {log}", None)
        self.barrier(log, "prepare", partial(self.prepare, log))

    def lose(self, log: str) -> None:
        """Note that the log cannot be appended to; its custody is checked again."""
        self.holdings.mark_broken(log)
        self.memories.pop(log, None)
        self.broken.add(log)
        self.world.changes += 1

    def _recheck(self, log: str) -> Pauses:
        try:
            held = yield from self.drive(self.protocol.recheck(log, mend=lambda _: True))
        except FairleadError as error:
            if not error.retriable:
                raise
            return
        self.broken.discard(log)
        if held:
            self._took_over(log)

    def _obey(self, order: Order) -> Pauses:
        if order.transfer.event_id in self.disk.answered:
            return
        try:
            procedure = self.protocol.carry_out_order(order.transfer, term=order.term, check=lambda: None)
            yield from self.drive(procedure)
        except FairleadError as error:
            if not error.retriable:
                raise
            return
        if order.transfer.event == "SEIZURE" and self.holds(order.transfer.log):
            self._took_over(order.transfer.log)

    def _enter(self, order: Order) -> Pauses:
        try:
            entered = yield from self.drive(self.protocol.enter_refused_seizure(order.transfer))
        except FairleadError as error:
            if not error.retriable:
                raise
            self.refused_before.append(order)
            return
        if entered:
            self._took_over(order.transfer.log)

    # -- a log's queue

    def _run_queue(self, log: str) -> Pauses:
        queue = self.queues[log]
        while queue:
            item = queue.popleft()
            if not isinstance(item, Message):
                yield from item()
            elif isinstance(item.body, Transfer):
                yield from self._event(item.body, item)
            else:
                yield from self._reading(item, item.body)
            if queue:
                yield

    def _reading(self, message: Message, body: MessageId) -> Pauses:
        log = message.log
        yield from self.prepare(log)
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
                self.lose(log)
        if not (message.again and body in self.disk.copies[log].has):
            yield from self.keep(Stray(log, body))
        self.world.acknowledge(self, message)

    def _event(self, event: Transfer, message: Message | None) -> Pauses:
        """Carry out an event that has just come by MQTT, or one that has waited."""
        log, known = event.log, event.event_id in self.disk.events
        outcome: EventOutcome = yield from self.drive(self.protocol.carry_out(event, known=known))
        if outcome.result is EventResult.WAITS:
            if message is not None:
                yield from self.keep(Stray(log, event))
        else:
            if outcome.result is EventResult.REFUSED:
                self.disk.letters.add(event.event_id)
                self.world.changes += 1
            waiting = [each for each in self.waiting.get(log, ()) if each.event_id != event.event_id]
            self.world.changes += len(waiting) != len(self.waiting.get(log, ()))
            self.waiting[log] = waiting
            if outcome.move not in (None, CustodyMove.GRANT, CustodyMove.NOTHING):
                self.drain_soon(log)
        if message is not None:
            self.world.acknowledge(self, message)

    def _retry(self, log: str) -> Pauses:
        held_up = False
        for event in tuple(self.waiting.get(log, ())):
            match self.protocol.may_try(event, held_up=held_up):
                case Try.STOP:
                    return
                case Try.LATER:
                    held_up = True
                case Try.NOW:
                    yield from self._event(event, None)
