"""Where everything that comes to the core meets: put into order, given to ``edge.intake``, and the marks for that."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from hashlib import sha256

from edge.acks import Ticket
from edge.intake import DROPPED, Intake
from edge.intakes.copies import Copies
from edge.intakes.frames import Item, MarkItem, NothingItem, ReadingItem, RefusedItem
from edge.intakes.names import is_own, shares
from edge.intakes.order import Order, Source
from edge.intakes.sorting import Sorter
from edge.messages import Identity, Reason, Rejected
from edge.mqtt import Delivery

_AGAIN = 1.0  # seconds: a mark that has not come by then is followed by another; a broker that is killed forgets some
_PAUSE = 0.005  # seconds between two marks, at least
_LOOK = 0.05  # seconds between looks while something is held

_Reading = tuple[ReadingItem, Ticket | None]


class Hub:
    """The core's side of the way in, when there is more than one session.

    Args:
        publish: Publishes a mark; False where that is not possible now.
    """

    def __init__(self, intake: Intake, sorter: Sorter, marks_topic: str, publish: Callable[[str, bytes], bool]) -> None:
        self._intake = intake
        self._sort = sorter.sort
        self._marks = marks_topic
        self._publish = publish
        self._run = secrets.token_hex(8)  # marks of an earlier run may still be queued somewhere
        self._issued_at = 0.0
        self._wanted = asyncio.Event()
        self._moved = asyncio.Event()
        self._paused = False
        self._copies = Copies()
        self.order: Order[_Reading | Delivery] = Order(self._emit)

    # -- what comes

    def own(self, source: Source) -> Callable[[Delivery], None]:
        """What takes the messages of a session of this process."""

        def take(delivery: Delivery) -> None:
            if self._paused:
                return
            if delivery.topic == DROPPED:
                self._intake.take(delivery)
            elif is_own(delivery.topic):
                self.order.behind(source, delivery, delivery.ticket)
                self._settle()
            else:
                now = time.time_ns() // 1_000_000
                item = self._sort(delivery.topic, delivery.payload, delivery.redelivered, now)
                self._take(source, item, delivery.ticket)
                self._settle()

        return take

    def drained(self, source: Source) -> Callable[[Delivery], None]:
        """What takes the messages of a session that is being emptied: the core has its own topics itself."""
        take = self.own(source)

        def take_some(delivery: Delivery) -> None:
            if not is_own(delivery.topic):
                take(delivery)
            elif delivery.ticket is not None:
                delivery.ticket.finish()

        return take_some

    def items(self, source: Source, items: list[Item], received: Callable[[], Ticket]) -> None:
        """A frame of an intake process. ``received`` gives the ticket of each item."""
        if self._paused:
            return
        for item in items:
            self._take(source, item, received())
        self._settle()

    def pause(self) -> None:
        """Take nothing more; what is held stays unacknowledged and comes again."""
        self._paused = True

    def changed(self, source: Source, *, connected: bool) -> None:
        """A session is connected and subscribed, or is not any more."""
        source.away_since = None if connected else time.monotonic()
        if connected:
            self._issued_at = 0.0  # it may have missed the mark that is waited for
            self._wanted.set()

    # -- marks

    def issue(self) -> int:
        """Publish a mark; its number. It may be lost, then a later one does."""
        order = self.order
        number = order.issued + 1
        if self._publish(self._marks, f"{self._run}:{number}".encode()):
            order.issued = number
            self._issued_at = time.monotonic()
        return number

    async def passed(self, *sources: Source, alive: Callable[[], bool] = lambda: True) -> bool:
        """Wait until what was published before now has come through these sessions; False when ``alive`` ends."""
        number = self.issue()
        while alive():
            if all(source.passed >= number for source in sources):
                return True
            self._moved.clear()
            try:
                await asyncio.wait_for(self._moved.wait(), _AGAIN)
            except TimeoutError:
                self.issue()
        return False

    async def run(self) -> None:
        """Publish marks while they are needed; until cancelled."""
        while True:
            if not len(self.order):
                self._wanted.clear()
                await self._wanted.wait()
            since = time.monotonic() - self._issued_at
            if since >= _PAUSE and (self.order.wants_mark or since >= _AGAIN):
                self.issue()
            self.order.settle(time.monotonic())
            await asyncio.sleep(_PAUSE if self.order.wants_mark else _LOOK)

    # -- inside

    def _take(self, source: Source, item: Item, ticket: Ticket | None) -> None:
        match item:
            case ReadingItem():
                key = (item.log, item.device)
                self.order.reading(source, key, item.boot, item.sequence, (item, ticket), ticket)
            case MarkItem():
                run, _, number = item.text.partition(b":")
                if run == self._run.encode():
                    self.order.mark(source, int(number))
                    self._moved.set()
                if ticket is not None:
                    ticket.finish()
            case RefusedItem():
                rejected = Rejected(Reason(item.reason), item.detail)
                way = "intakes" if shares(source.name) else source.name
                copy = self._copies.is_copy(way, (item.topic, sha256(item.payload).digest()))
                again = copy or item.redelivered
                self._intake.refuse_checked(rejected, item.topic, item.payload, item.received_ms, again, ticket)
            case NothingItem():
                if ticket is not None:
                    ticket.finish()

    def _settle(self) -> None:
        if len(self.order):
            now = time.monotonic()
            self.order.settle(now)
            if self.order.wants_mark and now - self._issued_at >= _PAUSE:
                self.issue()
            self._wanted.set()

    def _emit(self, item: _Reading | Delivery) -> None:
        if isinstance(item, Delivery):
            self._intake.take(item)
            return
        reading, ticket = item
        self._intake.take_checked(
            reading.log,
            reading.number,
            Identity(reading.device, reading.boot, reading.sequence),
            reading.device_ms,
            reading.received_ms,
            reading.payload,
            reading.redelivered,
            ticket,
        )
