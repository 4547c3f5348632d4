"""Carries out whatever moves a container's log: equipment events, operators' orders, and claims of other sites.

Each runs as a barrier of its log's writer: messages that arrived earlier are stored before it begins, later ones wait.
Orders (``fairlead custody grant`` and ``seize``) come from a topic in the site's own Kafka. An order that the site's
ledger has answered, by a grant, a seizure or a refusal, is never carried out again. With a claim, another site asks for
the log of a box that left the system here and has come in there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from edge.custody.protocol import CustodyMove, EventResult, Try, of_event, of_order
from edge.custody.term_writer import TermWriter
from edge.errors import LostCustodyError, NotHolderError, ReplicaBehindError
from edge.ingest.classifier import Classifier
from edge.ingest.dead_letters import DeadLetters
from edge.logwriter.container import ContainerWriter
from edge.logwriter.follower import read_order
from edge.logwriter.retry import retry_transient
from edge.logwriter.tail_reader import TailReader
from edge.logwriter.writer import Barrier
from edge.messages import EventMessage, Rejected, RejectReason
from edge.mqtt.acks import PendingAck
from edge.strays.store import WaitingEvent, readable
from edge.writer_registry import WriterRegistry
from fairlead.errors import FairleadError, RefusedError, UnknownNameError
from fairlead.kafka.convention import received_ms, time_ms
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.names import parse_log
from fairlead.records import decoder
from fairlead.records.custody import CustodyOrder
from fairlead.waiting import wait_set
from topologies.model import InsertPoint, SiteKind, Topology

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between attempts to carry out events that wait
_AT_ONCE = 2_000

ORDERS_AT_ONCE: Final = 2_000
"""Orders that are carried out at the same time. They share requests. With 20,000 at once, each would wait for all
others at every step, so that the first answer would come with the last."""

_AGAIN: Final = 1.0  # seconds until an order that failed while a broker was away, or a claim, is tried again
_order = decoder(CustodyOrder)


class _LogTasks:
    """Runs at most one task for each log, so that logs do not wait for each other.

    Args:
        what: The name of the work in the program's log.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._running: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def start(self, topic: str, work: Callable[[], Awaitable[None]]) -> None:
        """Start work for a log, which is repeated after retriable errors; do nothing while the log has a task."""
        if topic not in self._running:
            self._running[topic] = asyncio.create_task(retry_transient(work, self._what), name=f"{self._what}: {topic}")

    async def collect(self, seconds: float) -> None:
        """Wait until all tasks have ended, for at most some seconds. Raises the error of a task that failed."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=seconds)
        for topic in [topic for topic, task in self._running.items() if task.done()]:
            self._running.pop(topic).result()

    async def cancel(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


@dataclass(slots=True, eq=False)
class _Event:
    """An equipment event to carry out. ``kept``: it is in the strays log, which acknowledges its message."""

    message: EventMessage
    record: NewRecord
    topic: str
    redelivered: bool
    ack: PendingAck | None = None
    kept: bool = False


class CustodyEventHandler:
    """Carries out equipment events: appends each to the site's events log, then moves its container's log."""

    def __init__(
        self,
        classifier: Classifier,
        tails: TailReader,
        writers: WriterRegistry,
        term_writer: TermWriter,
        dead_letters: DeadLetters,
    ) -> None:
        self._site = classifier.site
        self._classifier = classifier
        self._tails = tails
        self._writers = writers
        self._term_writer = term_writer
        self._metrics = writers.metrics
        self._dead_letters = dead_letters
        self._told: dict[str, str] = {}  # by event id: the reason for waiting that was logged last

    def handle_event(
        self, message: EventMessage, record: NewRecord, topic: str, *, redelivered: bool, ack: PendingAck | None
    ) -> None:
        """Enqueue an equipment event. Its message is acknowledged once it is carried out, or kept in the strays log."""
        writer = self._writers.box(of_event(message).log)
        event = _Event(message, record, topic, redelivered, ack)
        writer.enqueue(Barrier(partial(self._carry_out, event, writer), partial(self._keep_event, event, writer)))

    async def _carry_out(self, event: _Event, writer: ContainerWriter) -> None:
        """Append the event to the site's events log, then move custody; keep the event if it must wait."""
        transfer = of_event(event.message)
        repeated = transfer.event_id in self._writers.event_ids
        append = partial(self._writers.events.append, event.record, transfer.event_id)
        procedure = self._term_writer.protocol.carry_out(transfer, known=repeated)
        outcome = await self._term_writer.run(procedure, append_event=append)
        if outcome.result is EventResult.WAITS:
            why = outcome.error.what if outcome.error is not None else None
            if why is not None and self._told.get(transfer.event_id) != why:
                self._told[transfer.event_id] = why
                log.warning("%s: %s; event %s waits", self._site, why, transfer.event_id)
            self._keep_event(event, writer)
            return
        self._told.pop(transfer.event_id, None)
        self._writers.strays.carried_out(writer.log, transfer.event_id)
        match outcome.result:
            case EventResult.REFUSED:
                log.error("%s: event %s refused: %s", self._site, transfer.event_id, outcome.error)
                detail = outcome.error.what if outcome.error is not None else ""
                rejected, payload = Rejected(RejectReason.NOT_HOLDER, detail), event.record.value or b""
                now_ms, came_ms = time.time_ns() // 1_000_000, received_ms(event.record)
                self._dead_letters.reject(
                    rejected, event.topic, payload, event.redelivered, event.ack, now_ms, received_ms=came_ms
                )
                return
            case EventResult.REPEATED:
                self._metrics.repeats += 1
            case EventResult.DONE:
                self._moved(outcome.move, writer)
        if event.ack is not None:
            event.ack.finish_part()

    def _keep_event(self, event: _Event, writer: ContainerWriter) -> None:
        """Keep an event in the strays log until it is carried out, which lets its message be acknowledged."""
        if event.kept:
            return
        transfer = of_event(event.message)
        self._writers.strays.keep_event(
            writer.log, event.record, transfer.event_id, transfer.at, event.topic, event.ack
        )
        event.ack, event.kept = None, True

    def _moved(self, move: CustodyMove | None, writer: ContainerWriter) -> None:
        if move is CustodyMove.GRANT:
            self._metrics.grants += 1
        elif move is not CustodyMove.NOTHING:
            self._metrics.opened += 1
            self._writers.drain_soon(writer.log)

    # -- events that wait

    async def retry_waiting(self) -> None:
        """Carry out waiting events as soon as custody allows it, until cancelled. Logs do not wait for each other."""
        tasks = _LogTasks(f"{self._site}: carrying out events that waited")
        try:
            while True:
                self._writers.strays.events_due.clear()
                topics = tuple(self._writers.strays.events)
                for first in range(0, len(topics), _AT_ONCE):
                    for topic in topics[first : first + _AT_ONCE]:
                        if not self._writers.box(topic).blocked:
                            tasks.start(topic, partial(self.retry_one, topic))
                    await tasks.collect(EVERY)
                await wait_set(self._writers.strays.events_due, EVERY)
        finally:
            await tasks.cancel()

    async def retry_one(self, topic: str) -> None:
        """Carry out the waiting events of one log, in order, until ``may_try`` says to stop."""
        held_up = False
        for waiting in tuple(self._writers.strays.events.get(topic, ())):
            found = await self._read(waiting)
            if found is None:
                self._writers.strays.carried_out(topic, waiting.event_id)
                continue
            message, record, mqtt_topic = found
            match self._term_writer.protocol.may_try(of_event(message), held_up=held_up):
                case Try.STOP:
                    return
                case Try.LATER:
                    held_up = True
                case Try.NOW:
                    writer = self._writers.box(topic)
                    event = _Event(message, record, mqtt_topic, redelivered=False, kept=True)  # refusals are recalled
                    await writer.run_alone(partial(self._carry_out, event, writer))

    async def _read(self, waiting: WaitingEvent) -> tuple[EventMessage, NewRecord, str] | None:
        """Read an event as it was published from the strays log; None when it cannot be read any more."""
        async for record in self._tails.records(self._writers.strays.log, waiting.offset, waiting.offset + 1):
            stray = readable(record)
            if stray is None or not stray.event:
                break
            message = self._classifier.classify(stray.mqtt_topic, stray.payload, time.time_ns() // 1_000_000)
            if not isinstance(message, EventMessage):
                break
            published = NewRecord(stray.payload, record.key, record.headers, timestamp_ms=time_ms(record))
            return message, published, stray.mqtt_topic
        where = waiting.offset, self._writers.strays.log
        log.error("%s: the waiting event at offset %d of %s is no longer readable", self._site, *where)
        return None


# -- operators' orders

_OrderWork: TypeAlias = Callable[[CustodyOrder, ContainerWriter], Coroutine[Any, Any, None]]


class _Turns:
    """Starts work, ``ORDERS_AT_ONCE`` at a time, the oldest first. Whoever starts work says when it is done."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0

    def add(self, start: Callable[[], None]) -> None:
        self._waiting.append(start)
        self._start_next()

    def done(self) -> None:
        self._running -= 1
        self._start_next()

    def _start_next(self) -> None:
        """Start waiting work once half of the other work is done: what starts together shares its requests."""
        if self._running > ORDERS_AT_ONCE // 2:
            return
        while self._waiting and self._running < ORDERS_AT_ONCE:
            self._running += 1
            self._waiting.popleft()()


class OrderHandler:
    """Carries out operators' orders to one site, the oldest first.

    Seizures have turns of their own: a seizure reads all ledgers to their ends, and waits as long as one of them is
    damaged. A refused seizure, of which only the entry may be missing, reads none.
    """

    def __init__(self, topology: Topology, writers: WriterRegistry, term_writer: TermWriter) -> None:
        self._topology = topology
        self._protocol = term_writer.protocol
        self._site = term_writer.protocol.site
        self._view = term_writer.protocol.view
        self._writers = writers
        self._term_writer = term_writer
        self._metrics = writers.metrics
        self._begun: set[str] = set()  # ids of orders that were added
        self._seizures, self._others = _Turns(), _Turns()

    def add_order(self, topic: str, record: Record, _at_start: bool) -> None:
        """Carry out the order in a record of the topic of orders, if it is for this site and not answered yet."""
        order = read_order(record, _order, self._site, topic)
        if order is None:
            return
        refused = order.kind == "seize" and self._protocol.is_refused(order.order_id)
        done = order.order_id in self._begun or (self._protocol.is_answered(order.order_id) and not refused)
        if order.at_site != self._site or done:
            return
        self._begun.add(order.order_id)
        self._add(self._enter if refused else self._carry_out, order)

    def _add(self, work: _OrderWork, order: CustodyOrder) -> None:
        turns = self._seizures if order.kind == "seize" and work != self._enter else self._others
        turns.add(partial(self._start, work, order, turns))

    def _start(self, work: _OrderWork, order: CustodyOrder, turns: _Turns) -> None:
        writer = self._writers.box(order.log)
        writer.enqueue(Barrier(partial(self._run, work, order, writer, turns)))

    async def _run(self, work: _OrderWork, order: CustodyOrder, writer: ContainerWriter, turns: _Turns) -> None:
        try:
            await work(order, writer)
        finally:
            turns.done()

    async def _enter(self, order: CustodyOrder, writer: ContainerWriter) -> None:
        """Write the entry of a refused seizure whose marker another bridge of this site has stored, if there is one."""
        try:
            entered = await self._term_writer.run(self._protocol.enter_refused_seizure(of_order(order)))
        except FairleadError as error:
            self._repeat(self._enter, order, error)
            return
        if entered:
            log.warning("%s: order %s had been carried out; its entry is written now", self._site, order.order_id)
            writer.taken_over()

    async def _carry_out(self, order: CustodyOrder, writer: ContainerWriter) -> None:
        procedure = self._protocol.carry_out_order(of_order(order), term=order.term, check=partial(self._check, order))
        try:
            refusal = await self._term_writer.run(procedure)
        except FairleadError as error:
            self._repeat(self._carry_out, order, error)
            return
        if refusal is not None:
            log.warning("%s: order %s refused: %s", self._site, order.order_id, refusal)
        elif order.kind == "seize":
            self._metrics.seizures += 1
        else:
            self._metrics.grants += 1
        if order.kind == "seize" and writer.may_append():  # a refused order may have entered an earlier seizure
            writer.taken_over()

    def _repeat(self, work: _OrderWork, order: CustodyOrder, error: FairleadError) -> None:
        """Do the work again after a pause; raise the error unless it is retriable."""
        if not error.retriable:
            raise error
        log.warning("%s: order %s waits: %s", self._site, order.order_id, error)
        asyncio.get_running_loop().call_later(_AGAIN, self._add, work, order)

    def _check(self, order: CustodyOrder) -> None:
        """Check an order against the topology, whatever the state of its log.

        Raises:
            UnknownNameError: the topology does not have the receiver, or the log's stream.
            RefusedError: the log does not move, a ship would seize it from another site, or the site would grant it to
                itself.
        """
        name = parse_log(order.log)
        stream = self._topology.streams.get(name.stream) if name is not None else None
        if name is None or stream is None:
            raise UnknownNameError("log's stream", order.log, self._topology.streams)
        if stream.insert_point is not InsertPoint.MOVES:
            raise RefusedError(
                f"logs of stream {name.stream} do not move: their name decides which site appends", log=order.log
            )
        site = self._topology.sites.get(order.to_site)
        able = [each for each, spec in self._topology.sites.items() if spec.kind is not SiteKind.CUSTOMER]
        if site is None or site.kind is SiteKind.CUSTOMER:
            raise UnknownNameError("site that can hold a log", order.to_site, able)
        grant = self._view.grant(order.log)
        at_sea = self._topology.sites[self._site].kind is SiteKind.SHIP
        if order.kind == "seize" and at_sea and grant is not None and grant.to_site != self._site:
            raise RefusedError(
                f"{self._site} is a ship, and {order.log} was given to {grant.to_site}: no site would accept this",
                hint="seize it at a site ashore, then grant it to the ship",
                log=order.log,
            )
        if order.kind == "grant" and order.to_site == self._site:
            raise RefusedError(f"{self._site} cannot grant {order.log} to itself", log=order.log)


# -- claims


class ClaimResponder:
    """Grants logs to the sites that claim them from this one.

    Args:
        claimed: Set whenever a claim arrives.
    """

    def __init__(self, writers: WriterRegistry, term_writer: TermWriter, claimed: asyncio.Event) -> None:
        self._site = term_writer.protocol.site
        self._writers = writers
        self._term_writer = term_writer
        self._claims = term_writer.protocol.claims
        self._metrics = writers.metrics
        self._claimed = claimed
        self._told: dict[str, str] = {}  # by log: the reason for waiting that was logged last

    async def run(self) -> None:
        """Answer claims until cancelled. Logs do not wait for each other."""
        tasks = _LogTasks(f"{self._site}: answering claims")
        try:
            while True:
                self._claimed.clear()
                for topic in self._to_answer():
                    tasks.start(topic, partial(self._answer, self._writers.box(topic)))
                await tasks.collect(_AGAIN)
                await wait_set(self._claimed, _AGAIN if tasks.busy or self._to_answer() else None)
        finally:
            await tasks.cancel()

    def _to_answer(self) -> list[str]:
        return [topic for topic in self._claims.logs() if self._claims.next(topic) is not None]

    async def _answer(self, writer: ContainerWriter) -> None:
        async def answer_claim() -> None:
            try:
                if await self._term_writer.run(self._term_writer.protocol.answer(writer.log)):
                    self._metrics.grants += 1
            except (ReplicaBehindError, LostCustodyError, NotHolderError) as error:
                if self._told.get(writer.log) != error.what:
                    log.warning("%s: the claim to %s waits: %s", self._site, writer.log, error.what)
                self._told[writer.log] = error.what
            else:
                self._told.pop(writer.log, None)

        await writer.run_alone(answer_claim)
