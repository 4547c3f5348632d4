"""``conditions``, ``excursions``, ``excursion_parts`` and ``mkt`` as they must be, from all of ``readings``.

No Spark. Readings are taken some hours at a time, so that no more than these are in memory.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from shore.delta import datasets
from shore.jobs import hourly
from shore.jobs.hourly import DAY, HOUR
from shore.jobs.sessions import parts_of, sessions_of
from shore.paths import TablePaths
from shore.tables import conditions as conditions_table
from shore.tables import mkt as mkt_table
from shore.tables.bands import IN_TIME, USED
from shore.tables.conditions import CONDITIONS
from shore.tables.excursions import EXCURSION_PARTS, SILENCE, SLOT
from shore.tables.hours import HOUR_SCHEMA, hours_sql
from shore.tables.mkt import ACTIVATION_ENERGY, MKT
from shore.tables.model import TIME

_AT_ONCE: Final = 1_000_000  # readings, or those of one hour: some 500 MB
_BEGIN: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
_END: Final = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
_COUNTS = f"""
select date_trunc('hour', device_date_time) as hour, count(*) as n from {{readings}} where {IN_TIME} group by 1
"""  # noqa: S608  # the tables' own names
_COUNT: Final = pa.schema([("hour", TIME), ("n", pa.int64())])


def conditions(paths: TablePaths) -> pa.Table:
    """Table ``conditions`` as it must be."""
    units = hourly.as_conditions(hours(paths, ACTIVATION_ENERGY))
    days = hourly.windows(CONDITIONS, conditions_table.DAYS, units, _BEGIN, _END + DAY, hours=24)
    return pa.concat_tables([units, days])


def mkt(paths: TablePaths) -> pa.Table:
    """Table ``mkt`` as it must be, with the activation energy that its rows have."""
    energy = stored_energy(paths) or ACTIVATION_ENERGY
    units = hourly.as_mkt(hours(paths, energy), energy)
    days = hourly.windows(MKT, mkt_table.DAYS, units, _BEGIN, _END + DAY, hours=24)
    whole = days.filter(pc.field("whole_day"))
    months = hourly.windows(MKT, mkt_table.MONTHS, whole, _BEGIN, _END + DAY, hours=720)
    return pa.concat_tables([units, days, months])


def excursion_parts(paths: TablePaths) -> pa.Table:
    """Table ``excursion_parts`` as it must be."""
    made = [
        parts_of(_readings(paths, since - SLOT, until + SILENCE + SLOT), since, until) for since, until in _spans(paths)
    ]
    return pa.concat_tables([EXCURSION_PARTS.plain_schema.empty_table(), *made])


def excursions(paths: TablePaths) -> pa.Table:
    """Table ``excursions`` as it must be."""
    return sessions_of(excursion_parts(paths))


def hours(paths: TablePaths, activation_energy: float) -> pa.Table:
    """All hours of all boxes (``shore.tables.hours``)."""
    made = [_hours(paths, since, until, activation_energy) for since, until in _spans(paths)]
    return pa.concat_tables([HOUR_SCHEMA.empty_table(), *made])


def _hours(paths: TablePaths, since: dt.datetime, until: dt.datetime, activation_energy: float) -> pa.Table:
    readings = _readings(paths, since - HOUR, until)
    found = datasets.select(hours_sql(activation_energy, touched=False), HOUR_SCHEMA, readings=readings)
    return found.filter(pc.field("window_start") >= pa.scalar(since, TIME))


def stored_energy(paths: TablePaths) -> float | None:
    """The activation energy of the rows of ``mkt``; None where there is none, or where they differ."""
    rows = datasets.open_dataset(paths, MKT.name)
    found = pc.unique(rows.to_table(columns=["activation_energy"])["activation_energy"]).to_pylist()
    return found[0] if len(found) == 1 else None


def renew_mkt(paths: TablePaths, activation_energy: float) -> bool:
    """Make ``mkt`` anew where it has rows with another activation energy, part by part; False where it has none.

    Broken off and begun again it ends with the same table: until it is done there are rows with the other one.
    """
    other = pc.field("activation_energy") != activation_energy
    if not datasets.open_dataset(paths, MKT.name).count_rows(filter=other):
        return False
    for since, until in _spans(paths):
        made = _hours(paths, since, until, activation_energy)
        for chunk in hourly.chunks(made):
            hourly.store_mkt(paths, made, chunk, activation_energy)
    return True


def _spans(paths: TablePaths) -> Iterator[tuple[dt.datetime, dt.datetime]]:
    """Times [since, until) that together hold all readings, in order: whole hours, with no more readings than fit."""
    dataset = datasets.open_dataset(paths, "readings")
    hours = datasets.select(_COUNTS, _COUNT, readings=dataset).sort_by("hour").to_pylist()
    since: dt.datetime | None = None
    count = 0
    for row in hours:
        if since is not None and count + row["n"] > _AT_ONCE:
            yield since, row["hour"]
            since, count = None, 0
        since, count = since or row["hour"], count + row["n"]
    if since is not None:
        yield since, hours[-1]["hour"] + HOUR


def _readings(paths: TablePaths, since: dt.datetime, until: dt.datetime) -> pa.Table:
    found = datasets.between("device_date_time", since, until)
    return datasets.open_dataset(paths, "readings").to_table(columns=list(USED), filter=found)
