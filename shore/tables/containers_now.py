"""Table ``containers_now``: the last known state of every container.

The parts of a row come from different tables: the newest reading (``newest_readings``), the holder (``holders``), the
open alerts (``open_alerts``). ``with_places_and_bookings`` joins them with the line, the site or ship, its position and
the booking. The SQL runs in Spark and in DuckDB.

Of a ship at sea, digests arrive before the readings (``shore.tables.operations.DIGESTS``). What a digest says of a box
counts like a reading of that time, until the reading or a newer one is there; ``reading_source`` says which it is.

The newest reading by the device's clock counts. A clock ahead of the moment of receipt counts as that moment, so a
wrong clock cannot freeze a box's state. "Now" is the box's own: the newest time of its reading or its custody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from shore.tables.model import TIME, Column, Table
from shore.tables.valid_bookings import VALID_BOOKINGS, covers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT, _DOUBLE, _BOOL, _LONG = pa.string(), pa.float64(), pa.bool_(), pa.int64()

READING_COLUMNS = (
    Column("reading_date_time", TIME, "Device time of its newest reading, at most when that was received"),
    Column("device_date_time", TIME, "That reading's device time"),
    Column("received_date_time", TIME, "When a site's bridge received it"),
    Column("log", _TEXT, "Its log"),
    Column("log_offset", _LONG, "Its offset there"),
    Column("device_id", _TEXT, "DCSA RMO deviceID: the sensor"),
    Column("supply_temperature", _DOUBLE, "Air supplied to the cargo", "Cel"),
    Column("return_temperature", _DOUBLE, "Air returned from the cargo", "Cel"),
    Column("ambient_temperature", _DOUBLE, "Outside the box", "Cel"),
    Column("relative_humidity", _DOUBLE, "Relative humidity", "%"),
    Column("setpoint_temperature", _DOUBLE, "Temperature set point", "Cel"),
    Column("is_connected_to_power_source", _BOOL, "TIC 4.0 plugged"),
    Column("is_powered", _BOOL, "TIC 4.0 powered: plugged and switched on"),
    Column("immersed", _BOOL, "Water contact"),
    Column("door_open", _BOOL, "Door open"),
    Column("own_latitude", _DOUBLE, "WGS 84, as the reading has it", "deg"),
    Column("own_longitude", _DOUBLE, "WGS 84, as the reading has it", "deg"),
)

SOURCE_COLUMNS = (
    Column(
        "reading_source",
        _TEXT,
        "READING, or DIGEST: what the ship's digest says until the reading arrives. A digest has no device, receipt, "
        "ambient temperature, humidity and position of its own; log and log_offset are the digest's then",
    ),
    Column("in_band", _BOOL, "DIGEST: whether the ship finds the air within the tolerance; null where not judged"),
)

CONTAINERS_NOW = Table(
    name="containers_now",
    title="Last known state of every container",
    columns=(
        Column("equipment_reference", _TEXT, "ISO 6346 container number"),
        Column("owner_code", _TEXT, "Its ISO 6346 owner code with category"),
        Column("line", _TEXT, "Line of the box, by its owner code; null where the topology does not know the code"),
        Column("seen_date_time", TIME, "Newest time known of it: of its reading or its custody"),
        *READING_COLUMNS,
        Column("latitude", _DOUBLE, "WGS 84: its own, else that of the ship that holds it", "deg"),
        Column("longitude", _DOUBLE, "WGS 84: its own, else that of the ship that holds it", "deg"),
        Column("position_source", _TEXT, "OWN or SHIP; null without a position"),
        Column("position_date_time", TIME, "When it was there"),
        Column("holder", _TEXT, "Site that holds its log; null when it has left the system or nothing is known"),
        Column("holder_kind", _TEXT, "ship, port, hq"),
        Column("un_location_code", _TEXT, "UN/LOCODE of the holder; null aboard"),
        Column("vessel_imo_number", _TEXT, "Ship that holds it; null ashore"),
        Column("vessel", _TEXT, "Its name in the topology"),
        Column("held_since", TIME, "When the event happened that gave it to the holder, or took it out of the system"),
        Column("custody_event", _TEXT, "That event: GTIN, LOAD, DISC, GTOT, HAND, SEIZURE"),
        Column("open_alerts", _LONG, "Alerts that are open, raised by the site or by shore"),
        Column("worst_severity", _TEXT, "Worst of them: CRITICAL, ALARM, WARNING; null without one"),
        Column("booking_reference", _TEXT, "Booking valid at seen_date_time; of several the one that began last"),
        Column("customer", _TEXT, "Its customer"),
        *SOURCE_COLUMNS,
    ),
    key=("equipment_reference",),
    grain="One row per container with a reading, an entry of custody, a booking or an alert.",
    late="A reading or digest older than the stored one changes nothing, and of one time the reading counts. The "
    "rest of a box's row is made again from custody, alerts, bookings and ships_now whenever one of them changes.",
    layout="Not partitioned: one row a container.",
)

READING_NAMES: Final = tuple(column.name for column in (*READING_COLUMNS, *SOURCE_COLUMNS))

OBSERVED: Final = """
select equipment_reference,
    least(device_date_time, coalesce(received_date_time, device_date_time)) as reading_date_time,
    device_date_time, received_date_time, log, log_offset, device_id, supply_temperature, return_temperature,
    ambient_temperature, relative_humidity, setpoint_temperature, is_connected_to_power_source, is_powered, immersed,
    door_open, latitude as own_latitude, longitude as own_longitude, 'READING' as reading_source,
    cast(null as boolean) as in_band
from {readings}
where device_date_time is not null and equipment_reference is not null
"""
"""The rows and columns of ``readings`` that count here."""

DIGESTED: Final = """
select box.equipment_reference, box.reading_date_time, box.reading_date_time as device_date_time,
    cast(null as timestamp) as received_date_time, log, log_offset, cast(null as string) as device_id,
    box.supply_temperature, box.return_temperature, cast(null as double) as ambient_temperature,
    cast(null as double) as relative_humidity, box.setpoint_temperature, box.is_connected_to_power_source,
    box.is_powered, box.immersed, box.door_open, cast(null as double) as own_latitude,
    cast(null as double) as own_longitude, 'DIGEST' as reading_source, box.in_band
from (select log, log_offset, explode(boxes) as box from {digests}) said
"""
"""What ``digests`` say of each box, with the columns of ``OBSERVED``."""

# Only the newest readings of each container are sorted, so a long history costs one aggregation.
NEWEST: Final = """
with latest as (
    select equipment_reference, max(reading_date_time) as reading_date_time from {observed} observed group by 1
)
select * from (
    select o.*, row_number() over (
        partition by o.equipment_reference order by o.reading_source desc, o.log desc, o.log_offset desc
    ) as age
    from {observed} o
    join latest l on l.equipment_reference = o.equipment_reference and l.reading_date_time = o.reading_date_time
) ranked
where age = 1
"""

HOLDERS: Final = """
select equipment_reference, holder, from_date_time as held_since, event as custody_event from (
    select *, row_number() over (
        partition by equipment_reference order by from_date_time desc, log, term desc
    ) as age
    from (select *, row_number() over (partition by log order by term desc) as newest from {custody}) terms
    where newest = 1 and equipment_reference is not null
) ranked
where age = 1
"""

# Alerts of several sites, or of a site and of shore, about one condition count once, and each site ends only its own.
OPEN_ALERTS: Final = """
with told as (
    select equipment_reference, split_part(log, '.', 2) as raised_at, alert_id, alert_id as condition_id,
        coalesce(revision, 0) as revision, severity, state, log, log_offset
    from {alerts}
    where problem is null
    union all
    select equipment_reference, 'shore', alert_id, coalesce(condition_id, alert_id), revision, severity, state,
        log, log_offset
    from {alerts_ashore}
),
newest as (
    select *, row_number() over (
        partition by equipment_reference, raised_at, alert_id order by revision desc, log, log_offset desc
    ) as age
    from told
    where equipment_reference <> ''
)
select
    equipment_reference,
    count(distinct condition_id) filter (where state <> 'CLEARED') as open_alerts,
    max(case severity when 'CRITICAL' then 3 when 'ALARM' then 2 when 'WARNING' then 1 end)
        filter (where state <> 'CLEARED') as worst
from newest
where age = 1
group by equipment_reference
"""

NOW: Final = f"""
with known as (
    select equipment_reference, {", ".join(f"r.{name}" for name in READING_NAMES)},
        c.holder, c.held_since, c.custody_event, coalesce(a.open_alerts, 0) as open_alerts, a.worst,
        greatest(r.reading_date_time, c.held_since) as seen_date_time
    from {{newest}} r
    full join {{held}} c using (equipment_reference)
    full join {{alerted}} a using (equipment_reference)
    full join (select distinct equipment_reference from {{bookings}}) b using (equipment_reference)
    where equipment_reference is not null
),
booked as (
    select k.*, v.booking_reference, v.customer, row_number() over (
        partition by k.equipment_reference order by v.valid_from desc, v.booking_reference
    ) as age
    from known k
    left join ({VALID_BOOKINGS}) v on v.equipment_reference = k.equipment_reference
        and {covers("v", "k.seen_date_time")}
)
select
    k.*,
    substr(k.equipment_reference, 1, 4) as owner_code,
    o.line,
    coalesce(k.own_latitude, p.latitude) as latitude,
    case when k.own_latitude is null then p.longitude else k.own_longitude end as longitude,
    case when k.own_latitude is not null then 'OWN' when p.latitude is not null then 'SHIP' end as position_source,
    case when k.own_latitude is null then p.device_date_time else k.reading_date_time end as position_date_time,
    s.kind as holder_kind,
    s.un_location_code,
    s.vessel_imo_number,
    case when s.kind = 'ship' then s.title end as vessel,
    case k.worst when 3 then 'CRITICAL' when 2 then 'ALARM' when 1 then 'WARNING' end as worst_severity
from booked k
left join {{owners}} o on o.owner_code = substr(k.equipment_reference, 1, 4)
left join {{sites}} s on s.site = k.holder
left join {{ships_now}} p on p.vessel_imo_number = s.vessel_imo_number
where k.age = 1
"""  # noqa: S608  # constants of this package


def containers_now(
    readings: DataFrame,
    custody: DataFrame,
    alerts: DataFrame,
    alerts_ashore: DataFrame,
    bookings: DataFrame,
    ships_now: DataFrame,
    sites: DataFrame,
    owners: DataFrame,
    digests: DataFrame,
) -> DataFrame:
    """Compute the state of all containers that these rows are about. All rows of a container must be there."""
    return with_places_and_bookings(
        newest_readings(observed(readings).unionByName(digested(digests))),
        holders(custody),
        open_alerts(alerts, alerts_ashore),
        bookings=bookings,
        ships_now=ships_now,
        sites=sites,
        owners=owners,
    )


def observed(readings: DataFrame) -> DataFrame:
    """Return the part of ``readings`` that counts here: ``equipment_reference`` and ``READING_NAMES``."""
    found: DataFrame = readings.sparkSession.sql(OBSERVED, readings=readings)
    return found


def digested(digests: DataFrame) -> DataFrame:
    """Return what ``digests`` say of each box, with the columns of ``observed``."""
    found: DataFrame = digests.sparkSession.sql(DIGESTED, digests=digests)
    return found


def newest_readings(observed: DataFrame) -> DataFrame:
    """Return each container's newest reading from rows of ``observed`` and ``digested``."""
    found: DataFrame = observed.sparkSession.sql(NEWEST, observed=observed)
    return found.select("equipment_reference", *READING_NAMES)


def holders(custody: DataFrame) -> DataFrame:
    """Return ``holder``, ``held_since`` and ``custody_event`` by container, from the newest term of its newest log."""
    found: DataFrame = custody.sparkSession.sql(HOLDERS, custody=custody)
    return found


def open_alerts(alerts: DataFrame, alerts_ashore: DataFrame) -> DataFrame:
    """Return ``open_alerts`` and ``worst`` by container with an alert. ``worst`` is the rank of the worst open alert: 1
    WARNING, 2 ALARM, 3 CRITICAL, null where none is open."""
    found: DataFrame = alerts.sparkSession.sql(OPEN_ALERTS, alerts=alerts, alerts_ashore=alerts_ashore)
    return found


def with_places_and_bookings(
    newest: DataFrame,
    held: DataFrame,
    alerted: DataFrame,
    *,
    bookings: DataFrame,
    ships_now: DataFrame,
    sites: DataFrame,
    owners: DataFrame,
) -> DataFrame:
    """Return the rows of all containers that have one of the parts or a booking.

    Args:
        newest: From ``newest_readings``.
        held: From ``holders``.
        alerted: From ``open_alerts``.
    """
    found: DataFrame = newest.sparkSession.sql(
        NOW,
        newest=newest,
        held=held,
        alerted=alerted,
        bookings=bookings,
        ships_now=ships_now,
        sites=sites,
        owners=owners,
    )
    return found
