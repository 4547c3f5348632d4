"""What a ship at sea says of a container, for the cargo owner's feed, until the readings arrive.

One record per container (``digests/<container>@0``): the newest digest that the customer may see
(``fairlead.records.digest``). Each newer digest is a revision of the record. As soon as a reading of that time or a
later one is there, the record is retracted.

Retention may have deleted the reading that had reached an old digest. So a digest from before the oldest reading that
is surely there only stays where it stands in a feed, and is never delivered anew. A digest that retention has deleted
itself stays where it stands until a reading reaches it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from shore.feeds.coarse import exact_time
from shore.feeds.periods import covered
from shore.tables.model import TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SEEN: Final = "least(device_date_time, coalesce(received_date_time, device_date_time))"
"""The time of a reading as digests have it: a clock that is ahead counts as the moment of receipt."""

_REACHED: Final = f"""
select r.equipment_reference, date_trunc('MILLISECOND', max({SEEN})) as at
from {{readings}} r join {{since}} s on s.equipment_reference = r.equipment_reference
where r.device_date_time >= s.since
group by r.equipment_reference
"""  # noqa: S608  # our own names

_DIGESTS: Final = f"""
with said as (
    select d.vessel_imo_number, d.log, d.log_offset, d.box.*
    from (select vessel_imo_number, log, log_offset, explode(boxes) as box from {{digests}}) d
    join {{since}} s on s.equipment_reference = d.box.equipment_reference
    where d.box.reading_date_time >= s.since
),
seen as (
    select p.customer, said.* from said join {{periods}} p on p.equipment_reference = said.equipment_reference
    where p.grain = 'detailed' and {covered("said.reading_date_time")}
),
newest as (
    select *, row_number() over (
        partition by customer, equipment_reference order by reading_date_time desc, log, log_offset
    ) as place
    from seen
)
select
    n.customer,
    concat('digests/', n.equipment_reference) as log,
    0L as log_offset,
    n.equipment_reference,
    n.reading_date_time as device_date_time,
    to_json(named_struct(
        'kind', 'digest',
        'equipmentReference', n.equipment_reference,
        'vesselIMONumber', n.vessel_imo_number,
        'readingDateTime', {exact_time("n.reading_date_time")},
        'setpointTemperature', n.setpoint_temperature,
        'supplyTemperature', n.supply_temperature,
        'returnTemperature', n.return_temperature,
        'isConnectedToPowerSource', n.is_connected_to_power_source,
        'isPowered', n.is_powered,
        'inBand', n.in_band,
        'isDisturbed', n.is_disturbed,
        'doorOpen', n.door_open,
        'immersed', n.immersed
    )) as content
from newest n
left join {{reached}} r on r.equipment_reference = n.equipment_reference
where n.place = 1 and (r.at is null or r.at < n.reading_date_time)
"""  # noqa: S608  # our own names

_NOT_REACHED: Final = """
select m.* from {made} m
left join (select customer, log from {given} where log like 'digests/%' and not taken_back) g
    on g.customer = m.customer and g.log = m.log
where m.log not like 'digests/%' or m.device_date_time >= timestamp_seconds({limit}) or g.customer is not null
"""

_SINCE: Final = """
select g.* from {given} g left join {since} s on s.equipment_reference = g.equipment_reference
where g.log not like 'digests/%' or s.since is null or g.device_date_time >= s.since
"""

_WITHOUT_DELETED: Final = f"""
select g.* from {{given}} g
left join {{made}} m on m.customer = g.customer and m.log = g.log
left join {{periods}} p
    on p.customer = g.customer and p.equipment_reference = g.equipment_reference and p.grain = 'detailed'
left join {{reached}} r on r.equipment_reference = g.equipment_reference
where not (
    g.log like 'digests/%' and m.customer is null and g.device_date_time < timestamp_seconds({{limit}})
    and coalesce({covered("g.device_date_time")}, false) and (r.at is null or r.at < g.device_date_time)
)
"""  # noqa: S608


def times_reached(readings: DataFrame, since: DataFrame) -> DataFrame:
    """Return how far readings have come: the newest time (``at``, as digests have it) by ``equipment_reference``.

    Args:
        readings: Readings of the containers in ``since``, from that time on.
        since: From when on digests and readings count (``since``, whole milliseconds as digests have them), by
            ``equipment_reference``. No digest of an earlier time may be due.
    """
    return readings.sparkSession.sql(_REACHED, readings=readings, since=since)


def digests_at_sea(digests: DataFrame, reached: DataFrame, periods: DataFrame, since: DataFrame) -> DataFrame:
    """Compute the digests of all customers, as rows of ``shore.feeds.coarse.MADE``.

    Args:
        digests: At least those with readings at or after the first time in ``since``.
        reached: From ``times_reached``, with the same ``since``.
        periods: From ``shore.feeds.periods.periods``.
    """
    return digests.sparkSession.sql(_DIGESTS, digests=digests, reached=reached, periods=periods, since=since)


def without_earlier_digests(given: DataFrame, since: Mapping[str, dt.datetime]) -> DataFrame:
    """Return what feeds have (rows of ``newest_rows``) without digests of these containers from before these times."""
    if not since:
        return given
    times = pa.table({"equipment_reference": list(since), "since": pa.array(list(since.values()), TIME)})
    rows = given.sparkSession.createDataFrame(times)
    return given.sparkSession.sql(_SINCE, given=given, since=F.broadcast(rows))


def without_reached_before(made: DataFrame, given: DataFrame, readings_since: dt.datetime | None) -> DataFrame:
    """Return what feeds must have (rows of ``shore.feeds.coarse.MADE``) without digests that a deleted reading may have
    reached; those that stand in a feed were not reached.

    Args:
        given: What feeds have (rows of ``shore.feeds.entitlement.newest_rows``), with all digests of these containers.
        readings_since: Retention may have deleted earlier readings; None: it has deleted none.
    """
    if readings_since is None:
        return made
    limit = int(readings_since.timestamp())  # the start of a day
    return made.sparkSession.sql(_NOT_REACHED, made=made, given=given, limit=limit)


def without_deleted_digests(
    given: DataFrame,
    made: DataFrame,
    reached: DataFrame,
    periods: DataFrame,
    digests_since: dt.datetime,
) -> DataFrame:
    """Return what feeds have (rows of ``newest_rows``) without digests that retention may have deleted, that no reading
    has reached, and that their customers may see. These stay in the feeds as they are.

    Args:
        made: What feeds must have (rows of ``shore.feeds.coarse.MADE``): a newer digest takes the place of an old one.
        reached, periods: As in ``digests_at_sea``.
        digests_since: Retention may have deleted digests of earlier times.
    """
    limit = int(digests_since.timestamp())  # the start of a day
    return given.sparkSession.sql(
        _WITHOUT_DELETED, given=given, made=made, reached=reached, periods=periods, limit=limit
    )
