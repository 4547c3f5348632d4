"""Which rows of which tables a customer's share has. The feed decides, by its own tables and statements.

- What is copied from logs (``readings``, ``alerts``) is here while table ``feeds`` says that the customer has it: the
  newest row of a record counts. So are milestones, which shore makes for the recipient's feed.
- ``conditions`` are made here from readings that the customer has, by the statement that makes the hours of feeds: an
  hour that a booking covers by half is made of that half.
- ``excursions`` are rows of the table whose readings all lie in one period of a booking: the first to the one that
  ended it or, without that one, all in which it could have ended.

A share has only columns that are in the records of the customer's kind of feed, or follow from them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from shore.delta.datasets import is_in
from shore.feeds.periods import PERIODS
from shore.feeds.readers import FeedReader
from shore.report.slices import Slices
from shore.tables.bands import IN_TIME, USED
from shore.tables.bookings import STATES
from shore.tables.conditions import CONDITIONS
from shore.tables.excursions import EXCURSIONS, SILENCE
from shore.tables.feeds import NEWEST
from shore.tables.hours import ACTIVATION_ENERGY, hours_sql
from shore.tables.model import Column
from shore.tables.operations import ALERTS, EVENTS, TOLD
from shore.tables.readings import READINGS
from shore.tables.valid_bookings import covers
from topologies.model import Grain

BOX: Final = "equipment_reference"


@dataclass(frozen=True, slots=True)
class SharedTable:
    """One table of a share.

    Args:
        inputs: The tables that it is made from, besides ``feeds``. Those of containers are narrowed to the customer's.
        query: The rows, from these tables, ``held`` (what the customer's feed has now), and ``periods``.
        key: The columns that name a row: one that has others in the next version was changed.
        mine: The readings that the customer has, for a query that needs relation ``mine``.
    """

    name: str
    columns: tuple[Column, ...]
    inputs: tuple[str, ...]
    query: str
    key: tuple[str, ...]
    mine: str = ""

    @property
    def booked(self) -> bool:
        """Whether it needs the times of bookings."""
        return "booking_changes" in self.inputs

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, metadata={"comment": c.description}) for c in self.columns])


def _names(columns: tuple[Column, ...], alias: str = "t") -> str:
    return ", ".join(f"{alias}.{column.name}" for column in columns)


def _some(columns: tuple[Column, ...], *names: str) -> tuple[Column, ...]:
    found = {column.name: column for column in columns}
    return tuple(found[name] for name in names)


def _copied(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """The columns of a record that its feed has too: its place, its container, and what its JSON says."""
    return tuple(c for c in columns if c.path or c.name in ("log", "log_offset", BOX))


def _records(name: str, columns: tuple[Column, ...]) -> SharedTable:
    """A table of records that are copied from logs to the feed."""
    shared = _copied(columns)
    query = f"select {_names(shared)} from {name} t semi join held using (log, log_offset) order by t.log, t.log_offset"  # noqa: S608
    return SharedTable(name, shared, (name,), query, ("log", "log_offset"))


_HELD_READINGS: Final = f"select {', '.join(USED)} from readings semi join held using (log, log_offset)"  # noqa: S608
_COVERED_READINGS: Final = f"""
select {", ".join(USED)} from readings r
where {IN_TIME} and exists (
    select 1 from periods p where p.equipment_reference = r.equipment_reference and {covers("p", "r.device_date_time")}
)
"""  # noqa: S608
_HOURS: Final = hours_sql(ACTIVATION_ENERGY, touched=False).format(readings="mine")

_TOLD_CONDITIONS: Final = _some(
    CONDITIONS.columns,
    BOX,
    "window_start",
    "window_end",
    "readings",
    *(f"{air}_temperature_{each}" for air in ("supply", "return") for each in ("min", "mean", "max")),
    "minutes_out_of_band",
    "minutes_without_power",
    "minutes_observed",
)
"""What a record ``conditions`` of a coarse feed says of an hour."""

_TOLD_MILESTONES: Final = _some(
    EVENTS.columns,
    BOX,
    "event_id",
    "event_type",
    "equipment_event_type_code",
    "transport_event_type_code",
    "event_date_time",
    "un_location_code",
    "vessel_imo_number",
    "voyage_reference",
)
"""What a record ``milestone`` of a coarse feed says."""

_READINGS: Final = _records("readings", READINGS.columns)
_ALERTS: Final = _records("alerts", ALERTS.columns)
_CONDITIONS: Final = SharedTable(
    "conditions",
    CONDITIONS.columns,
    ("readings",),
    f"select {_names(CONDITIONS.columns)} from (select 1 as window_hours, * from ({_HOURS})) t "  # noqa: S608
    f"order by {BOX}, window_start",
    (BOX, "window_start"),
    mine=_HELD_READINGS,
)
_COARSE_CONDITIONS: Final = SharedTable(
    "conditions",
    _TOLD_CONDITIONS,
    ("booking_changes", "readings"),
    f"""
    select {_names(_TOLD_CONDITIONS)} from ({_HOURS}) t semi join held h
        on h.log = 'hours/' || t.{BOX} and h.log_offset = epoch(t.window_start)::bigint // 3600
    order by t.{BOX}, t.window_start
    """,  # noqa: S608
    (BOX, "window_start"),
    mine=_COVERED_READINGS,
)
_SILENCE: Final = int(SILENCE.total_seconds())
_EXCURSIONS: Final = SharedTable(
    "excursions",
    EXCURSIONS.columns,
    ("booking_changes", "excursions"),
    f"""
    select {_names(EXCURSIONS.columns)}
    from (
        select *, greatest(
            end_date_time, coalesce(recovered_date_time, last_date_time + interval {_SILENCE} second)
        ) as decided
        from excursions
    ) t
    where exists (
        select 1 from periods p
        where p.{BOX} = t.{BOX} and {covers("p", "t.start_date_time")} and {covers("p", "t.decided")}
    )
    order by t.{BOX}, t.quantity, t.start_date_time
    """,  # noqa: S608
    ("excursion_id",),
)
_MILESTONES: Final = SharedTable(
    "milestones",
    _TOLD_MILESTONES,
    ("events",),
    f"""
    select h.{BOX}, {_names(_TOLD_MILESTONES[1:])} from held h
    join ({TOLD}) t on h.log = 'milestones/' || h.{BOX} || '/' || t.event_id
    qualify row_number() over (
        partition by h.{BOX}, t.event_id order by (t.{BOX} is null)::int + 2 * coalesce(t.{BOX} <> h.{BOX}, false)::int,
            abs(epoch_ms(t.event_date_time) - epoch_ms(h.device_date_time)), t.log, t.log_offset
    ) = 1
    order by h.{BOX}, t.event_date_time, t.event_id
    """,  # noqa: S608
    (BOX, "event_id"),
)

SHARED: Final[Mapping[Grain, tuple[SharedTable, ...]]] = {
    "detailed": (_READINGS, _CONDITIONS, _EXCURSIONS, _ALERTS),
    "coarse": (_COARSE_CONDITIONS, _MILESTONES, _ALERTS),
    "alerts": (_ALERTS,),
    "movements": (),
}
"""The tables of a share, by the kind of the customer's feed."""

_HELD: Final = f"""
create temp table held as
select * from (select {NEWEST} from feeds group by customer, log, log_offset) where not taken_back
"""  # noqa: S608

# A digest is retracted when the reading comes, shore's own alert when a site tells it: neither takes anything away.
_RETRACTIONS: Final = """
select count(*) as n from feeds where retracts and split_part(log, '/', 1) not in ('digests', 'alerts')
"""


def opened(slices: Slices, table: SharedTable) -> dict[str, int]:
    """Open the inputs of a table. Return their versions; -1 of one that does not exist yet. ``feeds`` is opened first:
    what it names is in the others."""
    names = ("feeds", *table.inputs)
    for name in names:
        slices.add(name)
    return {name: slices.versions.get(name, -1) for name in names}


@dataclass(frozen=True, slots=True)
class Content:
    """The rows of one customer's table.

    Args:
        taken: Differs from that of an earlier content if anything may have been taken from the customer since.
    """

    taken: str
    batches: Iterator[pa.RecordBatch]


def content(slices: Slices, reader: FeedReader, table: SharedTable) -> Content:
    """Return what a customer's table has, from inputs that ``opened`` has opened; the same rows in the same order for
    the same inputs, where ``slices`` has one thread: sums of the same numbers are then the same to the last bit."""
    slices.add("feeds", pc.field("customer") == reader.customer)
    slices.run(_HELD)
    taken = str(slices.row(_RETRACTIONS)["n"])
    boxes = slices.rows(f"select distinct {BOX} as box from held")  # noqa: S608
    if table.booked:
        slices.run(f"create temp table states as {STATES.format(booking_changes='booking_changes')}")
        mine = f"select * from ({PERIODS.format(bookings='states')}) where customer = $customer"  # noqa: S608
        periods = slices.rows(f"{mine} order by all", customer=reader.customer)
        slices.put("periods", pa.Table.from_pylist(periods, schema=_PERIODS))
        taken = f"{taken} {hashlib.sha256(repr(periods).encode()).hexdigest()}"
        boxes = [{"box": row[BOX]} for row in periods]
    for name in {"readings", "excursions", "alerts"}.intersection(table.inputs):
        slices.add(name, is_in(BOX, {row["box"] for row in boxes}))
    if table.mine:
        slices.run(f"create temp table mine as {table.mine}")
    schema = table.schema
    rows = slices.batches(table.query)
    return Content(taken, (_cast(batch, schema) for batch in rows))


def changes(slices: Slices, table: SharedTable, before: pads.Dataset, after: pads.Dataset) -> Iterator[pa.RecordBatch]:
    """Return what differs between two versions of a table, each row with its ``_change_type`` as Delta names it.

    A row of which only other columns than its key differ is there as it was and as it is.
    """
    slices.put("before", before)
    slices.put("after", after)
    key = ", ".join(table.key)
    parts = (
        f"select *, '{kind}' as {CHANGE_TYPE} from {those} {join} join {others} using ({key})"  # noqa: S608
        for kind, those, join, others in _CHANGE_KINDS
    )
    slices.run("create temp table gone as select * from before except all select * from after")
    slices.run("create temp table come as select * from after except all select * from before")
    schema = changes_schema(table)
    for batch in slices.batches(f"{' union all '.join(parts)} order by {key}, {CHANGE_TYPE} desc"):
        yield _cast(batch, schema)


def changes_schema(table: SharedTable) -> pa.Schema:
    """Return the columns of a table's changes."""
    return table.schema.append(pa.field(CHANGE_TYPE, pa.string()))


CHANGE_TYPE: Final = "_change_type"
_CHANGE_KINDS: Final = (
    ("delete", "gone", "anti", "come"),
    ("update_preimage", "gone", "semi", "come"),
    ("update_postimage", "come", "semi", "gone"),
    ("insert", "come", "anti", "gone"),
)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return batch.select(schema.names).cast(schema)


_PERIODS: Final = pa.schema(
    [
        *((name, pa.string()) for name in ("customer", BOX)),
        *((name, pa.timestamp("us", tz="UTC")) for name in ("valid_from", "valid_to")),
    ]
)
