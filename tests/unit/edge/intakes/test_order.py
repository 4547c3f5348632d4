from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.intakes.order import Order
from tests.support.examples import examples
from tests.unit.edge.intakes.broker import World

seeds = st.integers(0, 2**32)
DEVICES = ("a", "b", "c", "d")


def live(world: World, steps: int, *, crashes: bool) -> None:
    """Devices publish, some readings get lost before they are published, sessions go on as they like."""
    random = world.random
    sequences = dict.fromkeys(DEVICES, 0)
    events = 0
    for _ in range(steps):
        chance = random.random()
        if chance < 0.5:
            device = random.choice(DEVICES)
            sequences[device] += random.choice((1, 1, 1, 1, 2, 5))
            world.publish(device, sequences[device])
        elif chance < 0.55:
            events += 1
            world.event(events)
        elif chance < 0.97 or not crashes:
            world.deliver(random.choice(world.names))
        elif chance < 0.99:
            world.lose(random.choice(world.names))
        else:
            world.kill_core()
    world.drain()


@settings(max_examples=examples(100))
@given(seeds, st.integers(1, 400), st.integers(1, 4), st.booleans())
def test_every_reading_goes_on_in_the_order_of_its_device(seed: int, steps: int, sessions: int, crashes: bool) -> None:
    world = World(seed, sessions, window=10_000)
    live(world, steps, crashes=crashes)
    assert len(world.order) == 0
    assert world.stored == set(world.published)  # nothing is held for ever
    assert len(world.emitted) == world.handed  # and nothing goes on twice
    assert world.order.forced + world.forced == 0
    for device in (*DEVICES, "event"):
        firsts = world.firsts(device)
        assert firsts == sorted(firsts, key=lambda message: message.number)


@settings(max_examples=examples(100))
@given(seeds, st.integers(1, 400), st.integers(2, 4))
def test_what_the_core_has_itself_overtakes_nothing(seed: int, steps: int, sessions: int) -> None:
    world = World(seed, sessions, window=10_000)
    live(world, steps, crashes=True)
    firsts = list(dict.fromkeys(world.emitted))
    for place, message in enumerate(firsts):
        if message.device == "event":
            earlier = {other for other in world.published if other.number < message.number}
            assert earlier <= set(firsts[:place])


@settings(max_examples=examples(100))
@given(seeds, st.integers(1, 400), st.integers(1, 4), st.integers(1, 8))
def test_windows_of_any_size_never_stop_it(seed: int, steps: int, sessions: int, window: int) -> None:
    """Sessions that can take no more wait for each other; all that was published goes on nevertheless."""
    world = World(seed, sessions, window=window)
    live(world, steps, crashes=True)
    assert len(world.order) == 0
    assert world.stored == set(world.published)
    assert len(world.emitted) == world.handed


def test_a_reading_that_follows_goes_on_at_once() -> None:
    out: list[int] = []
    order: Order[int] = Order(out.append)
    one, two = order.add("one"), order.add("two")
    order.reading(one, "box", 1, 7, 7, None)
    assert out == []
    assert order.wants_mark
    order.issued = 1
    order.mark(two, 1)
    order.settle(0)
    assert out == [7]
    order.reading(two, "box", 1, 9, 9, None)
    order.reading(one, "box", 1, 8, 8, None)
    assert out == [7, 8, 9]
    order.reading(one, "box", 1, 8, 8, None)  # sent again: whoever stores it knows it
    assert out == [7, 8, 9, 8]


def test_a_session_that_stays_away_is_not_waited_for() -> None:
    out: list[int] = []
    order: Order[int] = Order(out.append, patience=15)
    one, two = order.add("one"), order.add("two")
    two.away_since = 100.0
    order.reading(one, "box", 1, 7, 7, None)
    order.settle(114.9)
    assert out == []
    order.settle(115.0)
    assert out == [7]


def test_one_session_alone_needs_no_order() -> None:
    out: list[int] = []
    order: Order[int] = Order(out.append)
    one = order.add("one")
    order.reading(one, "box", 1, 7, 7, None)
    order.reading(one, "box", 1, 3, 3, None)
    order.behind(one, 99, None)
    assert out == [7, 3, 99]
    assert not order.wants_mark


def test_an_event_waits_for_readings_published_before_it_but_not_for_ever() -> None:
    out: list[str] = []
    order: Order[str] = Order(out.append)
    core, intake = order.add("core"), order.add("intake")
    order.behind(core, "event", None)
    order.issued = 1
    order.mark(core, 1)
    order.settle(0)
    assert out == []
    order.reading(intake, "box", 1, 1, "reading", None)  # the core has brought mark 1 already
    assert out == ["reading"]
    order.mark(intake, 1)
    order.settle(0)
    assert out == ["reading", "event"]
