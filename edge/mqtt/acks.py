"""Acknowledgements in the order of receipt, per connection. Pure.

MQTT asks for PUBACKs in the order of the PUBLISHes, while logs finish in any order: so a finished message waits for
those before it. A message id means something only on the connection it came on, so acks carry the connection's
epoch; an ack of an earlier one is dropped, because the broker sends that message again anyway.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Finisher(Protocol):
    """Who acknowledges the messages it has received."""

    def finish(self, ack: PendingAck) -> None:
        """One part of a message is safe in Kafka."""


class PendingAck:
    """One received message that is not yet acknowledged; ``parts`` counts what must still be stored before it may.

    ``owner`` is who received it, and None only where nobody asks.
    """

    __slots__ = ("epoch", "mid", "owner", "parts")

    def __init__(self, epoch: int, mid: int, owner: Finisher | None = None) -> None:
        self.epoch = epoch
        self.mid = mid
        self.owner = owner
        self.parts = 1

    def finish(self) -> None:
        """One part of the message is safe in Kafka; whoever received it acknowledges it after the last."""
        if self.owner is not None:
            self.owner.finish(self)


class AckOrder:
    """The unacknowledged messages of the current connection."""

    def __init__(self, owner: Finisher | None = None) -> None:
        self.epoch = 0
        self.stale = 0  # finished messages whose connection was gone
        self._abandoned = 0  # messages that were not finished when their connection was gone
        self._owner = owner
        self._waiting: deque[PendingAck] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def head(self) -> PendingAck | None:
        """The message that all others wait for."""
        return self._waiting[0] if self._waiting else None

    @property
    def left_behind(self) -> int:
        """Messages of earlier connections that are not finished yet: they still take memory."""
        return self._abandoned - self.stale

    def new_connection(self) -> int:
        """Forget the acks of the connection before; returns the new epoch."""
        self.epoch += 1
        self._abandoned += sum(ack.parts > 0 for ack in self._waiting)
        self._waiting.clear()
        return self.epoch

    def received(self, mid: int) -> PendingAck:
        """A message came in on the current connection."""
        ack = PendingAck(self.epoch, mid, self._owner)
        self._waiting.append(ack)
        return ack

    def finish(self, ack: PendingAck) -> list[int]:
        """One part of a message is safe in Kafka; returns the message ids to acknowledge now, in order."""
        ack.parts -= 1
        if ack.parts > 0:
            return []
        if ack.epoch != self.epoch:
            self.stale += 1
            return []
        ready: list[int] = []
        while self._waiting and self._waiting[0].parts <= 0:
            ready.append(self._waiting.popleft().mid)
        return ready
