"""Small histories of bookings, readings and events, and the feeds that customers get from them, without brokers.

Many scenarios play at once: each has containers, ships and customers of its own, and all share one set of tables, so
that a delivery to all of them is one action of Spark. Every delivery must also equal what
``tests.support.oracle.entitlement`` finds due.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import pyarrow as pa
import pyarrow.dataset as pads
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from fairlead.kafka.protocol.record import Record
from shore.feeds.entitlement import customer_rows, due, order_of_feeds
from shore.feeds.look import CHANGE, EVERYTHING, AtSea, Key, keys_of, look_of
from shore.feeds.periods import periods
from shore.feeds.readers import FeedReader
from shore.feeds.records import given_rows, new_record
from shore.tables import TABLES
from shore.tables.bookings import STATES
from tests.support.oracle.entitlement.due import TOUCHED
from tests.support.oracle.entitlement.due import due as due_by_duck
from topologies.model import Grain

T0: Final = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
KEPT_SINCE: Final = T0 - dt.timedelta(days=1000)
"""Retention may have deleted earlier readings."""
LOGS: Final = {"readings": "containers.{box}", "alerts": "alerts.tokyo", "custody_entries": "custody.tokyo"}
KINDS: Final = {"readings": "readings", "alerts": "alerts", "custody_entries": "custody"}
INPUTS: Final = (
    "readings",
    "alerts",
    "alerts_ashore",
    "custody_entries",
    "booking_changes",
    "events",
    "digests",
    "sites",
    "owners",
)

Wish = Literal["batch", "everything", "before retention"]
"""What a scenario asks to be delivered; the last one is a batch at a time when no reading has been deleted yet."""
Play = Generator[Wish, dict[str, list[Record]], None]
"""A running scenario: each yield asks for a delivery and receives the records that each customer got."""


def hours(count: float) -> dt.datetime:
    return T0 + dt.timedelta(hours=count)


@dataclass
class World:
    """The tables and feeds of one scenario. ``number`` makes its names unique; those of its containers begin with
    ``owner``. ``broken_after`` interrupts the next delivery after so many records, before its batch counts as done.
    ``at_sea`` is what the job knows of digests; None: it has just begun."""

    number: int
    offsets: Counter[str]
    readers: list[FeedReader] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    feeds: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    changes: list[dict[str, Any]] = field(default_factory=list)
    broken_after: int | None = None
    owner: str = "BIGU"
    at_sea: AtSea | None = None

    def reader(
        self, name: str, grain: Grain = "detailed", port: str | None = None, owners: tuple[str, ...] = ()
    ) -> FeedReader:
        found = FeedReader(self.customer(name), grain, port, owners=owners)
        self.readers = [each for each in self.readers if each.customer != found.customer] + [found]
        return found

    def customer(self, name: str) -> str:
        return f"{name}-{self.number}"

    def box(self, index: int = 0) -> str:
        return f"{self.owner}{self.number:05d}{index}"

    @property
    def ship(self) -> str:
        return f"{9_000_000 + self.number}"

    def feed(self, name: str) -> list[Record]:
        return self.feeds[self.customer(name)]

    def happened(self, table: str, hour: float, box: int = 0, **more: Any) -> dict[str, Any]:
        """Add a reading, alert or grant and return its row. Its sequence and temperature depend on the rows so far."""
        index = sum(len(rows) for rows in self.tables.values())
        name = self.box(box)
        log = LOGS[table].format(box=name)
        self.offsets[log] += 1
        offset = self.offsets[log]
        time = hours(hour)
        row: dict[str, Any] = {"log": log, "log_offset": offset, "payload": f"{log}@{offset}".encode(), "late": False}
        row |= {"device_id": "d", "boot_id": 1, "sequence": index, "supply_temperature": index * 13 % 40 / 10}
        row |= {"device_date_time": time, "event_date_time": time, "equipment_reference": name}
        row |= {"entry_type": "grant", "entry_log": f"containers.{name}"} | more
        self.tables[table].append(row)
        if table != "custody_entries" or row["entry_type"] == "grant":
            about = row["entry_log"].partition(".")[2] if table == "custody_entries" else name
            time = row["device_date_time" if table == "readings" else "event_date_time"]
            record = {"kind": KINDS[table], "equipment_reference": about, "device_date_time": time}
            self.changes.append(record | {name: row.get(name) for name in ("log", "log_offset", "late", "payload")})
        return row

    def found(self, hour: float, box: int = 0, alert: int = 1, revision: int = 0, state: str = "OPENED") -> str:
        """Add a state of an alert that shore finds. Return the id that a site gives to the same condition."""
        name, time = self.box(box), hours(hour)
        condition = f"POWER_LOST.{name}.d.1.{alert}"
        row: dict[str, Any] = {"alert_id": f"POWER_LOST.{name}@{alert}", "revision": revision, "kind": "POWER_LOST"}
        row |= {"severity": "ALARM", "state": state, "equipment_reference": name, "log": f"containers.{name}"}
        row |= {"first_offset": alert, "log_offset": alert + revision, "event_date_time": time, "reason": "fault"}
        self.tables["alerts_ashore"].append(row | {"detail": "switched off", "condition_id": condition})
        change = {"kind": "alerts_ashore", "equipment_reference": name, "device_date_time": time}
        self.changes.append(change | {"log": f"alerts/{name}/{row['alert_id']}", "log_offset": 0})
        return condition

    def digest(self, hour: float, heard: Mapping[int, float]) -> None:
        """Add a digest that the ship makes at an hour, with containers and the hours of their newest readings. Their
        temperature depends on the rows so far."""
        log = f"ships.{self.ship}.digest"
        self.offsets[log] += 1
        index = sum(len(rows) for rows in self.tables.values())
        boxes = [
            {"equipment_reference": self.box(box), "reading_date_time": hours(at), "supply_temperature": index / 100}
            | {"is_connected_to_power_source": True, "is_powered": True, "is_disturbed": False, "open_alerts": 0}
            | {"door_open": False, "immersed": False}
            for box, at in heard.items()
        ]
        row: dict[str, Any] = {"log": log, "log_offset": self.offsets[log], "vessel_imo_number": self.ship}
        self.tables["digests"].append(row | {"as_of_date_time": hours(hour), "whole": False, "boxes": boxes})
        for each in boxes:
            about = {"equipment_reference": each["equipment_reference"], "device_date_time": each["reading_date_time"]}
            self.changes.append({"kind": "digests", "log": log, "log_offset": self.offsets[log]} | about)

    def event(self, identity: str, hour: float, *, copy: int = 0, log: str = "events.tokyo", **more: Any) -> None:
        self.offsets[log] += 1
        row: dict[str, Any] = {"log": log, "log_offset": self.offsets[log], "event_id": f"{identity}.{self.number}"}
        row |= {"event_date_time": hours(hour), "vessel_imo_number": self.ship, "payload": b"secret"}
        row |= {"event_created_date_time": T0 + dt.timedelta(days=1 + copy), "booking_reference": "BKG1"} | more
        self.tables["events"].append(row)
        about = row.get("equipment_reference") or row["vessel_imo_number"]
        change = {name: row[name] for name in ("log", "log_offset", "event_id")} | {"equipment_reference": about}
        self.changes.append({"kind": "events", "device_date_time": hours(hour), **change})

    def moved(self, identity: str, code: str, hour: float, box: int = 0, *, copies: int = 1) -> None:
        """Add an event of a container, or of the ship (ARRI, DEPA)."""
        of_ship = code in ("ARRI", "DEPA")
        more = {"transport_event_type_code" if of_ship else "equipment_event_type_code": code}
        more |= {} if of_ship else {"equipment_reference": self.box(box)}
        for copy in range(copies):
            self.event(identity, hour, copy=copy, publisher=f"site {copy}", **more)

    def booked(
        self,
        begin: float,
        end: float | None,
        customer: str | None = "ducks",
        *,
        box: int = 0,
        reference: str = "B1",
        status: str = "CONFIRMED",
        consignee: str | None = None,
        **more: Any,
    ) -> None:
        """Add a change of a booking."""
        log = more.get("log", "bookings.hq")
        self.offsets[log] += 1
        row = {
            "log": log,
            "log_offset": self.offsets[log],
            "booking_reference": f"{reference}.{self.number}",
            "customer": self.customer(customer) if customer else None,
            "consignee": self.customer(consignee) if consignee else consignee,
            "equipment_reference": self.box(box),
            "status": status,
            "valid_from": hours(begin),
            "valid_to": None if end is None else hours(end),
        }
        self.tables["booking_changes"].append(row | more)
        self.changes.append({"kind": "bookings", "equipment_reference": self.box(box)})


Scenario = Callable[[World], Play]


def play(spark: SparkSession, scenarios: Mapping[str, Scenario]) -> dict[str, Exception | None]:
    """Play scenarios to their ends, side by side; return the error of each, None for those that passed."""
    offsets: Counter[str] = Counter()
    worlds = {name: World(number, offsets) for number, name in enumerate(scenarios, start=1)}
    going = {name: scenario(worlds[name]) for name, scenario in scenarios.items()}
    got: dict[str, dict[str, list[Record]] | None] = dict.fromkeys(going)
    ended: dict[str, Exception | None] = {}
    while going:
        wishes: dict[str, Wish] = {}
        for name, one in list(going.items()):
            try:
                wishes[name] = one.send(got[name])  # type: ignore[arg-type]  # None begins a generator
            except StopIteration:
                ended[name] = None
            except Exception as error:
                ended[name] = error
            if name in ended:
                del going[name]
        for wish in get_args(Wish):
            wanted = {name: worlds[name] for name, each in wishes.items() if each == wish}
            if wanted:
                found = _deliver(spark, list(worlds.values()), list(wanted.values()), wish)
                got |= {name: found[world.number] for name, world in wanted.items()}
    return ended


def _deliver(
    spark: SparkSession, worlds: Sequence[World], wanted: Sequence[World], wish: Wish
) -> dict[int, dict[str, list[Record]]]:
    """Deliver as job ``feeds`` does, to feeds that are lists."""
    rows = {name: [row for world in worlds for row in world.tables[name]] for name in INPUTS}
    tables = {name: pa.Table.from_pylist(rows[name], schema=TABLES[name].plain_schema) for name in INPUTS}
    given = [(name, record) for world in worlds for name, records in world.feeds.items() for record in records]
    tables["feeds"] = given_rows(given, TABLES["feeds"].plain_schema)
    inputs = spark_inputs(spark, tables)
    readers = [reader for world in wanted for reader in world.readers]
    held = periods(inputs["bookings"], customer_rows(spark, readers))
    look, keys, changes = EVERYTHING, list[Key](), [change for world in wanted for change in world.changes]
    since = None if wish == "before retention" else KEPT_SINCE
    if wish != "everything":
        batch = changed(spark, changes)
        keys = keys_of(batch)
        if begun := [world for world in wanted if world.at_sea is None]:
            stored = AtSea.of(inputs["feeds"]).times
            for world in begun:
                world.at_sea = AtSea({box: at for box, at in stored.items() if int(box[4:9]) == world.number})
        for world in wanted:
            if world.at_sea is not None:
                world.at_sea.look_up(keys_about(world, keys), inputs["feeds"])
        at_sea = {box: time for world in wanted if world.at_sea for box, time in world.at_sea.times.items()}
        look = look_of(batch, keys, inputs, held, {reader.grain for reader in readers}, at_sea=at_sea)
    kept = {} if since is None else {"readings": since}
    lacking = due(inputs, readers, held, look, kept).orderBy(*order_of_feeds()).toArrow().to_pylist()
    assert lacking == by_duck(tables, readers, wanted, None if wish == "everything" else changes, since)
    found: dict[int, dict[str, list[Record]]] = {world.number: defaultdict(list) for world in wanted}
    for world in wanted:
        mine = {reader.customer for reader in world.readers}
        new = [row for row in lacking if row["customer"] in mine]
        for row in new[: world.broken_after]:
            record, feed = new_record(row), world.feeds[row["customer"]]
            feed.append(Record(len(feed), record.timestamp_ms, record.key, record.value, record.headers))
            found[world.number][row["customer"]].append(feed[-1])
        done = world.broken_after is None or len(new) <= world.broken_after
        if done and world.at_sea is not None and wish != "everything":
            world.at_sea.note(keys_about(world, keys))
        else:
            world.at_sea = None  # the job begins again
        if done:
            world.changes.clear()
        world.broken_after = None
    return found


def keys_about(world: World, keys: Sequence[Key]) -> list[Key]:
    """Return the keys of a batch that are about this scenario."""
    named = {change["equipment_reference"] for change in world.changes}
    return [key for key in keys if key.box in named]


def spark_inputs(spark: SparkSession, tables: Mapping[str, pa.Table]) -> dict[str, DataFrame]:
    """Return what ``due`` reads: these tables, and the bookings that their changes make."""
    # PySpark 4.2 silently drops the rows after an empty chunk, so combine the chunks.
    inputs = {name: spark.createDataFrame(rows.combine_chunks()) for name, rows in tables.items()}
    return inputs | {"bookings": spark.sql(STATES, booking_changes=inputs["booking_changes"])}


def changed(spark: SparkSession, changes: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return a batch of changes."""
    return spark.createDataFrame(pa.Table.from_pylist(changes, schema=to_arrow_schema(CHANGE, timezone="UTC")))


def by_duck(
    tables: Mapping[str, pa.Table],
    readers: Sequence[FeedReader],
    wanted: Iterable[World],
    changes: Sequence[Mapping[str, Any]] | None,
    readings_since: dt.datetime | None,
) -> list[dict[str, Any]]:
    """Return the rows that ``due`` must find, in the same order, computed by DuckDB."""
    boxes = {
        row["equipment_reference"]
        for world in wanted
        for row in (*world.tables["booking_changes"], *world.tables["alerts"], *world.tables["alerts_ashore"])
    }
    touched = [{"equipment_reference": box} for box in (*boxes, None)]
    if changes is not None:
        touched = []
        for row in changes:
            touch = {"log": row.get("log"), "first_offset": row.get("log_offset")}
            boxes = {row["equipment_reference"]}
            if row["kind"] == "events" and row["equipment_reference"]:
                boxes |= {box for world in wanted for box in loaded(world, row["equipment_reference"])}
            touched += [{"equipment_reference": box, **touch} for box in boxes]
    relations = {name: pads.dataset(rows) for name, rows in tables.items()}
    found = due_by_duck(readers, pa.Table.from_pylist(touched, schema=TOUCHED), relations, readings_since).to_pylist()
    for row in found:
        made, back = "/" in row["log"], row["retracts"] is not None
        row["step"] = 2 * made + (not back)
        row["late"] = bool(row["late"])
    names = ("customer", "step", "log", "log_offset", "equipment_reference", "device_date_time")
    rest = ("received_date_time", "late", "payload", "retracts", "revision")

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        time = row["device_date_time"] if row["step"] == 3 else T0
        return (row["customer"], row["step"], time, row["log"], row["log_offset"])

    return [{name: row[name] for name in (*names, *rest)} for row in sorted(found, key=place)]


def loaded(world: World, ship: str) -> set[str]:
    """Return the containers that were ever loaded on a ship."""
    events = world.tables["events"]
    return {
        row["equipment_reference"]
        for row in events
        if row.get("equipment_event_type_code") == "LOAD" and row["vessel_imo_number"] == ship
    }
