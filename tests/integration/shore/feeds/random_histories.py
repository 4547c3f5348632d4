"""Random histories: with retractions applied, a feed holds exactly what its customer is entitled to.

A history mixes bookings and their corrections, readings, alerts of sites and of shore, custody, digests, and events of
boxes and their ship in any order, with deliveries between them, some interrupted. This module computes what a customer
may see record by record from the history of each booking, and what a recipient gets hour by hour and event by event.
"""

from __future__ import annotations

import datetime as dt
import random
import statistics
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.shore.feeds.scenarios import LOGS, T0, Play, Scenario, World, hours
from tests.support.feeds import followed, value_of

CUSTOMERS = ("ducks", "toyshop")
SHOP = "shop"  # recipient of goods, with a coarse feed


@dataclass(frozen=True)
class Change:
    """A change of a booking of a box."""

    reference: str
    box: int
    customer: str
    status: str
    begin: int
    end: int | None
    consignee: str | None

    def covers(self, hour: int) -> bool:
        return self.begin <= hour and (self.end is None or hour < self.end)


def random_history(seed: int, *, steps: int = 22, deliveries: int = 2) -> Scenario:
    """Return a scenario of so many steps, with deliveries among them and a complete one at the end."""
    rng = random.Random(seed)  # noqa: S311  # a simulation
    stops = set(rng.sample(range(1, steps), deliveries))

    def play(world: World) -> Play:
        for name in CUSTOMERS:
            world.reader(name)
        world.reader(SHOP, "coarse")
        history: list[Change] = []
        happened: list[tuple[str, int, int, bytes]] = []
        moves: list[tuple[str, str, int, int]] = []
        at_sea: list[tuple[int, float]] = []
        ashore: list[tuple[int, int, int, int]] = []
        known: set[tuple[int, int]] = set()

        def book(change: Change) -> None:
            history.append(change)
            world.booked(
                change.begin,
                change.end,
                change.customer,
                box=change.box,
                reference=change.reference,
                status=change.status,
                consignee=change.consignee,
            )

        book(Change("B1", 0, "ducks", "CONFIRMED", 0, None, SHOP))
        for step in range(steps):
            if step in stops:
                world.broken_after = rng.choice([None, None, 0, 2, 4])
                yield "batch"
            box, hour = rng.choice([0, 0, 1]), rng.randrange(6)
            match rng.choices(["reading", "record", "change", "move", "digest", "alert"], [4, 3, 3, 3, 2, 2])[0]:
                case "change":
                    statuses = ["CONFIRMED", "CONFIRMED", "COMPLETED", "CANCELLED"]
                    to, status = rng.choice([*CUSTOMERS, "stranger"]), rng.choice(statuses)
                    end, consignee = rng.choice([None, rng.randrange(6)]), rng.choice([None, "", SHOP])
                    book(Change(rng.choice(["B1", "B2"]), box, to, status, hour, end, consignee))
                case "move":
                    code, identity = rng.choice(["LOAD", "DISC", "ARRI", "DEPA"]), f"e{step}"
                    world.moved(identity, code, hour, box, copies=rng.choice([1, 2]))
                    moves.append((identity, code, box, hour))
                case "digest":
                    heard = hour + rng.randrange(60) / 60
                    world.digest(heard + rng.choice([0, 0.25]), {box: heard})
                    at_sea.append((box, heard))
                case "alert":
                    alert = rng.randrange(2)
                    revision = sum(1 for each in ashore if each[:2] == (box, alert))
                    condition = world.found(hour + 0.5, box, alert, revision)
                    ashore.append((box, alert, revision, hour))
                    if rng.random() < 0.3:
                        row = world.happened("alerts", hour + 0.5, box, alert_id=condition)
                        happened.append(("alerts", box, hour, row["payload"]))
                        known.add((box, alert))
                case what:
                    table = "readings" if what == "reading" else rng.choice(sorted(LOGS))
                    minute = rng.randrange(60)
                    row = world.happened(table, hour + minute / 60, box)
                    happened.append((table, box, hour, row["payload"]))
        yield "batch"
        yield "batch"  # completes the one before if that was interrupted
        assert not any((yield "everything").values())
        check(world, history, happened, moves)
        for name in (*CUSTOMERS, SHOP):
            records = [value_of(record) for record in followed(world.feed(name))]
            digests = sorted(
                (v["equipmentReference"], v["readingDateTime"]) for v in records if v.get("kind") == "digest"
            )
            assert digests == ([] if name == SHOP else _digests(world, at_sea, name, history))
            alerts = sorted((v["alertID"], v["eventDateTime"]) for v in records if "alertID" in v)
            assert alerts == _alerts(world, ashore, known, name, history)

    return play


def may_see(customer: str, box: int, hour: int, history: list[Change]) -> bool:
    """Return whether the box's bookings, after all changes, let this customer see this hour."""
    given: dict[str, set[str | None]] = {}
    for change in history:
        if change.box != box:
            continue
        if change.status != "CANCELLED":
            given[change.reference] = {change.customer, change.consignee} if change.covers(hour) else set()
        elif change.covers(hour):
            given[change.reference] = set()
    return any(customer in parties for parties in given.values())


def check(
    world: World,
    history: list[Change],
    happened: list[tuple[str, int, int, bytes]],
    moves: list[tuple[str, str, int, int]],
) -> None:
    stands = {name: followed(world.feed(name)) for name in (*CUSTOMERS, SHOP)}
    for name, records in stands.items():
        kinds = ("alerts",) if name == SHOP else tuple(LOGS)
        entitled = [
            payload for table, box, hour, payload in happened if table in kinds and may_see(name, box, hour, history)
        ]
        copied = [record.value or b"" for record in records if not value_of(record)]
        assert sorted(copied) == sorted(entitled)
        made = [value_of(record) for record in records if value_of(record)]
        assert name == SHOP or all("alertID" in value or value["kind"] == "digest" for value in made)
    made = [value_of(record) for record in stands[SHOP]]
    conditions = sorted(_hour(value) for value in made if value.get("kind") == "conditions")
    for said, (box, hour, *numbers) in zip(conditions, _hours(world, history), strict=True):
        assert said[:2] == (box, hour)
        assert said[2:] == pytest.approx(numbers, abs=0.00051)
    milestones = sorted(_milestone(value) for value in made if value.get("kind") == "milestone")
    assert milestones == _milestones(world, moves, history)


def _hours(world: World, history: list[Change]) -> list[tuple[str, int, int, float, float, float]]:
    """Return the hours that the shop must get: box, hour, readings, lowest, mean and highest supply air."""
    found = []
    for box in (0, 1):
        times = [
            (row["device_date_time"] - T0, row["supply_temperature"])
            for row in world.tables["readings"]
            if row["equipment_reference"] == world.box(box)
        ]
        for hour in range(6):
            values = [value for time, value in times if time // dt.timedelta(hours=1) == hour]
            over = any(time >= dt.timedelta(hours=hour + 1) for time, _ in times)
            if values and over and may_see(SHOP, box, hour, history):
                found.append((world.box(box), hour, len(values), min(values), statistics.fmean(values), max(values)))
    return sorted(found)


def _digests(
    world: World, at_sea: list[tuple[int, float]], customer: str, history: list[Change]
) -> list[tuple[str, str]]:
    """Return the digests that a customer must have: box and the time of the reading."""
    found = []
    for box in (0, 1):
        heard = [hour for which, hour in at_sea if which == box and may_see(customer, box, int(hour), history)]
        read = [r["device_date_time"] for r in world.tables["readings"] if r["equipment_reference"] == world.box(box)]
        if heard and not any(time >= hours(max(heard)) for time in read):
            found.append((world.box(box), json_time(hours(max(heard)))))
    return sorted(found)


def _alerts(
    world: World,
    ashore: list[tuple[int, int, int, int]],
    known: set[tuple[int, int]],
    customer: str,
    history: list[Change],
) -> list[tuple[str, str]]:
    """Return the alerts of shore that a customer must have: id, and the time of the newest state that it may see."""
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    for box, alert, revision, hour in ashore:
        if (box, alert) not in known and may_see(customer, box, hour, history):
            newest[box, alert] = max(newest.get((box, alert), (revision, hour)), (revision, hour))
    return sorted(
        (f"POWER_LOST.{world.box(box)}@{alert}", json_time(hours(hour + 0.5)))
        for (box, alert), (_, hour) in newest.items()
    )


def json_time(time: dt.datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _milestones(
    world: World, moves: list[tuple[str, str, int, int]], history: list[Change]
) -> list[tuple[str, str, str]]:
    """Return the milestones that the shop must get: box, event, code."""
    found = []
    for box in (0, 1):
        loads = [hour for _, code, which, hour in moves if code == "LOAD" and which == box]
        ends = [hour for _, code, which, hour in moves if code == "DISC" and which == box]
        stays = [(load, min((end for end in ends if end > load), default=99)) for load in loads]
        for identity, code, which, hour in moves:
            of_ship = code in ("ARRI", "DEPA")
            about = any(a <= hour <= b for a, b in stays) if of_ship else which == box
            if about and may_see(SHOP, box, hour, history):
                found.append((world.box(box), f"{identity}.{world.number}", code))
    return sorted(found)


def _hour(value: dict[str, Any]) -> tuple[str, int, int, float, float, float]:
    begin = dt.datetime.fromisoformat(value["windowStart"])
    supply = value["supplyTemperature"]
    numbers = (supply["min"], supply["mean"], supply["max"])
    return (value["equipmentReference"], (begin - T0) // dt.timedelta(hours=1), value["readings"], *numbers)


def _milestone(value: dict[str, Any]) -> tuple[str, str, str]:
    code = value.get("equipmentEventTypeCode") or value.get("transportEventTypeCode")
    return (value["equipmentReference"], value["eventID"], str(code))
