"""When bytes arrive at the end of a link: rate, delay, jitter and loss, without sockets or clocks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.network.proxy import SEGMENT, ProxyDirection


def direction(**settings: float) -> ProxyDirection:
    made = ProxyDirection(chance=random.Random(7))  # noqa: S311 - no secret
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def test_rate_and_delay_say_when_bytes_arrive() -> None:
    link = direction(rate=8000.0, delay=0.3)
    assert link.send(500, 10.0) == pytest.approx(10.8)
    assert link.send(500, 10.0) == pytest.approx(11.3)
    assert link.busy_for(10.0) == pytest.approx(0.95)
    assert link.send(0, 20.0) == pytest.approx(20.3)
    assert link.busy_for(20.0) == 0.0


@given(st.floats(0.0, 1.0), st.integers(0, 100_000))
def test_jitter_only_delays_and_never_by_more(jitter: float, size: int) -> None:
    late = direction(delay=0.1, jitter=jitter).send(size, 5.0) - 5.1
    assert -1e-9 <= late <= jitter + 1e-9


def test_a_loss_costs_two_round_trips_or_a_fifth_of_a_second() -> None:
    assert direction(delay=0.01).retransmission == 0.2
    link = direction(delay=0.3, loss=0.01)
    late = [link.send(100, 0.0) - 0.3 for _ in range(20_000)]
    once = [each for each in late if each > 1e-9]
    assert min(once) == pytest.approx(1.2)
    assert len(once) == pytest.approx(200, rel=0.25)
    assert link.lost >= len(once)


def test_a_second_loss_waits_twice_as_long() -> None:
    link = direction(delay=0.3, loss=0.4)
    late = {round(link.send(100, 0.0) - 0.3, 6) for _ in range(400)}
    assert {0.0, 1.2, 3.6, 8.4} <= late


def test_many_segments_are_lost_more_often_than_one() -> None:
    one, many = direction(loss=0.01), direction(loss=0.01)
    for _ in range(2000):
        one.send(SEGMENT, 0.0)
        many.send(10 * SEGMENT, 0.0)
    assert one.lost == pytest.approx(20, abs=15)
    assert many.lost == pytest.approx(195, abs=60)


def test_by_default_bytes_arrive_at_once() -> None:
    link = direction()
    assert [link.send(size, 3.0) for size in (0, 1, 1 << 20)] == [3.0, 3.0, 3.0]
    assert link.lost == 0
