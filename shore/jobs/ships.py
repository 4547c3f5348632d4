"""Job ``ships``: keeps ``dock_movements``, ``port_calls``, ``voyages``, ``geofence_visits`` and ``ships_now``.

New events recompute the movements that they describe, from all copies of the events. New movements and positions of a
ship recompute the part of its history that they may change (``shore.sailing.window``), from its movements and positions
around that part; new positions do the same for its visits of geofences (``shore.geofences.window``). The newest
position of a ship is the newest of the stored one and the new ones. A change of the topology recomputes all rows. The
tables are the only state.

Where retention has deleted positions, rows that began before its limit stay as they are (``with_former``).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.delta.commit import Between, Bound, OneOf, conform, replace_rows, stored_rows
from shore.delta.lake import Lake, computed
from shore.jobs.model import JobContext, follow
from shore.kept import kept_of
from shore.sailing import TimeBounds, window
from shore.tables.dock_movements import DOCK_MOVEMENTS, dock_movements
from shore.tables.geofence_visits import GEOFENCE_VISITS, VISIT, geofence_visits, visited
from shore.tables.itineraries import (
    CALL,
    LEG,
    PORT_CALLS,
    VOYAGES,
    events_of,
    itineraries,
    named,
    ship_events,
)
from shore.tables.model import MICROSECOND, Table, micros_of, time_of
from shore.tables.operations import HAPPENED
from shore.tables.ships_now import SHIPS_NOW, USED, ships_now

INPUTS: Final = ("events", "positions", "sites", "owners", "geofences")
EVENT, POSITION, TOPOLOGY = "event", "position", "topology"
"""The values of column ``kind`` in a batch: what a row is about."""
_SHIP: Final = "vessel_imo_number"
_MOST: Final = "64m"  # bytes of a table in one batch
_NAMED: Final = 100  # ships: up to so many are literals in a condition, by which Delta skips files
_LOOK_BACK: Final = (dt.timedelta(days=10), dt.timedelta(days=60), None)
"""How far back to read a ship's movements or positions, step by step until they are enough. Ships call at a port every
few days, and are seldom inside geofences for longer."""
_RANGES: Final = 50  # time ranges in one condition
_MADE: Final = ((PORT_CALLS, CALL, "call_date_time"), (VOYAGES, LEG, "leg_date_time"))
_WINDOW: Final = "ship string, since long, until long, read_since long, read_until long"


@dataclass(frozen=True, slots=True)
class Lasting:
    """How rows of a table last, in SQL.

    Args:
        begins: The column of the time when a row begins.
        ends: When it ends; null while it lasts.
        alike: What rows have in common of which one may be the other, besides the ship.
        first: The columns that its beginning decides.
        counted: Columns that are of the row with more ``positions``.
    """

    begins: str
    ends: str
    alike: str
    first: tuple[str, ...]
    counted: tuple[str, ...] = ()


_LASTING: Final = {
    PORT_CALLS.name: Lasting(
        "call_date_time",
        "if(in_port, null, coalesce(departure_date_time, call_date_time))",
        "un_location_code",
        ("call_date_time", "arrival_date_time", "arrival_source", "inbound_voyage_reference"),
    ),
    VOYAGES.name: Lasting(
        "leg_date_time",
        "if(to_un_location_code is null, null, coalesce(arrival_date_time, last_position_date_time, leg_date_time))",
        "''",
        ("leg_date_time", "from_un_location_code", "departure_date_time"),
        ("positions", "distance", "mean_speed", "gaps", "gap_minutes", "longest_gap_minutes"),
    ),
    GEOFENCE_VISITS.name: Lasting(
        "entered_date_time", "left_date_time", "geofence", ("entered_date_time",), ("positions",)
    ),
}
# A fresh row that meets a former one is the same, or what is left of it; legs that only touch follow each other. A
# former row that has ended stays. One that lasts goes on as the first fresh row that it meets.
_WITH_FORMER: Final = """
with former as (
    select *, {begins} as begun, {ends} as ended, {alike} as alike
    from {{stored}} where {begins} < timestamp_micros({limit})
),
now as (select *, {begins} as begun, {ends} as ended, {alike} as alike from {{fresh}}),
met as (
    select n.vessel_imo_number, n.alike, n.begun, f.begun as former, f.ended is null as lasts,
        row_number() over (partition by f.vessel_imo_number, f.alike, f.begun order by n.begun) as place
    from now n join former f on n.vessel_imo_number = f.vessel_imo_number and n.alike = f.alike and (
        n.begun = f.begun
        or (f.ended is null or n.begun {before} f.ended) and (n.ended is null or f.begun {before} n.ended)
    )
),
going_on as (select * from met where lasts and place = 1)
select {columns} from former f left anti join going_on m
    on f.vessel_imo_number = m.vessel_imo_number and f.alike = m.alike and f.begun = m.former
union all
select {merged} from going_on m
    join former f on f.vessel_imo_number = m.vessel_imo_number and f.alike = m.alike and f.begun = m.former
    join now n on n.vessel_imo_number = m.vessel_imo_number and n.alike = m.alike and n.begun = m.begun
union all
select {columns} from now n left anti join (select * from met where not lasts or place = 1) m
    on n.vessel_imo_number = m.vessel_imo_number and n.alike = m.alike and n.begun = m.begun
"""


class TimeSpan(NamedTuple):
    """The first and the last time of a ship's new rows, in microseconds since 1970."""

    first: int
    last: int


def query(context: JobContext) -> DataStreamWriter:
    """Build the query, which follows the events, the positions, and the topology."""
    lake = context.lake
    rows = changes(
        lake.new_rows("events", maxBytesPerTrigger=_MOST),
        lake.new_rows("positions", maxBytesPerTrigger=_MOST),
        lake.changed_rows("sites"),
        lake.changed_rows("owners"),
        lake.changed_rows("geofences"),
    )
    return follow(lake, rows, update)


def changes(
    events: DataFrame, positions: DataFrame, sites: DataFrame, owners: DataFrame, geofences: DataFrame
) -> DataFrame:
    """Return the new rows of the inputs: ``kind``, ``event_id`` for events, and the columns ``USED`` for positions."""

    def kind(name: str) -> Column:
        return F.lit(name).alias("kind")

    found = events.where(f"event_id is not null and {HAPPENED}").select(kind(EVENT), "event_id")
    located = positions.where(f"device_date_time is not null and {_SHIP} is not null")
    for other in (
        located.select(kind(POSITION), *USED),
        sites.select(kind(TOPOLOGY)),
        owners.select(kind(TOPOLOGY)),
        geofences.select(kind(TOPOLOGY)),
    ):
        found = found.unionByName(other, allowMissingColumns=True)
    return found


def update(lake: Lake, batch: DataFrame) -> None:
    """Recompute what the rows of a batch of ``changes`` may change."""
    batch = computed(batch)
    news = batch.groupBy("kind", _SHIP).agg(*_ends("device_date_time")).collect()
    kinds = {row["kind"] for row in news}
    if TOPOLOGY in kinds:
        update_everything(lake)
        return
    spans = {row[_SHIP]: TimeSpan(row["first"], row["last"]) for row in news if row["kind"] == POSITION}
    if spans:
        update_visits(lake, spans)
    if EVENT in kinds:
        events = batch.where(F.col("kind") == EVENT).select("event_id").distinct()
        for ship, span in _update_movements(lake, events).items():
            known = spans.get(ship, span)
            spans[ship] = TimeSpan(min(known.first, span.first), max(known.last, span.last))
    if spans:
        _update_itineraries(lake, spans)
    if POSITION in kinds:
        _update_newest(lake, batch.where(F.col("kind") == POSITION).select(*USED))


def update_everything(lake: Lake) -> None:
    """Recompute all rows of all tables."""
    lake = lake.fixed(("positions",))
    replace_rows(lake, DOCK_MOVEMENTS, dock_movements(**lake.inputs(("events", "sites", "owners"))))
    positions, sites = lake.read("positions"), lake.read("sites")
    made = computed(itineraries(lake.read("dock_movements"), positions, sites))
    for table, what, _ in _MADE:
        _replace_within(lake, table, named(made, what, sites))
    _replace_within(lake, GEOFENCE_VISITS, geofence_visits(positions, lake.read("geofences"), sites))
    newest = positions.select(*USED)
    if "positions" in kept_of(lake.paths, ("positions",)):
        newest = newest.union(lake.read(SHIPS_NOW.name).select(*USED))
    replace_rows(lake, SHIPS_NOW, ships_now(newest, sites))


def _update_movements(lake: Lake, event_ids: DataFrame) -> dict[str, TimeSpan]:
    """Recompute the movements of these events. Return the times of ship events among them, by IMO number."""
    touched = F.broadcast(event_ids)
    copies = computed(lake.read("events").where(HAPPENED).join(touched, "event_id", "left_semi"))
    sailed = F.col("transport_event_type_code").isNotNull()
    told = copies.groupBy(_SHIP, sailed.alias("sailed")).agg(*_ends("event_date_time")).collect()
    if not told:
        return {}
    replace_rows(
        lake,
        DOCK_MOVEMENTS,
        dock_movements(copies, lake.read("sites"), lake.read("owners")),
        within=lambda rows: rows.join(touched, "event_id", "left_semi"),
        # A stored row has the time of one of the copies, perhaps not of the copy that counts now.
        bounds=[_times("event_date_time", [row["first"] for row in told], [row["last"] for row in told])],
    )
    return {row[_SHIP]: TimeSpan(row["first"], row["last"]) for row in told if row["sailed"] and row[_SHIP] is not None}


def _update_itineraries(lake: Lake, spans: Mapping[str, TimeSpan]) -> None:
    """Recompute the port calls and legs around these times of ships. The movements must be up to date."""
    sites, positions = lake.read("sites"), lake.read("positions")
    movements, bounds = nearby(lake.read("dock_movements"), spans)
    made = computed(itineraries(movements, positions.where(needed(bounds)), sites, bounds))
    for table, what, begins in _MADE:
        _replace(lake, table, named(made, what, sites), bounds, begins)


def update_visits(lake: Lake, spans: Mapping[str, TimeSpan]) -> None:
    """Recompute the visits of geofences around these times of ships, from positions as far back as they need."""
    if lake.is_empty("geofences"):
        return
    left = dict(spans)
    for back in _LOOK_BACK:
        around = {ship: TimeBounds(read_since=_before(span, back)) for ship, span in left.items()}
        positions = lake.read("positions").where(needed(around))
        made = computed(visited(positions, lake.read("geofences"), left, cut=back is not None))
        known = made.where(f"`{VISIT}` is null").collect()
        bounds = {row[_SHIP]: TimeBounds(row["since"], row["until"]) for row in known}
        if bounds:
            _replace(lake, GEOFENCE_VISITS, named(made, VISIT, lake.read("sites")), bounds, "entered_date_time")
        left = {ship: span for ship, span in left.items() if ship not in bounds}
        if not left:
            break


def _before(span: TimeSpan, back: dt.timedelta | None) -> int | None:
    return None if back is None else span.first - back // MICROSECOND


def nearby(movements: DataFrame, spans: Mapping[str, TimeSpan]) -> tuple[DataFrame, dict[str, TimeBounds]]:
    """Return the part of each ship's history that new rows within ``spans`` may change, and the movements that decide
    about it. A ship without movements is recomputed as a whole."""
    left, parts, bounds = dict(spans), list[DataFrame](), dict[str, TimeBounds]()
    for back in _LOOK_BACK:
        rows = movements.where(F.col(_SHIP).isin(sorted(left)))
        if back is not None:
            since = time_of(min(span.first for span in left.values()) - back // MICROSECOND)
            rows = rows.where(F.col("event_date_time") >= F.lit(since))
        found = windows(rows, left, cut=back is not None)
        parts.append(rows.where(F.col(_SHIP).isin(sorted(found))))
        bounds |= found
        left = {ship: span for ship, span in left.items() if ship not in found}
        if not left:
            break
    return reduce(DataFrame.unionByName, parts), bounds


def windows(movements: DataFrame, spans: Mapping[str, TimeSpan], *, cut: bool) -> dict[str, TimeBounds]:
    """Return the part of each ship's history that new rows within ``spans`` may change. Executors compute it.

    Args:
        cut: Earlier movements are missing. The result has no ship whose part may depend on them.
    """

    def of_ship(key: tuple[pa.Scalar, ...], events: pa.Table) -> pa.Table:
        ship = key[0].as_py()
        found = window(events_of(events), *spans[ship], cut=cut)
        rows = [{"ship": ship} | {name: getattr(found, name) for name in found.__slots__}] if found else []
        return pa.Table.from_pylist(rows, schema=schema)

    times = ("since", "until", "read_since", "read_until")
    schema = pa.schema([("ship", pa.string()), *((name, pa.int64()) for name in times)])
    known = ship_events(movements).groupBy(_SHIP).applyInArrow(of_ship, _WINDOW).collect()
    found = {row["ship"]: TimeBounds(*row[1:]) for row in known}
    return found if cut else dict.fromkeys(spans, TimeBounds()) | found


def needed(bounds: Mapping[str, TimeBounds]) -> Column:
    """Return the condition that a position belongs to one of these ships and, roughly, lies within its bounds. It is
    made of literals, so that Delta skips files; ships with similar bounds share one of ``_RANGES`` ranges."""

    def begin(ship: str) -> tuple[bool, int, str]:
        since = bounds[ship].read_since
        return since is not None, since or 0, ship

    ships = sorted(bounds, key=begin)
    size = -(-len(ships) // _RANGES)
    parts = [ships[first : first + size] for first in range(0, len(ships), size)]
    return reduce(or_, (_of_ships(part, bounds) for part in parts))


def _of_ships(ships: Collection[str], bounds: Mapping[str, TimeBounds]) -> Column:
    lows = [bounds[ship].read_since for ship in ships]
    highs = [bounds[ship].read_until for ship in ships]
    return F.col(_SHIP).isin(list(ships)) & _times("device_date_time", lows, highs).of()


def _replace(lake: Lake, table: Table, fresh: DataFrame, bounds: Mapping[str, TimeBounds], begins: str) -> None:
    """Replace a table's rows that begin within each ship's bounds by ``fresh``."""
    scope = F.broadcast(
        lake.spark.createDataFrame(
            [(ship, each.since, each.until) for ship, each in bounds.items()],
            "scope_ship string, scope_since long, scope_until long",
        )
    )
    begin = F.unix_micros(begins)
    inside = F.col(_SHIP) == F.col("scope_ship")
    inside &= F.col("scope_since").isNull() | (begin >= F.col("scope_since"))
    inside &= F.col("scope_until").isNull() | (begin < F.col("scope_until"))
    first = _end([each.since for each in bounds.values()], min)
    literals: list[Bound] = [Between(begins, first, _end([each.until for each in bounds.values()], max))]
    if len(bounds) <= _NAMED:
        literals.append(OneOf(_SHIP, bounds.keys()))
    _replace_within(lake, table, fresh, lambda rows: rows.join(scope, inside, "left_semi"), literals, first)


def _replace_within(
    lake: Lake,
    table: Table,
    fresh: DataFrame,
    within: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    bounds: Sequence[Bound] = (),
    first: dt.datetime | None = None,
) -> None:
    """Replace a table's rows in a scope (``replace_rows``), but for those of which positions are gone.

    Args:
        first: No row of the scope begins before this time; None: rows may begin at any time.
    """
    limit = kept_of(lake.paths, ("positions",)).get("positions")  # the caller has fixed or computed them
    if limit is None or (first is not None and first >= limit):
        replace_rows(lake, table, fresh, within=within, bounds=bounds)
        return
    stored = computed(stored_rows(lake, table, within, bounds))
    replace_rows(lake, table, with_former(table, stored, fresh, limit), stored=stored, bounds=bounds)


def with_former(table: Table, stored: DataFrame, fresh: DataFrame, limit: dt.datetime) -> DataFrame:
    """Return all rows that a scope must have where positions before ``limit`` may be gone.

    A stored row that began before the limit stays as it is if it has ended. If it lasts, it ends, or goes on, as
    ``fresh`` says. Of ``fresh``, what is left of such rows does not count.
    """
    how, columns = _LASTING[table.name], table.plain_schema.names
    more = "f.positions > n.positions"
    merged = {name: f"f.{name}" for name in how.first} | {
        name: f"if({more}, f.{name}, n.{name})" for name in how.counted
    }
    statement = _WITH_FORMER.format(
        limit=micros_of(limit),
        begins=how.begins,
        ends=how.ends,
        alike=how.alike,
        before="<" if table is VOYAGES else "<=",
        columns=", ".join(columns),
        merged=", ".join(f"{merged.get(name, f'n.{name}')} as {name}" for name in columns),
    )
    fresh, stored = computed(conform(fresh, table)), conform(stored, table)
    found: DataFrame = stored.sparkSession.sql(statement, stored=stored, fresh=fresh)
    return found


def _update_newest(lake: Lake, positions: DataFrame) -> None:
    ships = F.broadcast(positions.select(_SHIP).distinct())

    def touched(rows: DataFrame) -> DataFrame:
        return rows.join(ships, _SHIP, "left_semi")

    stored = touched(lake.read(SHIPS_NOW.name)).select(*USED)
    replace_rows(lake, SHIPS_NOW, ships_now(stored.union(positions), lake.read("sites")), within=touched)


def _ends(time: str) -> list[Column]:
    return [F.min(F.unix_micros(time)).alias("first"), F.max(F.unix_micros(time)).alias("last")]


def _times(column: str, lows: Collection[int | None], highs: Collection[int | None]) -> Between:
    """Return the bound from the lowest to the highest of these times; open where one of them is None."""
    return Between(column, _end(lows, min), _end(highs, max))


def _end(times: Collection[int | None], choose: Any) -> dt.datetime | None:
    return None if None in times else time_of(choose(times))
