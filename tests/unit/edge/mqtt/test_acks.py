from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.mqtt.acks import AckOrder, PendingAck


@given(st.permutations(range(12)))
def test_acknowledgements_leave_in_the_order_of_receipt(finished: list[int]) -> None:
    order = AckOrder()
    order.new_connection()
    acks = [order.received(mid) for mid in range(12)]
    sent: list[int] = []
    for count, number in enumerate(finished, 1):
        sent += order.finish(acks[number])
        assert sent == list(range(len(sent)))
        assert set(sent) <= set(finished[:count])
    assert len(sent) == 12
    assert len(order) == 0


def test_a_message_waits_for_all_its_parts() -> None:
    order = AckOrder()
    ack = order.received(1)
    ack.parts += 1
    assert order.finish(ack) == []
    assert order.finish(ack) == [1]


def test_a_ticket_of_an_earlier_connection_acknowledges_nothing() -> None:
    order = AckOrder()
    order.new_connection()
    old = order.received(1)
    order.new_connection()
    new = order.received(1)  # the same message id, another message
    assert order.finish(old) == []
    assert order.stale == 1
    assert len(order) == 1
    assert order.finish(new) == [1]


def test_messages_of_lost_connections_are_counted_until_they_are_stored() -> None:
    order = AckOrder()
    first, second, third = (order.received(mid) for mid in range(3))
    order.finish(second)  # stored, though it waits for the first
    order.new_connection()
    assert order.left_behind == 2
    order.finish(first)
    assert order.left_behind == 1
    order.new_connection()
    order.finish(third)
    assert order.left_behind == 0


class Session:
    """Acknowledges by the order, as ``edge.mqtt.session.MqttSession`` does."""

    def __init__(self) -> None:
        self.order = AckOrder(self)
        self.sent: list[int] = []

    def finish(self, ack: PendingAck) -> None:
        self.sent += self.order.finish(ack)


def test_a_finished_ticket_is_acknowledged_by_whoever_received_it() -> None:
    session = Session()
    session.order.new_connection()
    first, second = session.order.received(1), session.order.received(2)
    second.finish()
    assert session.sent == []
    first.finish()
    assert session.sent == [1, 2]


def test_a_ticket_that_nobody_owns_can_be_finished() -> None:
    order = AckOrder()
    ack = order.received(1)
    ack.finish()
    assert order.head is ack
