"""Table ``schedules``: when ships are expected at ports and when they came, and what is odd about it. From ``events``.

Ships, lines and terminals publish transport events that are planned (PLN) or estimated (EST). The one written down last
counts. Nothing that only happened is in this table; ``port_calls`` has it. Events are matched by ship, voyage, port and
movement, so a second call at one port in one voyage is the same row.

A schedule may contradict itself, or may have been wrong. Its rows are kept as published, and marked:

- ``contradictory``: the arrival at this port is expected after the departure of the same voyage.
- ``eta_changed``: the arrival is expected more hours earlier or later than was said first than the topology's
  ``shore.exceptions.eta_hours``.
- ``port_omitted``: nothing of the call happened, and the ship has arrived where it was expected later, or which it has
  reached later without a schedule. The mark goes when the ship comes after all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shore.tables.model import TIME, Column, Table
from shore.tables.operations import COPIES, HAPPENED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT, _BOOL = pa.string(), pa.bool_()

SCHEDULES = Table(
    name="schedules",
    title="Schedules of ships, and exceptions from them",
    columns=(
        Column("vessel_imo_number", _TEXT, "IMO number of the ship"),
        Column("vessel", _TEXT, "Its name in the topology; null for a stranger"),
        Column("voyage_reference", _TEXT, "Voyage"),
        Column("un_location_code", _TEXT, "UN/LOCODE of the port"),
        Column("movement", _TEXT, "ARRI or DEPA"),
        Column("first_date_time", TIME, "When it was expected by the first schedule"),
        Column("expected_date_time", TIME, "When it is expected by the newest schedule"),
        Column("expected_since", TIME, "When the newest schedule was written down"),
        Column("schedules", pa.int64(), "How many planned and estimated events there were"),
        Column("actual_date_time", TIME, "When it happened: the first ARRI, the last DEPA; null: not yet"),
        Column("contradictory", _BOOL, "Whether the arrival is expected after the departure"),
        Column(
            "eta_changed",
            _BOOL,
            "Whether the arrival has moved by more than the topology's `shore.exceptions.eta_hours`",
        ),
        Column("port_omitted", _BOOL, "Whether the ship has gone on without this call"),
    ),
    key=("vessel_imo_number", "voyage_reference", "un_location_code", "movement"),
    grain="One row per ship, voyage, port, and arrival or departure that was planned or estimated.",
    late="All rows of the ships that new events are about are made again: the time at which a schedule was written "
    "down decides, not the time of its arrival.",
    layout="Not partitioned: some rows a ship and voyage.",
)

_CALL: Final = "vessel_imo_number, voyage_reference, un_location_code, movement"


def eta_changed(eta_hours: int) -> str:
    """Return the SQL condition that the arrival of a row has moved by more than so many hours."""
    moved = "abs(unix_micros(expected_date_time) - unix_micros(first_date_time))"
    return f"(movement = 'ARRI' and {moved} > {eta_hours * 3_600_000_000})"


def schedules_sql(eta_hours: int) -> str:
    """Return the statement over ``{events}`` and ``{sites}``, for Spark and DuckDB."""
    return f"""
with copies as (
    select e.*, coalesce(e.un_location_code, p.un_location_code) as port,
        row_number() over (partition by e.vessel_imo_number, event_id order by {COPIES}) as copy
    from {{events}} e
    left join {{sites}} p on e.log = 'events.' || p.site
    where problem is null and transport_event_type_code is not null
        and e.vessel_imo_number is not null and coalesce(e.un_location_code, p.un_location_code) is not null
),
told as (
    select vessel_imo_number, coalesce(voyage_reference, '') as voyage_reference, port as un_location_code,
        transport_event_type_code as movement, event_date_time, event_created_date_time, event_id,
        {HAPPENED} as happened
    from copies
    where copy = 1
),
ordered as (
    select *,
        row_number() over (partition by {_CALL}, happened order by event_created_date_time, event_id) as oldest,
        row_number() over (
            partition by {_CALL}, happened order by event_created_date_time desc, event_id desc
        ) as newest
    from told
),
calls as (
    select {_CALL},
        max(case when not happened and oldest = 1 then event_date_time end) as first_date_time,
        max(case when not happened and newest = 1 then event_date_time end) as expected_date_time,
        max(case when not happened then event_created_date_time end) as expected_since,
        count(case when not happened then 1 end) as schedules,
        case movement when 'ARRI' then min(case when happened then event_date_time end)
            else max(case when happened then event_date_time end) end as actual_date_time
    from ordered
    group by {_CALL}
),
reached as (
    select *, {eta_changed(eta_hours)} as eta_changed, max(
        case when movement = 'ARRI' and actual_date_time is not null
            then coalesce(expected_date_time, actual_date_time) end
    ) over (partition by vessel_imo_number) as farthest
    from calls
)
select
    c.vessel_imo_number, v.title as vessel, c.voyage_reference, c.un_location_code, c.movement,
    c.first_date_time, c.expected_date_time, c.expected_since, c.schedules, c.actual_date_time,
    coalesce(
        case c.movement when 'ARRI' then c.expected_date_time > o.expected_date_time
            else o.expected_date_time > c.expected_date_time end,
        false
    ) as contradictory,
    c.eta_changed,
    coalesce(
        c.movement = 'ARRI' and c.actual_date_time is null and o.actual_date_time is null
            and c.farthest > c.expected_date_time,
        false
    ) as port_omitted
from reached c
left join calls o on o.vessel_imo_number = c.vessel_imo_number and o.voyage_reference = c.voyage_reference
    and o.un_location_code = c.un_location_code and o.movement <> c.movement
left join {{sites}} v on v.kind = 'ship' and v.vessel_imo_number = c.vessel_imo_number
where c.expected_date_time is not null
"""  # noqa: S608  # constants of this package


def schedules(events: DataFrame, sites: DataFrame, eta_hours: int) -> DataFrame:
    """Return the schedules of ships.

    Args:
        events: All transport events of each of its ships.
        sites: All sites of the topology: the names of ships, and the ports of events that name none.
        eta_hours: By so many hours an arrival may move, before it is an exception.
    """
    found: DataFrame = events.sparkSession.sql(schedules_sql(eta_hours), events=events, sites=sites)
    return found
