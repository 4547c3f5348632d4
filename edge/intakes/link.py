"""The core's end of the socket to one intake process: what has come over it, and what may be acknowledged."""

from __future__ import annotations

import asyncio

from edge.acks import AckOrder, Ticket
from edge.intakes.frames import Confirm, Down, frame


class Link:
    """Tickets of the items of one intake process, confirmed in their order.

    Args:
        window: How many items the intake may have unconfirmed.
    """

    def __init__(self, writer: asyncio.StreamWriter, window: int) -> None:
        self._writer = writer
        self._window = window
        self._order = AckOrder(self)
        self._scheduled = False
        self._closed = False
        self.taken = 0
        self.confirmed = 0

    @property
    def outstanding(self) -> int:
        """Items that came and are not confirmed."""
        return len(self._order)

    @property
    def full(self) -> bool:
        """Whether nothing more comes until something is confirmed."""
        return len(self._order) >= self._window

    @property
    def head(self) -> Ticket | None:
        """The item that all others wait for."""
        return self._order.head

    def received(self) -> Ticket:
        """The next item has come."""
        self.taken += 1
        return self._order.received(self.taken)

    def finish(self, ticket: Ticket) -> None:
        """A part of an item is stored."""
        stored = self._order.finish(ticket)
        if stored:
            self.confirmed = stored[-1]
            if not self._scheduled and not self._closed:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._confirm)

    def send(self, message: Down) -> None:
        if not self._closed:
            self._writer.write(frame(message))

    def close(self) -> None:
        """Send what can still be confirmed, and close: the intake then acknowledges that, and ends."""
        if self._scheduled:
            self._confirm()
        self._closed = True
        self._writer.close()

    def _confirm(self) -> None:
        self._scheduled = False
        self.send(Confirm(self.confirmed))
