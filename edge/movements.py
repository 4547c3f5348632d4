"""Carrying out what moves a box: equipment events, those that had to wait for custody, and orders by hand.

Each runs as a control of its log's lane: what arrived before it is stored before it begins, what arrived after waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial

from edge.acks import Ticket
from edge.boxes import BoxLane
from edge.classifier import Classifier
from edge.custodian import Custodian
from edge.errors import LostCustodyError, NotHolderError, ReplicaBehindError
from edge.lane import Control
from edge.lanes import SiteLanes
from edge.messages import EventMessage, Reason, Rejected
from edge.metrics import Metrics
from edge.patience import patiently
from edge.strays import WaitingEvent, readable
from edge.tails import Tails
from edge.transfer import Move, Transfer, of_event
from fairlead.wire.record import NewRecord

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between looks at events that wait
_AT_ONCE = 2_000

Reject = Callable[[Rejected, str, bytes, bool, Ticket | None], None]
"""Puts a message among the dead letters: why, MQTT topic, payload, whether it may have been put there, its ticket."""


class Movements:
    """Moves boxes by equipment events.

    Args:
        finish: Acknowledges a part of a message.
        reject: Where an event goes that cannot be carried out.
    """

    def __init__(
        self,
        site: str,
        lanes: SiteLanes,
        custodian: Custodian,
        metrics: Metrics,
        *,
        finish: Callable[[Ticket], None],
        reject: Reject,
    ) -> None:
        self._site = site
        self._lanes = lanes
        self._custodian = custodian
        self._metrics = metrics
        self._finish = finish
        self._reject = reject
        self._wanted = asyncio.Event()

    def take(
        self, message: EventMessage, record: NewRecord, topic: str, *, redelivered: bool, ticket: Ticket | None
    ) -> None:
        """An equipment event has come; it is acknowledged when it is carried out, or kept until it can be."""
        lane = self._lanes.box(of_event(message).log)
        lane.put(Control(partial(self._carry_out, message, record, topic, redelivered, ticket, lane)))

    async def _carry_out(
        self,
        message: EventMessage,
        record: NewRecord,
        topic: str,
        redelivered: bool,
        ticket: Ticket | None,
        lane: BoxLane,
        kept: WaitingEvent | None = None,
    ) -> None:
        """The event into the site's events first, then custody. ``kept``: where it has waited in the strays log."""
        transfer = of_event(message)
        repeated = transfer.event_id in self._lanes.event_ids
        try:
            move = await self._custodian.decide(transfer)  # a refusal must come before anything is written
            if move is not Move.WAIT:
                await self._lanes.events.append(record, transfer.event_id)
                move = await self._custodian.perform(transfer, lane)
        except (ReplicaBehindError, LostCustodyError) as error:
            log.warning("%s: %s; event %s waits", self._site, error.what, transfer.event_id)
            move = Move.WAIT
        except NotHolderError as error:
            self._lanes.strays.carried_out(lane.log, transfer.event_id)
            if repeated:  # it was carried out before, and since then the box has moved on
                self._metrics.repeats += 1
                self._done(ticket)
            else:
                log.error("%s: event %s refused: %s", self._site, transfer.event_id, error)
                self._reject(Rejected(Reason.NOT_HOLDER, error.what), topic, record.value or b"", redelivered, ticket)
            return
        if move in (Move.WAIT, Move.CLAIM):
            if kept is None:
                self._lanes.strays.keep_event(lane.log, record, transfer.event_id, transfer.at, topic, ticket)
            return
        self._lanes.strays.carried_out(lane.log, transfer.event_id)
        self._moved(move, transfer, lane)
        self._done(ticket)

    def _moved(self, move: Move, transfer: Transfer, lane: BoxLane) -> None:
        if move is Move.GRANT:
            self._metrics.grants += 1
        elif move is not Move.NOTHING:
            self._metrics.opened += 1
            if self._lanes.book.wait_for(lane.log):
                lane.put(Control(lane.prepare))  # its strays come in even when no reading follows

    def _done(self, ticket: Ticket | None) -> None:
        if ticket is not None:
            self._finish(ticket)

    # -- events that wait

    async def retry(self, classifier: Classifier, tails: Tails) -> None:
        """Carry out events that wait, as soon as custody allows it; until cancelled."""
        while True:
            topics = tuple(self._lanes.strays.events)
            for first in range(0, len(topics), _AT_ONCE):
                part = topics[first : first + _AT_ONCE]
                looking = partial(self._retry_some, part, classifier, tails)
                await patiently(looking, f"{self._site}: carrying out events that waited")
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), EVERY)

    def wake(self) -> None:
        """Custody of some log has come: look at once."""
        self._wanted.set()

    async def _retry_some(self, topics: tuple[str, ...], classifier: Classifier, tails: Tails) -> None:
        await asyncio.gather(*(self.retry_one(topic, classifier, tails) for topic in topics))

    async def retry_one(self, topic: str, classifier: Classifier, tails: Tails) -> None:
        """Carry out the events that wait for one log, in order, up to the first that must wait on. Where the box is
        outside, only its coming in passes those that wait: they are older."""
        held_up = False
        for waiting in tuple(self._lanes.strays.events.get(topic, ())):
            found = await self._read(waiting, classifier, tails)
            if found is None:
                self._lanes.strays.carried_out(topic, waiting.event_id)
                continue
            message, record, mqtt_topic = found
            move = self._planned(message)
            if move is Move.WAIT and not self._custodian.is_outside(topic):
                return
            held_up |= move is Move.WAIT
            if held_up and move in (Move.WAIT, Move.GRANT, Move.NOTHING):
                continue
            lane = self._lanes.box(topic)
            await lane.run_alone(partial(self._carry_out, message, record, mqtt_topic, True, None, lane, waiting))

    def _planned(self, message: EventMessage) -> Move | None:
        """What is to be done about an event that waits; None where it has been overtaken: carrying it out says so."""
        transfer = of_event(message)
        try:
            move = self._custodian.plan(transfer)
        except NotHolderError:
            return None
        return Move.WAIT if move is Move.CLAIM and self._custodian.has_claimed(transfer) else move

    async def _read(
        self, waiting: WaitingEvent, classifier: Classifier, tails: Tails
    ) -> tuple[EventMessage, NewRecord, str] | None:
        """An event as it was published, from the strays log; None when it cannot be read any more."""
        async for record in tails.records(self._lanes.strays.log, waiting.offset, waiting.offset + 1):
            stray = readable(record)
            if stray is None or not stray.event:
                break
            message = classifier.classify(stray.mqtt_topic, stray.payload, time.time_ns() // 1_000_000)
            if not isinstance(message, EventMessage):
                break
            published = NewRecord(stray.payload, record.key, record.headers, timestamp_ms=record.timestamp_ms)
            return message, published, stray.mqtt_topic
        where = waiting.offset, self._lanes.strays.log
        log.error("%s: the event at offset %d of %s cannot be read any more", self._site, *where)
        return None
