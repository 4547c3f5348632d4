"""Small histories of bookings, readings and events, and the feeds that customers get from them."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from fairlead.kafka.protocol.record import Record
from shore.feeds.due import TOUCHED, look
from shore.feeds.readers import FeedReader
from shore.feeds.records import delivered, new_record
from shore.tables import TABLES

T0 = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
CUSTOMERS = ("ducks", "toyshop")
BOXES = ("BIGU0000016", "BIGU0000021")
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


BOOKED = Change("B1", BOXES[0], "ducks", "CONFIRMED", 0, None, SHOP)


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
