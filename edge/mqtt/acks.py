"""Keeps acknowledgements in the order of receipt, per connection. Pure.

MQTT requires PUBACKs in the order of the PUBLISHes, while appends to different logs end in any order. So a finished
message waits for the messages received before it. A message id is valid only on its own connection, so each ack carries
the connection's epoch. Acks of an earlier epoch are dropped, because the broker sends those messages again anyway.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Finisher(Protocol):
    """Sends the PUBACKs of the messages that it received (``edge.mqtt.session.MqttSession``), or only counts them."""

    def finish(self, ack: PendingAck) -> None:
        """Note that all parts of a message are safe in Kafka."""


class PendingAck:
    """One received message that is not yet acknowledged.

    ``parts`` is the number of records that must still be stored before the PUBACK. ``owner`` sends the PUBACK.
    """

    __slots__ = ("epoch", "mid", "owner", "parts")

    def __init__(self, epoch: int, mid: int, owner: Finisher) -> None:
        self.epoch = epoch
        self.mid = mid
        self.owner = owner
        self.parts = 1

    def finish_part(self) -> None:
        """Note that one part of the message is safe in Kafka; after the last part ``owner`` acknowledges it."""
        self.parts -= 1
        if self.parts == 0:
            self.owner.finish(self)


class WithoutPuback:
    """Counts the messages that need no PUBACK, of QoS 0 or from AIS, while they are being stored."""

    def __init__(self) -> None:
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def received(self) -> PendingAck:
        """Return the ack of one more message."""
        self._waiting += 1
        return PendingAck(0, 0, self)

    def finish(self, ack: PendingAck) -> None:
        """Note that all parts of a message are safe in Kafka."""
        self._waiting -= 1


class AckOrder:
    """The unacknowledged messages of the current connection, which ``owner`` acknowledges."""

    def __init__(self, owner: Finisher) -> None:
        self.epoch = 0
        self.stale = 0  # messages that finished after their connection was lost
        self._abandoned = 0  # messages that were not finished when their connection was lost
        self._owner = owner
        self._waiting: deque[PendingAck] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def left_behind(self) -> int:
        """How many messages of earlier connections are not finished yet, and so still take memory."""
        return self._abandoned - self.stale

    def new_connection(self) -> int:
        """Forget the acks of the last connection, and return the new epoch."""
        self.epoch += 1
        self._abandoned += sum(ack.parts > 0 for ack in self._waiting)
        self._waiting.clear()
        return self.epoch

    def received(self, mid: int) -> PendingAck:
        """Return the ack of a message that arrived on the current connection."""
        ack = PendingAck(self.epoch, mid, self._owner)
        self._waiting.append(ack)
        return ack

    def finish(self, ack: PendingAck) -> list[int]:
        """Note that all parts of a message are safe in Kafka. Returns the message ids to acknowledge now, in order."""
        if ack.epoch != self.epoch:
            self.stale += 1
            return []
        ready: list[int] = []
        while self._waiting and self._waiting[0].parts <= 0:
            ready.append(self._waiting.popleft().mid)
        return ready
