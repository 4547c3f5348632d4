from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.acknowledging import AckSession


@given(st.permutations(range(12)))
def test_acknowledgements_leave_in_the_order_of_receipt(finished: list[int]) -> None:
    """PUBACKs are sent in the order in which messages were received."""
    session = AckSession()
    session.order.new_connection()
    acks = [session.order.received(mid) for mid in range(12)]
    for count, number in enumerate(finished, 1):
        acks[number].finish_part()
        assert session.acknowledged == list(range(len(session.acknowledged)))
        assert set(session.acknowledged) <= set(finished[:count])
    assert len(session.acknowledged) == 12
    assert len(session.order) == 0


def test_a_message_waits_for_all_its_parts() -> None:
    """A message is acknowledged only when all its parts are stored."""
    session = AckSession()
    ack = session.ack()
    ack.parts += 1
    ack.finish_part()
    assert session.acknowledged == []
    ack.finish_part()
    assert session.acknowledged == [1]


def test_a_message_of_an_earlier_connection_is_not_acknowledged() -> None:
    """A message of an earlier connection is not acknowledged."""
    session = AckSession()
    order = session.order
    order.new_connection()
    old = order.received(1)
    order.new_connection()
    new = order.received(1)  # the same message id for another message
    old.finish_part()
    assert (session.acknowledged, order.stale, len(order)) == ([], 1, 1)
    new.finish_part()
    assert session.acknowledged == [1]


def test_messages_of_lost_connections_are_counted_until_they_are_stored() -> None:
    """Messages of lost connections are counted until they are stored."""
    order = AckSession().order
    first, second, third = (order.received(mid) for mid in range(3))
    second.finish_part()  # stored, but its PUBACK waits for the first
    order.new_connection()
    assert order.left_behind == 2
    first.finish_part()
    assert order.left_behind == 1
    order.new_connection()
    third.finish_part()
    assert order.left_behind == 0
