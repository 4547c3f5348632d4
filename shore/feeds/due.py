"""What feeds lack and what they have too much, as SQL by DuckDB over relations of the tables' rows. No tables opened.

What belongs in a feed and what stands in it are compared record by record: a record is named by its origin (``log``,
``log_offset``), and the newest row that table ``feeds`` has of it says whether the customer has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from shore.feeds.periods import NUMBERED, PERIODS, covers
from shore.tables.model import TIME

BOX: Final = "equipment_reference"

TOUCHED: Final = pa.schema(
    [
        pa.field("equipment_reference", pa.string()),
        pa.field("log", pa.string()),  # null: all of the container's records are to be looked at
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
    ]
)

BOXES: Final = "select distinct equipment_reference from states semi join touched using (equipment_reference)"


def _reached(row: str) -> str:
    """Whether a row with box, log and offset is among what was touched."""
    return f"""exists (
        select 1 from touched t
        where t.equipment_reference = {row}.equipment_reference
            and (t.log is null or (t.log = {row}.log and {row}.log_offset >= t.first_offset))
    )"""  # noqa: S608  # our own names


_RECORDS: Final = """
    select log, log_offset, equipment_reference, device_date_time, received_date_time, late, payload
    from readings
    union all
    select log, log_offset, equipment_reference, event_date_time, null, false, payload
    from alerts
    union all
    select log, log_offset, split_part(entry_log, '.', 2), event_date_time, null, false, payload
    from custody_entries
    where entry_type = 'grant'
"""

_THERE: Final = f"""
select
    customer, log, log_offset,
    any_value(equipment_reference) as equipment_reference,
    max(feed_offset) as feed_offset,
    arg_max(device_date_time, feed_offset) as device_date_time,
    arg_max(coalesce(retracts, false), feed_offset) as taken_back
from feeds f
where customer in (select customer from customers) and {_reached("f")}
group by customer, log, log_offset
"""  # noqa: S608

_TOO_MUCH: Final = f"""
with records as ({_RECORDS}
)
select
    h.customer, h.log, h.log_offset, h.equipment_reference,
    coalesce(r.device_date_time, h.device_date_time) as device_date_time,
    null as received_date_time, false as late, null as payload, h.feed_offset as retracts
from there h
left join records r on r.log = h.log and r.log_offset = h.log_offset
where not h.taken_back
    and h.equipment_reference in (select equipment_reference from touched where log is null)
    and not exists (
        select 1 from periods p
        where p.customer = h.customer and p.equipment_reference = h.equipment_reference
            and {covers("p", "coalesce(r.device_date_time, h.device_date_time)")}
    )
order by h.customer, h.log, h.log_offset
limit {{limit}}
"""  # noqa: S608

_TOO_LITTLE: Final = f"""
with records as ({_RECORDS}
),
boxes as (
    select distinct customer, equipment_reference from periods
)
select
    x.customer, r.log, r.log_offset, r.equipment_reference, r.device_date_time, r.received_date_time, r.late, r.payload,
    null as retracts
from records r
join boxes x on x.equipment_reference = r.equipment_reference
where {_reached("r")}
    and exists (
        select 1 from periods p
        where p.customer = x.customer and p.equipment_reference = r.equipment_reference
            and {covers("p", "r.device_date_time")}
    )
    and not exists (
        select 1 from there h
        where h.customer = x.customer and h.log = r.log and h.log_offset = r.log_offset and not h.taken_back
    )
order by x.customer, r.log, r.log_offset
limit {{limit}}
"""  # noqa: S608


class Due:
    """One look at what is due. The relations are registered as they become needed: which boxes are asked about follows
    from the bookings."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, customers: Collection[str], touched: pa.Table) -> None:
        self._connection = connection
        self._all = touched["log"].null_count > 0
        connection.register("touched", touched)
        connection.register("customers", pa.table({"customer": pa.array(list(customers), pa.string())}))

    def boxes(self, booking_changes: Any) -> set[str]:
        """The touched containers that bookings speak of, from all changes of the bookings of touched containers."""
        self._connection.register("booking_changes", booking_changes)
        self._connection.execute(f"create temp table states as {NUMBERED}")
        own = "where customer in (select customer from customers)"
        self._connection.execute(f"create temp table periods as select * from ({PERIODS}) {own}")  # noqa: S608
        return {row[0] for row in self._connection.execute(BOXES).fetchall()}

    def rows(self, relations: Mapping[str, Any], *, limit: int) -> pa.Table:
        """At most ``limit`` rows of ``DUE``: what is to be taken back, then what is to be delivered.

        Args:
            relations: ``readings``, ``alerts``, ``custody_entries`` and ``feeds``, with all rows of ``boxes``.
        """
        for name, relation in relations.items():
            self._connection.register(name, relation)
        self._connection.execute(f"create temp table there as {_THERE}")
        found = [self._select(_TOO_MUCH, limit)] if self._all else []
        left = limit - sum(each.num_rows for each in found)
        if left > 0:
            found.append(self._select(_TOO_LITTLE, left))
        return pa.concat_tables(found)

    def _select(self, statement: str, limit: int) -> pa.Table:
        found: pa.Table = self._connection.sql(statement.format(limit=int(limit))).to_arrow_table()
        return found.cast(DUE)


@contextmanager
def look(customers: Collection[str], touched: pa.Table) -> Iterator[Due]:
    """A look at what is due to these customers, among what was touched (rows of ``TOUCHED``)."""
    with duckdb.connect(":memory:") as connection:
        connection.execute("set timezone = 'UTC'")
        yield Due(connection, customers, touched)


def touched_boxes(touched: pa.Table) -> set[str]:
    """The containers that rows of ``TOUCHED`` name."""
    return set(pc.unique(touched[BOX]).to_pylist()) - {None}
