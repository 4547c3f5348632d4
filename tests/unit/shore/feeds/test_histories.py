"""Feeds over small random histories: with retractions applied they hold what customers are entitled to, and no more.

The histories have bookings and their corrections, readings, alerts and custody in any order, events of boxes and their
ship, deliveries between them, some broken off. What a customer may see is worked out here record by record, along the
history of each booking; what a recipient is told, hour by hour and event by event.
"""

from __future__ import annotations

import datetime as dt
import statistics
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.feeds import followed, value_of
from tests.unit.shore.feeds.histories import BOOKED, BOXES, CUSTOMERS, LOGS, SHOP, T0, Change, Happened, Moved, World


@dataclass(frozen=True)
class Deliver:
    """A batch of the job; broken off after so many records, if not None, before anything is written down."""

    broken_after: int | None


HOURS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.builds(Happened, st.just("readings"), st.just(BOXES[0]), HOURS),
        st.builds(Happened, st.sampled_from(sorted(LOGS)), st.sampled_from(BOXES), HOURS),
        st.builds(
            Change,
            st.sampled_from(["B1", "B2"]),
            st.sampled_from(BOXES),
            st.sampled_from([*CUSTOMERS, "stranger"]),
            st.sampled_from(["CONFIRMED", "CONFIRMED", "COMPLETED", "CANCELLED"]),
            HOURS,
            st.one_of(st.none(), HOURS),
            st.sampled_from([None, "", SHOP]),
        ),
        st.builds(
            Moved, st.sampled_from(["LOAD", "DISC", "ARRI", "DEPA"]), st.sampled_from(BOXES), HOURS, st.integers(1, 2)
        ),
        st.builds(Deliver, st.one_of(st.none(), st.integers(0, 4))),
    ),
    max_size=30,
).map(lambda steps: [BOOKED, *steps])


def may_see(customer: str, box: str, hour: int, history: list[Change]) -> bool:
    """Along the history of each booking: does it give this customer this moment in the end?"""
    given: dict[str, set[str | None]] = {}
    for change in history:
        if change.box != box:
            continue
        if change.status != "CANCELLED":
            given[change.reference] = {change.customer, change.consignee} if change.covers(hour) else set()
        elif change.covers(hour):
            given[change.reference] = set()
    return any(customer in parties for parties in given.values())


def hours_of(world: World, history: list[Change]) -> list[tuple[str, int, int, float, float, float]]:
    """What the shop is told of hours: box, hour, readings, lowest, mean and highest supply air."""
    found = []
    for box in BOXES:
        times = [
            (row["device_date_time"] - T0, row["supply_temperature"])
            for row in world.tables["readings"]
            if row["equipment_reference"] == box
        ]
        for hour in range(6):
            values = [value for time, value in times if time // dt.timedelta(hours=1) == hour]
            over = any(time >= dt.timedelta(hours=hour + 1) for time, _ in times)
            if values and over and may_see(SHOP, box, hour, history):
                found.append((box, hour, len(values), min(values), statistics.fmean(values), max(values)))
    return sorted(found)


def milestones_of(moves: list[tuple[str, Moved]], history: list[Change]) -> list[tuple[str, str, str]]:
    """What the shop is told of events: box, event, code."""
    found = []
    for box in BOXES:
        loads = [move.hour for _, move in moves if move.code == "LOAD" and move.box == box]
        ends = [move.hour for _, move in moves if move.code == "DISC" and move.box == box]
        stays = [(load, min((end for end in ends if end > load), default=99)) for load in loads]
        for identity, move in moves:
            about = any(a <= move.hour <= b for a, b in stays) if move.is_ships else move.box == box
            if about and may_see(SHOP, box, move.hour, history):
                found.append((box, identity, move.code))
    return sorted(found)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_a_feed_with_retractions_applied_is_what_its_customer_is_entitled_to(steps: list[Any]) -> None:
    world = World()
    moves: list[tuple[str, Moved]] = []
    for step in steps:
        match step:
            case Happened():
                world.happened(step)
            case Moved():
                moves.append((f"e{len(world.tables['events'])}", step))
                world.moved(step)
            case Change():
                world.changed(step)
            case Deliver():
                world.deliver(step.broken_after)
    world.deliver(None)
    assert not world.due(1)
    history = [step for step in steps if isinstance(step, Change)]
    records = [(table, row["payload"]) for table in LOGS for row in world.tables[table]]
    happened = [step for table in LOGS for step in steps if isinstance(step, Happened) and step.table == table]
    stands = {customer: followed(feed) for customer, feed in world.feeds.items()}
    for customer in stands:
        kinds = ("alerts",) if customer == SHOP else tuple(LOGS)
        entitled = [
            payload
            for (table, payload), what in zip(records, happened, strict=True)
            if table in kinds and may_see(customer, what.box, what.hour, history)
        ]
        copied = [record.value or b"" for record in stands[customer] if not value_of(record)]
        assert sorted(copied) == sorted(entitled)
        if customer != SHOP:
            assert len(copied) == len(stands[customer])
    made = [value_of(record) for record in stands[SHOP]]
    told = [value for value in made if value.get("kind") == "conditions"]
    hours = hours_of(world, history)
    for said, (box, hour, *numbers) in zip(sorted(map(_hour, told)), hours, strict=True):
        assert said[:2] == (box, hour)
        assert said[2:] == pytest.approx(numbers, abs=0.00051)
    events = [value for value in made if value.get("kind") == "milestone"]
    assert sorted(map(_milestone, events)) == milestones_of(moves, history)


def _hour(value: dict[str, Any]) -> tuple[str, int, int, float, float, float]:
    begin = dt.datetime.fromisoformat(value["windowStart"])
    supply = value["supplyTemperature"]
    numbers = (supply["min"], supply["mean"], supply["max"])
    return (value["equipmentReference"], (begin - T0) // dt.timedelta(hours=1), value["readings"], *numbers)


def _milestone(value: dict[str, Any]) -> tuple[str, str, str]:
    code = value.get("equipmentEventTypeCode") or value.get("transportEventTypeCode")
    return (value["equipmentReference"], value["eventID"], str(code))
