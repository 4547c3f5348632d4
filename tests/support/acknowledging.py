"""A stand-in for ``edge.mqtt.session.MqttSession`` that only records the order of acknowledgements."""

from __future__ import annotations

from edge.mqtt.acks import AckOrder, PendingAck


class AckSession:
    """A session that lists in ``acknowledged`` the message ids in the order in which their PUBACKs are sent."""

    def __init__(self) -> None:
        self.order = AckOrder(self)
        self.acknowledged: list[int] = []
        self._mids = 0

    def finish(self, ack: PendingAck) -> None:
        self.acknowledged += self.order.finish(ack)

    def ack(self) -> PendingAck:
        """Return the acknowledgement of one more message, which counts as received now; message ids count from 1."""
        self._mids += 1
        return self.order.received(self._mids)
