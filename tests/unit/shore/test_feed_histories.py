"""Feeds over small random histories: with retractions applied they hold what customers are entitled to, and no more.

The histories have bookings and their corrections, readings, alerts and custody in any order, events of boxes and their
ship, deliveries between them, some broken off. What a customer may see is worked out here record by record, along the
history of each booking; what a recipient is told, hour by hour and event by event.
"""

from __future__ import annotations

import datetime as dt
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.wire.record import Record
from shore.feeds.due import TOUCHED, look
from shore.feeds.readers import FeedReader
from shore.feeds.records import delivered, new_record
from shore.tables import TABLES
from tests.support.examples import examples
from tests.support.feeds import followed, value_of

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
CUSTOMERS = ("ducks", "toyshop")
BOXES = ("BIGU0000013", "BIGU0000029")
SHOP = "shop"  # recipient of goods, with a coarse feed
SHIP = "9074729"
READERS = (*(FeedReader(name) for name in CUSTOMERS), FeedReader(SHOP, "coarse"))
LOGS = {"readings": "containers.{box}", "alerts": "alerts.tokyo", "custody_entries": "custody.tokyo"}


@dataclass(frozen=True)
class Happened:
    """A reading, alert or grant of a box at an hour."""

    table: str
    box: str
    hour: int


@dataclass(frozen=True)
class Moved:
    """An event of a box, or of the ship, at an hour; said so many times."""

    code: str
    box: str
    hour: int
    copies: int

    @property
    def is_ships(self) -> bool:
        return self.code in ("ARRI", "DEPA")


@dataclass(frozen=True)
class Change:
    """A change of a booking for a box."""

    reference: str
    box: str
    customer: str
    status: str
    begin: int
    end: int | None
    consignee: str | None

    def covers(self, hour: int) -> bool:
        return self.begin <= hour and (self.end is None or hour < self.end)


@dataclass(frozen=True)
class Deliver:
    """A batch of the job; broken off after so many records, if not None, before anything is written down."""

    broken_after: int | None


BOOKED = Change("B1", BOXES[0], "ducks", "CONFIRMED", 0, None, SHOP)
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


@dataclass
class World:
    """Tables and feeds of one history."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    feeds: dict[str, list[Record]] = field(default_factory=lambda: {name: [] for name in (*CUSTOMERS, SHOP)})
    readers: tuple[FeedReader, ...] = READERS
    names: dict[str, pa.Table] = field(default_factory=dict)  # relations sites and owners, for movements
    touched: list[dict[str, Any]] = field(default_factory=list)  # since the last batch that came through

    def happened(self, what: Happened) -> None:
        log = LOGS[what.table].format(box=what.box)
        offset = sum(len(rows) for rows in self.tables.values())
        row: dict[str, Any] = {"log": log, "log_offset": offset, "payload": f"{log}@{offset}".encode(), "late": False}
        time = T0 + dt.timedelta(hours=what.hour, minutes=minute_of(offset))
        row |= {"device_id": "d", "boot_id": 1, "sequence": offset, "supply_temperature": supply_of(offset)}
        row |= {"device_date_time": time, "event_date_time": time, "equipment_reference": what.box}
        row |= {"entry_type": "grant", "entry_log": f"containers.{what.box}"}
        self.tables[what.table].append(row)
        self.touched.append({"equipment_reference": what.box, "log": log, "first_offset": offset})

    def moved(self, what: Moved) -> None:
        identity = f"e{len(self.tables['events'])}"
        for copy in range(what.copies):
            offset = len(self.tables["events"])
            row: dict[str, Any] = {"log": "events.tokyo", "log_offset": offset, "event_id": identity}
            row |= {"event_date_time": T0 + dt.timedelta(hours=what.hour), "vessel_imo_number": SHIP}
            row |= {"event_created_date_time": T0 + dt.timedelta(days=1 + copy), "publisher": f"site {copy}"}
            kind = "transport" if what.is_ships else "equipment"
            row |= {f"{kind}_event_type_code": what.code}
            row |= {} if what.is_ships else {"equipment_reference": what.box}
            self.tables["events"].append(row)
            for box in BOXES if what.is_ships else (what.box,):
                self.touched.append({"equipment_reference": box, "log": "events.tokyo", "first_offset": offset})

    def changed(self, change: Change) -> None:
        self.tables["booking_changes"].append(
            {
                "log": "bookings.hq",
                "log_offset": len(self.tables["booking_changes"]),
                "booking_reference": change.reference,
                "customer": change.customer,
                "consignee": change.consignee,
                "equipment_reference": change.box,
                "status": change.status,
                "valid_from": T0 + dt.timedelta(hours=change.begin),
                "valid_to": None if change.end is None else T0 + dt.timedelta(hours=change.end),
            }
        )
        self.touched.append({"equipment_reference": change.box, "log": None, "first_offset": None})

    def deliver(self, broken_after: int | None, limit: int = 3) -> None:
        """What ``shore.jobs.feeds.deliver`` does, with feeds that are lists."""
        left = broken_after
        while True:
            rows = self.due(limit)
            for row in rows:
                if left == 0:
                    return
                new = new_record(row)
                feed = self.feeds[row["customer"]]
                feed.append(Record(len(feed), new.timestamp_ms, new.key, new.value, new.headers))
                left = None if left is None else left - 1
            if len(rows) < limit:
                break
        if left is None:
            self.touched.clear()

    def due(self, limit: int) -> list[dict[str, Any]]:
        touched = pa.Table.from_pylist(self.touched, schema=TOUCHED)
        with look(self.readers, touched) as due:
            due.boxes(self._dataset("booking_changes"))
            feeds = pa.concat_tables([delivered(name, records) for name, records in self.feeds.items()])
            relations = (
                {name: self._dataset(name) for name in (*LOGS, "events")} | {"feeds": pads.dataset(feeds)} | self.names
            )
            found: list[dict[str, Any]] = due.rows(relations, limit=limit).to_pylist()
            return found

    def _dataset(self, name: str) -> pads.Dataset:
        return pads.dataset(pa.Table.from_pylist(self.tables[name], schema=TABLES[name].plain_schema))


def minute_of(offset: int) -> int:
    return offset * 7 % 60


def supply_of(offset: int) -> float:
    return offset * 13 % 40 / 10


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
