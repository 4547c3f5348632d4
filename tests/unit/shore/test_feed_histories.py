"""Feeds over small random histories: with retractions applied they hold what customers are entitled to, and no more.

The histories have bookings and their corrections, readings, alerts and custody in any order, deliveries between them,
some broken off. What a customer may see is worked out here record by record, along the history of each booking.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.dataset as pads
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.wire.record import Record
from shore.feeds.due import TOUCHED, look
from shore.feeds.records import delivered, new_record
from shore.tables import TABLES
from tests.support.feeds import followed

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
CUSTOMERS = ("ducks", "toyshop")
BOXES = ("BIGU0000013", "BIGU0000029")
LOGS = {"readings": "containers.{box}", "alerts": "alerts.tokyo", "custody_entries": "custody.tokyo"}


@dataclass(frozen=True)
class Happened:
    """A reading, alert or grant of a box at an hour."""

    table: str
    box: str
    hour: int


@dataclass(frozen=True)
class Change:
    """A change of a booking for a box."""

    reference: str
    box: str
    customer: str
    status: str
    begin: int
    end: int | None

    def covers(self, hour: int) -> bool:
        return self.begin <= hour and (self.end is None or hour < self.end)


@dataclass(frozen=True)
class Deliver:
    """A batch of the job; broken off after so many records, if not None, before anything is written down."""

    broken_after: int | None


HOURS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.builds(Happened, st.sampled_from(sorted(LOGS)), st.sampled_from(BOXES), HOURS),
        st.builds(
            Change,
            st.sampled_from(["B1", "B2"]),
            st.sampled_from(BOXES),
            st.sampled_from([*CUSTOMERS, "stranger"]),
            st.sampled_from(["CONFIRMED", "CONFIRMED", "COMPLETED", "CANCELLED"]),
            HOURS,
            st.one_of(st.none(), HOURS),
        ),
        st.builds(Deliver, st.one_of(st.none(), st.integers(0, 4))),
    ),
    max_size=24,
)


@dataclass
class World:
    """Tables and feeds of one history."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    feeds: dict[str, list[Record]] = field(default_factory=lambda: {name: [] for name in CUSTOMERS})
    touched: list[dict[str, Any]] = field(default_factory=list)  # since the last batch that came through

    def happened(self, what: Happened) -> None:
        log = LOGS[what.table].format(box=what.box)
        offset = sum(len(rows) for rows in self.tables.values())
        row: dict[str, Any] = {"log": log, "log_offset": offset, "payload": f"{log}@{offset}".encode(), "late": False}
        time = T0 + dt.timedelta(hours=what.hour)
        row |= {"device_date_time": time, "event_date_time": time, "equipment_reference": what.box}
        row |= {"entry_type": "grant", "entry_log": f"containers.{what.box}"}
        self.tables[what.table].append(row)
        self.touched.append({"equipment_reference": what.box, "log": log, "first_offset": offset})

    def changed(self, change: Change) -> None:
        self.tables["booking_changes"].append(
            {
                "log": "bookings.hq",
                "log_offset": len(self.tables["booking_changes"]),
                "booking_reference": change.reference,
                "customer": change.customer,
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
        with look(CUSTOMERS, touched) as due:
            due.boxes(self._dataset("booking_changes"))
            feeds = pa.concat_tables([delivered(name, records) for name, records in self.feeds.items()])
            relations = {name: self._dataset(name) for name in LOGS} | {"feeds": pads.dataset(feeds)}
            found: list[dict[str, Any]] = due.rows(relations, limit=limit).to_pylist()
            return found

    def _dataset(self, name: str) -> pads.Dataset:
        return pads.dataset(pa.Table.from_pylist(self.tables[name], schema=TABLES[name].plain_schema))


def may_see(customer: str, what: Happened, history: list[Change]) -> bool:
    """Along the history of each booking: does it give this customer this moment in the end?"""
    given: dict[str, Literal[False] | str] = {}
    for change in history:
        if change.box != what.box:
            continue
        if change.status != "CANCELLED":
            given[change.reference] = change.customer if change.covers(what.hour) else False
        elif change.covers(what.hour):
            given[change.reference] = False
    return customer in given.values()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_a_feed_with_retractions_applied_is_what_its_customer_is_entitled_to(steps: list[Any]) -> None:
    world = World()
    for step in steps:
        match step:
            case Happened():
                world.happened(step)
            case Change():
                world.changed(step)
            case Deliver():
                world.deliver(step.broken_after)
    world.deliver(None)
    assert not world.due(1)
    history = [step for step in steps if isinstance(step, Change)]
    records = [row["payload"] for table in LOGS for row in world.tables[table]]
    happened = [step for table in LOGS for step in steps if isinstance(step, Happened) and step.table == table]
    for customer, feed in world.feeds.items():
        entitled = [p for p, what in zip(records, happened, strict=True) if may_see(customer, what, history)]
        assert sorted(record.value or b"" for record in followed(feed)) == sorted(entitled)
