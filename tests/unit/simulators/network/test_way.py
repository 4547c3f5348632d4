"""When what is put on a line arrives: rate, delay, jitter and loss, without sockets or clocks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators.network.way import SEGMENT, ProxyDirection


def way(**settings: float) -> ProxyDirection:
    made = ProxyDirection(chance=random.Random(7))  # noqa: S311 - no secret
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def test_bytes_take_their_time_one_after_the_other() -> None:
    line = way(rate=8000.0, delay=0.3)
    assert line.take(500, 10.0) == pytest.approx(10.8)
    assert line.take(500, 10.0) == pytest.approx(11.3)
    assert line.busy_for(10.0) == pytest.approx(0.95)
    assert line.take(0, 20.0) == pytest.approx(20.3)
    assert line.busy_for(20.0) == 0.0


@given(st.floats(0.0, 1.0), st.integers(0, 100_000))
def test_jitter_only_delays_and_never_by_more(jitter: float, size: int) -> None:
    late = way(delay=0.1, jitter=jitter).take(size, 5.0) - 5.1
    assert -1e-9 <= late <= jitter + 1e-9


def test_a_loss_costs_two_round_trips_or_a_fifth_of_a_second() -> None:
    assert way(delay=0.01).retransmission == 0.2
    line = way(delay=0.3, loss=0.01)
    late = [line.take(100, 0.0) - 0.3 for _ in range(20_000)]
    once = [each for each in late if each > 1e-9]
    assert min(once) == pytest.approx(1.2)
    assert len(once) == pytest.approx(200, rel=0.25)
    assert line.lost >= len(once)


def test_what_is_lost_again_waits_twice_as_long() -> None:
    line = way(delay=0.3, loss=0.4)
    late = {round(line.take(100, 0.0) - 0.3, 6) for _ in range(400)}
    assert {0.0, 1.2, 3.6, 8.4} <= late


def test_many_segments_are_lost_more_often_than_one() -> None:
    one, many = way(loss=0.01), way(loss=0.01)
    for _ in range(2000):
        one.take(SEGMENT, 0.0)
        many.take(10 * SEGMENT, 0.0)
    assert one.lost == pytest.approx(20, abs=15)
    assert many.lost == pytest.approx(195, abs=60)


def test_what_nobody_asked_for_does_not_happen() -> None:
    line = way()
    assert [line.take(size, 3.0) for size in (0, 1, 1 << 20)] == [3.0, 3.0, 3.0]
    assert line.lost == 0
