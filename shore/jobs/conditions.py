"""Job ``conditions``: computes ``conditions``, ``mkt``, ``excursions``, ``excursion_parts`` and ``outlook`` from
``readings``.

Each batch finds the hours of boxes that its new rows of ``readings`` touch. The job recomputes these hours, once for
all tables; then the longer windows around them, from stored hours and days; then the half hours and sessions of boxes
that are or were out of band; and the outlooks of boxes with new readings. Each table gets at most one commit, and none
where nothing differs. The tables are the only state, so late telemetry, repeated batches and crashes are no special
cases.

How much a batch reads depends on its spans (``shore.jobs.spans``), not on the length of the history: ``readings`` of
the touched hours, ``conditions`` of a day around them, ``mkt`` of 30 days around them.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.delta.commit import Between, replace_rows
from shore.delta.lake import Lake, computed, computed_and_counted
from shore.jobs.model import JobContext
from shore.jobs.spans import Extent, between, bound, extents_of, outside, spans_of, within
from shore.kept import Kept, comparable, kept_of, kept_rows, whole_since
from shore.tables import conditions, mkt
from shore.tables.bands import USED
from shore.tables.conditions import CONDITIONS
from shore.tables.excursions import EXCURSION_PARTS, EXCURSIONS, SILENCE, SLOT, excursion_parts, excursions
from shore.tables.graph import BY_NAME, Settings
from shore.tables.hours import hours_of, touched_hours
from shore.tables.mkt import MKT
from shore.tables.model import Table, micros_of
from shore.tables.outlook import CREDIBLE, LOOKBACK, OUTLOOK, USED_BY_OUTLOOK, outlook

HOUR: Final = dt.timedelta(hours=1)
DAY: Final = dt.timedelta(days=1)
MINUTE: Final = dt.timedelta(minutes=1)
NONE: Final = dt.timedelta()

_KEEPS: Final = (CONDITIONS.name, MKT.name, EXCURSION_PARTS.name, EXCURSIONS.name)

_MANY: Final = 50  # readings in a batch from which on generated code pays
_REACH: Final = SLOT + SILENCE  # how far before it a reading may change half hours
_AFTER: Final = HOUR + SILENCE + SLOT  # how far after the last hour's start readings decide how its half hours end

# Conditions over a row (r) and a span (s) of touched hours, which begin within [s.low, s.high].
_HOURS: Final = "r.window_end between s.low + interval 1 hour and s.high + interval 1 hour"
_DAYS: Final = "r.window_end between s.low + interval 1 hour and s.high + interval 24 hours"
_MONTHS: Final = """r.window_end between date_trunc('day', s.low) + interval 1 day
    and date_trunc('day', s.high) + interval 30 days"""
_WINDOWS: Final = f"case r.window_hours when 1 then {_HOURS} when 24 then {_DAYS} else {_MONTHS} end"
# What is read of the two tables: the rows in scope, the hours for 24-hour windows, the days for 30-day windows.
_AROUND: Final = """r.window_end between s.low - interval 22 hours and s.high + interval 24 hours"""
_OF_MONTHS: Final = "(window_hours = 24 and whole_day or window_hours = 720)"
_AROUND_MONTHS: Final = f"""case when coalesce(r.whole_day, false) or r.window_hours = 720
    then r.window_end between date_trunc('day', s.low) - interval 28 days
        and date_trunc('day', s.high) + interval 30 days
    else {_AROUND} end"""
_PARTS: Final = f"""r.part_start >= s.low - interval {_REACH // MINUTE} minutes
    and r.part_start < s.high + interval 1 hour"""
_READINGS_OF_PARTS: Final = f"""r.device_date_time >= s.low - interval {(_REACH + SLOT) // MINUTE} minutes
    and r.device_date_time < s.high + interval {_AFTER // MINUTE} minutes"""

# Over a span (r) and a stored part (s): whether readings of the span may change the part. A part whose recovery was
# recorded before the span stays as it is.
_PENDING: Final = f"""s.part_start >= r.low - interval {_REACH // MINUTE} minutes
    and s.part_start < r.high + interval 1 hour
    and (s.recovered_date_time is null or s.recovered_date_time >= r.low or s.part_start >= r.low - interval 30 minutes)
"""
_IS_OUT: Final = "s.readings_out > 0 and s.window_start between r.low and r.high"

# The spans, widened by the stored sessions that begin or end within reach of the recomputed half hours.
_REACHED: Final = f"""
with made as (
    select equipment_reference, quantity, low - interval {_REACH // MINUTE} minutes as low,
        high + interval 1 hour as high
    from {{spans}} lateral view explode(array('TEMPERATURE', 'HUMIDITY', 'POWER')) as quantity
)
select m.equipment_reference, m.quantity,
    least(m.low, min(e.start_date_time)) as low, greatest(m.high, max(e.last_date_time)) as high
from made as m left join {{excursions}} as e
    on e.equipment_reference = m.equipment_reference and e.quantity = m.quantity
    and e.start_date_time <= m.high + interval {SILENCE // MINUTE} minutes
    and e.last_date_time >= m.low - interval {SILENCE // MINUTE} minutes
group by m.equipment_reference, m.quantity, m.low, m.high
"""  # noqa: S608  # our own names
# Boxes with readings that are new enough, and the time of the newest known reading of each.
_CLOCKS: Final = f"""
select b.equipment_reference, greatest(newest, as_of_date_time) as low, greatest(newest, as_of_date_time) as high
from (
    select equipment_reference, max(device_date_time) as newest from {{batch}} where {CREDIBLE} group by 1
) as b left join {{known}} as k on k.equipment_reference = b.equipment_reference
where as_of_date_time is null or newest > as_of_date_time
    or newest > as_of_date_time - interval {LOOKBACK // HOUR} hours
        and as_of_date_time >= {{whole_since}} + interval {LOOKBACK // HOUR} hours
"""  # noqa: S608  # our own names
_RECENT: Final = f"""r.device_date_time > s.low - interval {LOOKBACK // HOUR} hours and r.device_date_time <= s.high"""
_SAME_HOUR: Final = "r.window_start = s.window_start"
_SAME_PART: Final = "r.quantity = s.quantity and r.part_start = s.part_start"
# Hours whose stored row counts more readings, or more time, than there is now. More readings never cover less time.
_LACKING: Final = """
select s.equipment_reference, s.window_start
from {stored} as s left join {fresh} as f using (equipment_reference, window_start)
where f.readings is null or f.readings < s.readings or f.minutes_observed < s.minutes_observed - 1e-6
"""
_BEGINS: Final = "r.quantity = s.quantity and r.start_date_time between s.low and s.high"


@dataclass(frozen=True, slots=True)
class TouchedHours:
    """What a batch touches: hours of boxes (equipment_reference, window_start), their spans, and their extents."""

    hours: DataFrame
    spans: DataFrame
    extents: tuple[Extent, ...]

    @classmethod
    def of(cls, hours: DataFrame) -> TouchedHours:
        """Return what these hours are."""
        hours = computed(hours)
        spans = computed(spans_of(hours, gap=DAY))
        return cls(hours, spans, extents_of(spans))


def query(context: JobContext) -> DataStreamWriter:
    lake, energy = context.lake, Settings.of(context.topology).activation_energy
    renew_mkt(lake, energy)

    def update_batch(batch: DataFrame, _: int) -> None:
        update(batch, lake.in_batch(batch), energy)

    readings = lake.new_rows("readings", maxBytesPerTrigger="1g").select(*USED_BY_OUTLOOK)
    writer: DataStreamWriter = readings.writeStream.foreachBatch(update_batch)
    return writer


def update(batch: DataFrame, lake: Lake, activation_energy: float) -> None:
    """Recompute all rows that a batch of rows of ``readings`` may change, and commit what differs."""
    batch, counts = computed_and_counted(batch, rows=F.count(F.lit(1)))
    if counts["rows"] >= _MANY:
        lake.generate_code()
    touched = TouchedHours.of(touched_hours(batch))
    if not touched.extents:
        return
    lake = lake.fixed(("readings", *_KEEPS))
    kept = kept_of(lake.paths, ("readings", *_KEEPS))
    readings = lake.read("readings").select(*USED)
    near = bound(touched.extents, lambda extent: (between("device_date_time", extent, HOUR / 2, HOUR),))
    fresh = computed(hours_of(touched.hours, readings.where(near.of()), activation_energy))
    lacking = _lacking(lake, touched, fresh, kept)
    if lacking is not None:
        touched = TouchedHours.of(outside(touched.hours, lacking, _SAME_HOUR))
        fresh = computed(outside(fresh, lacking, _SAME_HOUR))
    updates = [lambda: update_outlook(batch, lake, kept)]  # first, because it takes longest
    if touched.extents:
        updates += [
            lambda: update_mkt(lake, touched, mkt.hour_rows(fresh, activation_energy), activation_energy, kept),
            lambda: update_excursions(lake, touched, fresh, kept),
            lambda: update_conditions(lake, touched, conditions.hour_rows(fresh), kept),
        ]
    lake.side_by_side(*updates)


def _lacking(lake: Lake, touched: TouchedHours, fresh: DataFrame, kept: Kept) -> DataFrame | None:
    """Return the touched hours of which retention has deleted readings (equipment_reference, window_start); None where
    there are none. A reading may be as late as it likes: an older hour lacks readings only where its stored row counts
    more than there are. Where retention has deleted that row too, the hour counts as lacking."""
    if "readings" not in kept:
        return None
    since = whole_since(BY_NAME[CONDITIONS.name], {"readings": kept["readings"]})
    if since is None or all(extent.low >= since for extent in touched.extents):
        return None
    before = F.col("window_start") < F.lit(since)
    old = computed(touched.hours.where(before))
    if old.isEmpty():
        return None
    near = bound(touched.extents, lambda extent: (between("window_start", extent, NONE, NONE),))
    stored = within(lake.read(CONDITIONS.name).where("window_hours = 1").where(before & near.of()), old, _SAME_HOUR)
    lacking = lake.spark.sql(_LACKING, stored=stored, fresh=fresh)
    if CONDITIONS.name in kept:
        lacking = lacking.union(old.where(F.col("window_start") < F.lit(kept[CONDITIONS.name])))
    lacking = computed(lacking)
    return None if lacking.isEmpty() else lacking


def update_conditions(lake: Lake, touched: TouchedHours, fresh: DataFrame, kept: Kept) -> None:
    """Replace the touched hours of table ``conditions``, and the 24-hour windows that contain them."""
    near = bound(touched.extents, lambda extent: (between("window_end", extent, 22 * HOUR, DAY),))
    stored = computed(within(lake.read(CONDITIONS.name).where(near.of()), touched.spans, _AROUND))
    units = computed(_units(stored, touched, fresh))
    _replace_windows(lake, CONDITIONS, touched, stored, units.unionByName(conditions.day_rows(units)), kept, after=DAY)


def update_mkt(lake: Lake, touched: TouchedHours, fresh: DataFrame, activation_energy: float, kept: Kept) -> None:
    """Replace the touched hours of table ``mkt``, and the 24-hour and 30-day windows that contain them.

    Windows that begin where readings are gone stay for boxes that have hours or days of another activation energy
    there: one window cannot be made of two energies (``renew_mkt``).
    """
    near = bound(touched.extents, lambda extent: (between("window_end", extent, 22 * HOUR, DAY),))
    months = bound(touched.extents, lambda extent: (between("window_end", extent, 29 * DAY, 30 * DAY),))
    # Of 30 days only one row in 25 is needed: the literals keep the others out of the join.
    rows = lake.read(MKT.name).where(near.of() | (F.expr(_OF_MONTHS) & months.of()))
    stored = computed(within(rows, touched.spans, _AROUND_MONTHS))
    units = computed(_units(stored, touched, fresh))
    days = computed(within(mkt.day_rows(units), touched.spans, _DAYS))
    whole_days = outside(stored.where("whole_day"), touched.spans, _DAYS).unionByName(days.where("whole_day"))
    made = units.unionByName(days).unionByName(mkt.month_rows(whole_days))
    if (since := whole_since(BY_NAME[MKT.name], kept)) is not None:
        others = stored.where(_is_of_another(activation_energy))
        gone = f"r.window_hours > 1 and r.window_start < {_since(since)}"
        made, stored = outside(made, others, gone), outside(stored, others, gone)
    _replace_windows(lake, MKT, touched, stored, made, kept, after=30 * DAY)


def update_excursions(lake: Lake, touched: TouchedHours, hours: DataFrame, kept: Kept) -> None:
    """Replace the half hours and the sessions that the touched hours may change.

    Most boxes are in band, so only spans with a reading out of band or with a stored half hour that they may change are
    read. Half hours of which readings are gone stay. Sessions are committed before half hours: after a crash in
    between, the repeated batch finds its scope again.
    """
    scope = bound(touched.extents, lambda extent: (between("part_start", extent, _REACH, HOUR),))
    since = _since(whole_since(BY_NAME[EXCURSION_PARTS.name], kept))
    known = f"(r.part_start >= {since} or date_trunc('hour', r.part_start) = s.window_start)"

    def whole(parts: DataFrame, spans: DataFrame) -> DataFrame:
        parts = within(kept_rows(EXCURSION_PARTS.name, parts, kept), spans, _PARTS)
        return within(parts, touched.hours, known) if "readings" in kept else parts

    stored = computed(whole(lake.read(EXCURSION_PARTS.name).where(scope.of()), touched.spans))
    out = within(touched.spans, stored, _PENDING).union(within(touched.spans, hours, _IS_OUT))
    spans = computed(out.distinct())
    extents = extents_of(spans)
    if not extents:
        return
    near = bound(extents, lambda extent: (between("device_date_time", extent, _REACH + SLOT, _AFTER),))
    readings = within(lake.read("readings").select(*USED).where(near.of()), spans, _READINGS_OF_PARTS)
    fresh, stored = computed(whole(excursion_parts(readings), spans)), within(stored, spans, _PARTS)
    _replace_sessions(lake, spans, extents, stored, fresh, kept)
    scope = bound(extents, lambda extent: (between("part_start", extent, _REACH, HOUR),))
    replace_rows(lake, EXCURSION_PARTS, fresh, stored=stored, bounds=[scope])


def update_outlook(batch: DataFrame, lake: Lake, kept: Kept) -> None:
    """Replace the rows of table ``outlook`` for boxes with readings that are new enough.

    A reading counts when it is less than 72 hours older than the time as of which the table knows the box. Where
    retention may have deleted readings of these hours, only a newer one counts.
    """
    known = computed(lake.read(OUTLOOK.name))
    clocks = _CLOCKS.format(batch="{batch}", known="{known}", whole_since=_since(kept.get("readings")))
    spans = computed(lake.spark.sql(clocks, batch=batch, known=known))
    extents = extents_of(spans)
    if not extents:
        return
    near = bound(extents, lambda extent: (between("device_date_time", extent, LOOKBACK, NONE),))
    readings = within(lake.read("readings").select(*USED_BY_OUTLOOK).where(near.of()), spans, _RECENT)
    replace_rows(lake, OUTLOOK, outlook(readings), stored=within(known, spans, "true"))


def renew_mkt(lake: Lake, activation_energy: float) -> bool:
    """Recompute the whole table ``mkt`` if any row has another activation energy. Return whether it did.

    Windows of whose readings retention may have deleted some stay as they are (``shore.kept``).
    """
    derived = BY_NAME[MKT.name]
    tables = (MKT.name, *derived.inputs)
    lake = lake.fixed(tables)
    kept = kept_of(lake.paths, tables)

    def whole(rows: DataFrame) -> DataFrame:
        return comparable(derived, rows, kept)

    if whole(lake.read(MKT.name)).where(_is_of_another(activation_energy)).isEmpty():
        return False
    fresh = derived.compute(lake.inputs(derived.inputs), Settings(activation_energy))
    replace_rows(lake, MKT, whole(fresh), within=whole)
    return True


def _is_of_another(activation_energy: float) -> Column:
    """Return the condition that a row of ``mkt`` has another activation energy. Unlike ``<>`` it lets Delta skip
    files."""
    energy = F.col("activation_energy")
    return (energy < activation_energy) | (energy > activation_energy)


def _units(stored: DataFrame, touched: TouchedHours, fresh: DataFrame) -> DataFrame:
    """Return the hours that the 24-hour windows need: the recomputed ones, and the stored ones around them."""
    others = outside(stored.where("window_hours = 1"), touched.hours, _SAME_HOUR)
    return others.unionByName(fresh)


def _replace_windows(
    lake: Lake,
    table: Table,
    touched: TouchedHours,
    stored: DataFrame,
    rows: DataFrame,
    kept: Kept,
    *,
    after: dt.timedelta,
) -> None:
    """Replace the windows that contain touched hours. They end at most ``after`` the start of the last such hour.
    Windows that begin before the limit of the table itself stay: their hours are gone from it."""
    scope = bound(touched.extents, lambda extent: (between("window_end", extent, -HOUR, after),))
    windows = f"{_WINDOWS} and r.window_start >= {_since(kept.get(table.name))}"
    rows, stored = within(rows, touched.spans, windows), within(stored, touched.spans, windows)
    replace_rows(lake, table, rows, stored=stored, bounds=[scope])


def _replace_sessions(
    lake: Lake, spans: DataFrame, extents: tuple[Extent, ...], old: DataFrame, fresh: DataFrame, kept: Kept
) -> None:
    """Replace the sessions within reach of the half hours that were recomputed from ``old`` to ``fresh``; others stay
    as they are, and so do those of which half hours are gone."""

    def reach(extent: Extent) -> tuple[Between, ...]:
        return (
            Between("start_date_time", None, extent.high + HOUR + SILENCE),
            Between("last_date_time", extent.low - _REACH - SILENCE, None),
        )

    before = computed(lake.read(EXCURSIONS.name).where(bound(extents, reach).of()))
    reached = computed(lake.spark.sql(_REACHED, spans=spans, excursions=before))
    around = extents_of(reached)
    stored = lake.read(EXCURSION_PARTS.name)
    derived = BY_NAME[EXCURSIONS.name]
    stored = stored.where(bound(around, lambda extent: (between("part_start", extent, SLOT, SLOT),)).of())
    parts = outside(within(stored, reached, _BEGINS), old, _SAME_PART).unionByName(fresh)
    scope = bound(around, lambda extent: (between("start_date_time", extent, NONE, NONE),))
    made, before = comparable(derived, excursions(parts), kept), comparable(derived, before, kept)
    replace_rows(lake, EXCURSIONS, made, stored=within(before, reached, _BEGINS), bounds=[scope])


def _since(time: dt.datetime | None) -> str:
    """Return a time in SQL; one before all others for None."""
    return f"timestamp_micros({0 if time is None else micros_of(time)})"
