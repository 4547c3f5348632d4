"""What feeds lack and what they have too much, as DuckDB SQL over relations of the tables' rows. Opens no tables.

What belongs in a feed and what stands in it are compared record by record. The origin (``log``, ``log_offset``)
identifies a record, and the newest row of it in table ``feeds`` says whether the customer has it. A record that is made
for a feed (``coarse``, ``movements``, ``ashore``) has a name with a slash in place of a log. Table ``feeds`` has a
digest of it; another digest is another revision.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from shore.feeds.coarse import last_hour_without_readings
from shore.feeds.periods import PERIODS
from shore.feeds.readers import FeedReader, reader_rows
from shore.tables.bookings import STATES
from shore.tables.feeds import NEWEST
from shore.tables.model import TIME
from shore.tables.valid_bookings import covers
from tests.support.oracle.entitlement import ashore, coarse, movements

BOX: Final = "equipment_reference"

TOUCHED: Final = pa.schema(
    [
        pa.field("equipment_reference", pa.string()),  # of a ship's event: its IMO number
        pa.field("log", pa.string()),  # null: all of the container's records; without a container: all movements
        pa.field("first_offset", pa.int64()),
    ]
)

DUE: Final = pa.schema(
    [
        pa.field("customer", pa.string()),
        pa.field("log", pa.string()),
        pa.field("log_offset", pa.int64()),
        pa.field("equipment_reference", pa.string()),
        pa.field("device_date_time", TIME),
        pa.field("received_date_time", TIME),
        pa.field("late", pa.bool_()),
        pa.field("payload", pa.binary()),
        pa.field("retracts", pa.int64()),  # the offset in the feed of the record that is taken back; null: a delivery
        pa.field("revision", pa.int32()),  # of a record made for the feed: counts from 0; null: a copied record
    ]
)


def _reached(row: str) -> str:
    """SQL for whether a row with box, log and offset is among what was touched."""
    return f"""exists (
        select 1 from touched t
        where t.equipment_reference = {row}.equipment_reference
            and (t.log is null or (t.log = {row}.log and {row}.log_offset >= t.first_offset))
    )"""  # noqa: S608  # our own names


_PREPARED: Final = (
    f"create temp table states as {STATES.format(booking_changes='booking_changes')}",
    f"create temp table periods as select * from ({PERIODS.format(bookings='states')}) "  # noqa: S608
    "where customer in (select customer from customers)",
    "create temp table boxes as select distinct p.customer, c.grain, p.equipment_reference "
    "from periods p join customers c using (customer) where c.grain not in ('movements', 'alerts') union "
    "select c.customer, c.grain, t.equipment_reference from touched t join customers c "
    "on c.grain = 'alerts' and list_contains(c.owners, left(t.equipment_reference, 4))",
)

_RECORDS: Final = """
    select 'readings' as kind, log, log_offset, equipment_reference, device_date_time, received_date_time, late, payload
    from readings
    union all
    select 'alerts', log, log_offset, equipment_reference, event_date_time, null, false, payload
    from alerts
    union all
    select 'custody', log, log_offset, split_part(entry_log, '.', 2), event_date_time, null, false, payload
    from custody_entries
    where entry_type = 'grant'
"""

_THERE: Final = f"""
create temp table there as
select {NEWEST}
from feeds f
where customer in (select customer from customers) and log not like '%/%' and {_reached("f")}
group by customer, log, log_offset
"""  # noqa: S608  # our own names

_MADE_THERE: Final = f"""
create temp table made_there as
select {NEWEST}
from feeds f
where log like '%/%' and exists (
    select 1 from scope s
    where s.customer = f.customer and s.kind = split_part(f.log, '/', 1) and s.name = split_part(f.log, '/', 2)
        and f.log_offset >= s.first
)
group by customer, log, log_offset
"""  # noqa: S608

_SCOPE: Final = """
create temp table scope as
select distinct c.customer, k.kind, t.equipment_reference as name, 0::bigint as first
from touched t, customers c, (values ('hours'), ('milestones')) k(kind)
where t.log is null and t.equipment_reference is not null
"""
_DERIVED: Final = """
create temp table derived (
    customer varchar, log varchar, log_offset bigint, equipment_reference varchar, device_date_time timestamptz,
    content varchar
)
"""

_TOO_MUCH: Final = f"""
with records as ({_RECORDS}
)
select
    h.customer, h.log, h.log_offset, h.equipment_reference,
    coalesce(r.device_date_time, h.device_date_time) as device_date_time,
    null as received_date_time, false as late, null as payload, h.feed_offset as retracts, null as revision
from there h
join customers c on c.customer = h.customer
left join records r on r.log = h.log and r.log_offset = h.log_offset
where not h.taken_back
    and h.equipment_reference in (select equipment_reference from touched where log is null)
    and (
        c.grain = 'movements'
        or (c.grain <> 'detailed' and split_part(h.log, '.', 1) <> 'alerts')
        or (c.grain = 'alerts' and not list_contains(c.owners, left(h.equipment_reference, 4)))
        or (h.log like 'custody.%' and r.log is null)  -- not believed any more
        or (c.grain <> 'alerts' and not exists (
            select 1 from periods p
            where p.customer = h.customer and p.equipment_reference = h.equipment_reference
                and {covers("p", "coalesce(r.device_date_time, h.device_date_time)")}
        ))
    )
order by h.customer, h.log, h.log_offset
"""  # noqa: S608

_TOO_LITTLE: Final = f"""
with records as ({_RECORDS}
)
select
    x.customer, r.log, r.log_offset, r.equipment_reference, r.device_date_time, r.received_date_time, r.late, r.payload,
    null as retracts, null as revision
from records r
join boxes x on x.equipment_reference = r.equipment_reference
where (x.grain = 'detailed' or r.kind = 'alerts')
    and {_reached("r")}
    and (x.grain = 'alerts' or exists (
        select 1 from periods p
        where p.customer = x.customer and p.equipment_reference = r.equipment_reference
            and {covers("p", "r.device_date_time")}
    ))
    and not exists (
        select 1 from there h
        where h.customer = x.customer and h.log = r.log and h.log_offset = r.log_offset and not h.taken_back
    )
order by x.customer, r.log, r.log_offset
"""  # noqa: S608

_MADE_TOO_MUCH: Final = f"""
select
    h.customer, h.log, h.log_offset, h.equipment_reference, h.device_date_time,
    null as received_date_time, false as late, null as payload, h.feed_offset as retracts, null as revision
from made_there h
where not h.taken_back and not exists (
    select 1 from derived d where d.customer = h.customer and d.log = h.log and d.log_offset = h.log_offset
) and not {ashore.DELETED_ALERT} and not exists (
    select 1 from staying s where s.customer = h.customer and s.log = h.log and s.log_offset = h.log_offset
)
order by h.customer, h.log, h.log_offset
"""  # noqa: S608

_MADE_TOO_LITTLE: Final = """
select
    d.customer, d.log, d.log_offset, d.equipment_reference, d.device_date_time,
    null as received_date_time, false as late, encode(d.content) as payload, null as retracts,
    coalesce(h.revision + 1, 0)::integer as revision
from derived d
left join made_there h on h.customer = d.customer and h.log = d.log and h.log_offset = d.log_offset
where (h.customer is null or h.taken_back or h.digest is distinct from md5(d.content)) and not exists (
    select 1 from staying s where s.customer = d.customer and s.log = d.log and s.log_offset = d.log_offset
)
order by d.customer, d.device_date_time, d.log, d.log_offset
"""


def due(
    readers: Collection[FeedReader],
    touched: pa.Table,
    relations: Mapping[str, Any],
    readings_since: dt.datetime | None,
) -> pa.Table:
    """Compare what is due to these customers, among what was touched, with their feeds.

    Args:
        touched: Rows of ``TOUCHED``.
        relations: ``readings``, ``alerts``, ``alerts_ashore``, ``custody_entries``, ``booking_changes``, ``events``,
            ``digests`` and ``feeds``, with all rows; for feeds of movements and coarse ones ``sites`` and ``owners``.
        readings_since: Retention may have deleted earlier readings; None: it has deleted none.

    Returns:
        Rows of ``DUE``: copied records to take back, then copied records to deliver, then the same for records made for
        feeds.
    """
    whole = touched["log"].null_count > 0
    everything = pc.any(pc.and_(pc.is_null(touched["log"]), pc.is_null(touched[BOX]))).as_py() is True
    with duckdb.connect(":memory:") as connection:
        connection.execute("set timezone = 'UTC'")
        given = {"touched": touched, "customers": reader_rows(readers), **relations}
        for name, relation in given.items():
            connection.register(name, relation)
        for statement in (*_PREPARED, _THERE, _SCOPE, _DERIVED):
            connection.execute(statement)
        coarse.derive(connection)
        movements.derive(connection, everything=everything)
        ashore.derive(connection)
        connection.execute(_MADE_THERE)
        connection.execute(coarse.STAYING.format(hour=last_hour_without_readings(readings_since)))
        if readings_since is not None:
            connection.execute(ashore.WITHOUT_REACHED, [readings_since])
        made = (_MADE_TOO_MUCH, _MADE_TOO_LITTLE)
        statements = (_TOO_MUCH, _TOO_LITTLE, *made) if whole else (_TOO_LITTLE, *made)
        return pa.concat_tables([connection.sql(each).to_arrow_table().cast(DUE) for each in statements])
