from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.mqtt.acks import AckOrder
from tests.support.acknowledging import AckSession


@given(st.permutations(range(12)))
def test_acknowledgements_leave_in_the_order_of_receipt(finished: list[int]) -> None:
    """PUBACKs are sent in the order in which messages were received."""
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
    """A message is acknowledged only when all its parts are stored."""
    order = AckOrder()
    ack = order.received(1)
    ack.parts += 1
    assert order.finish(ack) == []
    assert order.finish(ack) == [1]


def test_a_message_of_an_earlier_connection_is_not_acknowledged() -> None:
    """A message of an earlier connection is not acknowledged."""
    order = AckOrder()
    order.new_connection()
    old = order.received(1)
    order.new_connection()
    new = order.received(1)  # the same message id for another message
    assert order.finish(old) == []
    assert order.stale == 1
    assert len(order) == 1
    assert order.finish(new) == [1]


def test_messages_of_lost_connections_are_counted_until_they_are_stored() -> None:
    """Messages of lost connections are counted until they are stored."""
    order = AckOrder()
    first, second, third = (order.received(mid) for mid in range(3))
    order.finish(second)  # stored, but its PUBACK waits for the first
    order.new_connection()
    assert order.left_behind == 2
    order.finish(first)
    assert order.left_behind == 1
    order.new_connection()
    order.finish(third)
    assert order.left_behind == 0


def test_a_finished_message_is_acknowledged_by_the_session_that_received_it() -> None:
    """A message is acknowledged by the session that received it."""
    session = AckSession()
    session.order.new_connection()
    first, second = session.order.received(1), session.order.received(2)
    second.finish()
    assert session.acknowledged == []
    first.finish()
    assert session.acknowledged == [1, 2]
