"""A stand-in for ``edge.mqtt.session.MqttSession`` that only keeps the order of acknowledgements."""

from __future__ import annotations

from edge.mqtt.acks import AckOrder, PendingAck


class AckSession:
    """``acknowledged`` has the message ids in the order in which their PUBACKs leave."""

    def __init__(self) -> None:
        self.order = AckOrder(self)
        self.acknowledged: list[int] = []
        self._mids = 0

    def finish(self, ack: PendingAck) -> None:
        self.acknowledged += self.order.finish(ack)

    def ack(self) -> PendingAck:
        """The ack of one more message, which is received now; message ids count from 1."""
        self._mids += 1
        return self.order.received(self._mids)
