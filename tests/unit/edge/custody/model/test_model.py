"""Search the protocol of docs/custody.md for violations: every run of 100 steps ends with all invariants intact.

The suite makes 150 runs, the same ones each time. ``make chaos`` makes 2,000 that nobody has seen.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from edge.messages import MessageId
from fairlead.records.custody import RefusalEntry
from tests.unit.edge.custody.model import invariants
from tests.unit.edge.custody.model.bridge import Bridge
from tests.unit.edge.custody.model.disk import Message, Order
from tests.unit.edge.custody.model.machine import Custody
from tests.unit.edge.custody.model.model import World

RUNS: Final = 150
MANY_RUNS: Final = 2_000
STEPS: Final = 100


@pytest.mark.timeout(900)
@pytest.mark.parametrize("runs", [RUNS, pytest.param(MANY_RUNS, marks=pytest.mark.chaos)])
def test_the_invariants_hold_in_all_runs_of_100_steps(runs: int) -> None:
    class Searched(Custody):
        pass

    run_state_machine_as_test(
        Searched,
        settings=settings(
            max_examples=runs + runs // 10,  # Hypothesis ends some runs early
            derandomize=runs == RUNS,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert Searched.runs >= runs
    assert Searched.steps >= 0.95 * STEPS * runs, "runs were cut short"
    assert Searched.idle <= 0.05 * Searched.steps, "too many steps did nothing"


def test_a_world_left_alone_comes_to_rest_with_its_logs_open() -> None:
    """A model world without faults comes to rest with its logs open."""
    world = World(sites=4, logs=2)
    world.settle()
    invariants.check(world)
    assert [entry.event for entry in world.entries] == ["GTIN", "GTIN"]
    assert all(len(disk.copies[log].records) == 1 for disk in world.disks for log in world.logs)


def test_a_box_that_travels_takes_its_readings_along() -> None:
    """The log of a box that travels has all its readings."""
    world = World(sites=4, logs=1)
    (log,) = world.logs
    for leg in range(40):
        world.publish(leg * 8 + 4)
        if leg % 8 == 0:
            world.move((leg // 8 + 1) % 4 + 4 * (2 + 6))
        for turn in range(30):
            world.work(leg * 31 + turn)
            world.links.copy(leg * 17 + turn)
    world.settle()
    invariants.check(world)
    assert len({entry.to_site for entry in world.entries}) > 1
    assert sum(not hasattr(record.body, "nonce") for record in world.disks[0].copies[log].records) == len(
        world.published
    )


def test_a_reading_kept_elsewhere_is_drained_though_nothing_else_has_changed_since_the_log_was_prepared() -> None:
    """Reading another site's strays log alone makes the holder drain. Found by the search, in this model's bridge."""
    world = World(sites=3, logs=1)
    world.settle()
    (log,) = world.logs
    reading = MessageId(f"{log}/0", 0, 0)
    world.published.add((log, reading))
    world.disks[1].queue.append(Message(log, reading))
    keeper, holder = running(world, 1), running(world, 0)
    finish(keeper)
    world.links.all()
    holder.prepare_soon(log)
    assert holder.run(2, 50)
    finish(holder)
    assert reading in world.disks[0].copies[log].has


def test_a_seizure_whose_bridge_died_after_the_marker_is_entered_though_its_log_has_moved_since() -> None:
    """A seizure whose bridge died after writing the marker gets its ledger entry, although the log has changed since.

    Found by the search (seed 3): the next bridge refused the order as too late, and the marker had no entry.
    """
    world = World(sites=3, logs=1)
    world.settle()
    (log,) = world.logs
    giver, _, seizer = range(3)
    world.links.cut.update(world.links.pairs)
    world.order_seizure(log, seizer)
    bridge = running(world, seizer)
    while world.disks[seizer].copies[log].records[-1].term == 1:
        assert any(bridge.run(choice, 1) for choice in range(3))
    world.crash(seizer)
    world.order_grant(log, giver, to=1)
    finish(running(world, giver))
    assert [entry.event for entry in world.entries] == ["GTIN", "HAND"]
    world.links.heal()
    world.links.all()  # the grant is known where the seizure was ordered, before a bridge runs there again
    world.settle()
    invariants.check(world)
    assert [entry.event for entry in world.entries] == ["GTIN", "HAND", "SEIZURE"]


def test_a_bridge_that_slept_in_a_seizure_leaves_the_order_that_another_has_refused_meanwhile() -> None:
    """Wherever the sleeping bridge was in the seizure. Found by the search: its marker had no entry, ever."""
    asleep_before = 0
    while _sleeps_in_a_seizure(asleep_before):
        asleep_before += 1
    assert asleep_before == 5  # every pause between the order and the marker


def _sleeps_in_a_seizure(steps: int) -> bool:
    """Let a bridge sleep so many steps after it began a seizure; return False when it had done it by then."""
    giver, _, seizer = range(3)
    world, sleeper = _asleep(seizer, steps)
    (log,) = world.logs
    if (log, 17) in world.markers:
        return False
    world.order_grant(log, giver, to=1)
    for site in (giver, seizer):
        world.links.all()
        finish(running(world, site))
    assert [entry.event for entry in world.entries] == ["GTIN", "HAND"]
    finish(sleeper)
    world.settle()
    invariants.check(world)
    return True


def test_two_bridges_of_a_site_carry_out_one_seizure_wherever_either_pauses() -> None:
    """Found by the search: the second one's marker followed that of the first, which had no entry, ever."""
    for asleep_before in range(12):
        for awake in range(16):
            _seize_twice(asleep_before, awake)


def _seize_twice(asleep_before: int, awake: int) -> None:
    """Let a bridge sleep so many steps after it began a seizure, and wake up so many steps of the next bridge later."""
    giver, _, seizer = range(3)
    world, sleeper = _asleep(seizer, asleep_before)
    (log,) = world.logs
    next_bridge = running(world, seizer)
    for _ in range(awake):
        _step(next_bridge)
    finish(sleeper)
    readings = [MessageId(f"{log}/0", 0, sequence) for sequence in range(3)]
    world.published.update((log, reading) for reading in readings)
    world.disks[giver].queue += [Message(log, reading) for reading in readings]
    finish(running(world, giver))  # the holder has not heard of the seizure
    world.settle()
    invariants.check(world)
    assert {term for _, term in world.markers} == {entry.term for entry in world.entries}


def _asleep(seizer: int, steps: int) -> tuple[World, Bridge]:
    """Return a world of one log and a bridge that sleeps so many steps after it began a seizure; another starts."""
    world = World(sites=3, logs=1, restarts=False)
    world.settle()
    world.order_seizure(world.logs[0], seizer)
    sleeper = running(world, seizer)
    sleeper.run(1, 1)
    for _ in range(steps):
        sleeper.run(2, 1)
    world.zombies[seizer], world.bridges[seizer] = sleeper, Bridge(world, world.disks[seizer])
    return world, sleeper


def test_a_seizure_that_another_bridge_refused_after_its_marker_is_entered_at_the_next_start() -> None:
    """Found by the search: the order was answered, so nobody wrote the entry of the marker that was stored for it."""
    world = World(sites=3, logs=1)
    world.settle()
    (log,) = world.logs
    world.order_seizure(log, 2)
    bridge, disk = running(world, 2), world.disks[2]
    while disk.copies[log].records[-1].term == 1:
        assert any(bridge.run(choice, 1) for choice in range(3))
    disk.take_entry(disk.site, refused(disk.orders[0]))
    world.settle()
    invariants.check(world)
    assert [entry.event for entry in world.entries] == ["GTIN", "SEIZURE"]


def test_a_log_that_another_bridge_opened_without_an_entry_is_entered_by_the_one_that_runs() -> None:
    """Found by the search: only the next start wrote the entry, and the box's readings waited for it."""
    world = World(sites=3, logs=1, restarts=False)
    (log,) = world.logs
    opener = running(world, 0)
    while not opener.tasks:
        assert _step(opener)
    next_bridge = Bridge(world, world.disks[0])
    world.zombies[0], world.bridges[0] = opener, next_bridge
    while next_bridge.starting is not None:
        next_bridge.run(0, 1)
    while not opener.disk.copies[log].records:
        assert opener.run(2, 1)
    world.died(opener)
    next_bridge.positions.clear()  # as after a lost connection
    world.settle()
    invariants.check(world)
    assert [entry.event for entry in world.entries] == ["GTIN"]


def test_an_order_that_another_bridge_has_refused_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a bridge that reads the refusal and goes on: the shipped one stops only at another's grant."""
    world = World(sites=3, logs=1)
    world.settle()
    (log,) = world.logs
    world.order_seizure(log, 2)
    bridge, (order,) = running(world, 2), world.disks[2].orders
    monkeypatch.setattr(bridge, "catch_up", lambda: bridge.protocol.learn(refused(order)))
    for _ in bridge.drive(bridge.protocol.seize(order.transfer, term=order.term)):
        pass
    assert (log, 17) not in world.markers


def refused(order: Order) -> RefusalEntry:
    """The refusal of an order."""
    return RefusalEntry(
        log=order.transfer.log,
        order_id=order.transfer.event_id,
        code="RefusedError",
        reason="",
        refused_date_time=order.transfer.at,
        refused_by=order.transfer.to_site or "",
    )


def running(world: World, site: int) -> Bridge:
    """The bridge that runs at a site."""
    bridge = world.bridges[site]
    assert bridge is not None
    return bridge


def finish(bridge: Bridge) -> None:
    """Let a bridge of a world with one log work until it has nothing to do, or has died."""
    while _step(bridge):
        pass


def _step(bridge: Bridge) -> bool:
    return any(bridge.run(choice, 1) for choice in range(3))
