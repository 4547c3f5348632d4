"""Acknowledgements in the order of receipt, per connection. Pure.

MQTT asks for PUBACKs in the order of the PUBLISHes, while logs finish in any order: so a finished message waits for
those before it. A message id means something only on the connection it came on, so tickets carry the connection's
epoch; a ticket of an earlier one is dropped, because the broker sends that message again anyway.
"""

from __future__ import annotations

from collections import deque


class Ticket:
    """One received message that is not yet acknowledged; ``parts`` counts what must still be stored before it may."""

    __slots__ = ("epoch", "mid", "parts")

    def __init__(self, epoch: int, mid: int) -> None:
        self.epoch = epoch
        self.mid = mid
        self.parts = 1


class AckOrder:
    """The unacknowledged messages of the current connection."""

    def __init__(self) -> None:
        self.epoch = 0
        self.stale = 0  # finished messages whose connection was gone
        self._waiting: deque[Ticket] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def new_connection(self) -> int:
        """Forget the tickets of the connection before; returns the new epoch."""
        self.epoch += 1
        self._waiting.clear()
        return self.epoch

    def received(self, mid: int) -> Ticket:
        """A message came in on the current connection."""
        ticket = Ticket(self.epoch, mid)
        self._waiting.append(ticket)
        return ticket

    def finish(self, ticket: Ticket) -> list[int]:
        """One part of a message is safe in Kafka; returns the message ids to acknowledge now, in order."""
        ticket.parts -= 1
        if ticket.parts > 0:
            return []
        if ticket.epoch != self.epoch:
            self.stale += 1
            return []
        ready: list[int] = []
        while self._waiting and self._waiting[0].parts <= 0:
            ready.append(self._waiting.popleft().mid)
        return ready
