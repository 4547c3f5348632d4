"""Who may see which record, worked out on the driver: delta-rs opens the tables, DuckDB runs the SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from shore.duck import among, opened
from shore.places import Places
from shore.tables.bookings import STATES
from topologies.model import Topology

_BOX: Final = "equipment_reference"

TOUCHED = pa.schema(
    [
        pa.field("equipment_reference", pa.string()),
        pa.field("log", pa.string()),  # null: all of the container's records are to be looked at
        pa.field("first_offset", pa.int64()),
    ]
)

# The states of bookings that count: the one that holds now of each, as table ``bookings`` has it, unless it is
# cancelled; of customers with a feed here.
NEWEST = f"""
create temp table newest as
select customer, equipment_reference, valid_from, valid_to
from ({STATES.format(booking_changes="booking_changes")})
where is_current and status <> 'CANCELLED' and customer in (select customer from customers)
"""  # noqa: S608  # constants of this package

BOXES = "select distinct equipment_reference from newest semi join touched using (equipment_reference)"

ENTITLED = """
with records as (
    select log, log_offset, equipment_reference, device_date_time, received_date_time, late, payload
    from readings
    union all
    select log, log_offset, equipment_reference, event_date_time, null, false, payload
    from alerts
    union all
    select log, log_offset, split_part(entry_log, '.', 2), event_date_time, null, false, payload
    from custody_entries
    where entry_type = 'grant'
),
boxes as (
    select distinct customer, equipment_reference from newest
)
select
    x.customer, r.log, r.log_offset, r.equipment_reference, r.device_date_time, r.received_date_time, r.late, r.payload
from records r
join boxes x on x.equipment_reference = r.equipment_reference
where exists (
        select 1 from touched t
        where t.equipment_reference = r.equipment_reference
            and (t.log is null or (t.log = r.log and r.log_offset >= t.first_offset))
    )
    and exists (
        select 1 from newest b
        where b.customer = x.customer and b.equipment_reference = r.equipment_reference
            and r.device_date_time >= b.valid_from
            and (b.valid_to is null or r.device_date_time < b.valid_to)
    )
    and not exists (
        select 1 from feeds f where f.customer = x.customer and f.log = r.log and f.log_offset = r.log_offset
    )
order by x.customer, r.log, r.log_offset
limit {limit}
"""


def customers_here(topology: Topology) -> tuple[str, ...]:
    """Customers whose feed begins at the site where shore runs."""
    if topology.shore is None:
        return ()
    return tuple(name for name, customer in topology.customers.items() if customer.feed_at == topology.shore.at)


def all_touched(places: Places) -> pa.Table:
    """Rows of ``TOUCHED`` that have all records looked at, of every container that was ever booked."""
    changes = opened(places, "booking_changes").to_table(columns=[_BOX])
    boxes = pc.unique(changes[_BOX])
    return pa.table([boxes, pa.nulls(len(boxes)), pa.nulls(len(boxes))], names=TOUCHED.names).cast(TOUCHED)


def entitled(places: Places, customers: Collection[str], touched: pa.Table, *, limit: int) -> pa.Table:
    """Records that customers may see and do not have yet, among those touched.

    Args:
        touched: Rows of schema ``TOUCHED``.
        limit: At most so many rows, the first by customer, log and offset.

    Returns:
        customer, log, log_offset, equipment_reference, device_date_time, received_date_time, late, payload.
    """
    with _connection() as connection:
        connection.register("touched", touched)
        connection.register("customers", pa.table({"customer": pa.array(list(customers), pa.string())}))
        about = among(_BOX, set(touched[_BOX].to_pylist()) - {None})
        connection.register("booking_changes", opened(places, "booking_changes").filter(about))
        connection.execute(NEWEST)
        # Named containers let Arrow skip files and row groups by their statistics.
        boxes = {row[0] for row in connection.execute(BOXES).fetchall()}
        wanted = among(_BOX, boxes)
        for name in ("readings", "alerts", "feeds"):
            connection.register(name, opened(places, name).filter(wanted))
        connection.register("custody_entries", _custody(places, boxes))
        relation = connection.sql(ENTITLED.format(limit=int(limit)))
        found: pa.Table = relation.to_arrow_table()
    return found


def _custody(places: Places, boxes: Collection[str]) -> Any:
    """Entries of the ledgers about the logs of these containers, as a dataset."""
    entries = opened(places, "custody_entries")
    known = pc.unique(entries.to_table(columns=["entry_log"])["entry_log"]).to_pylist()
    return entries.filter(among("entry_log", {log for log in known if log and log.partition(".")[2] in boxes}))


@contextmanager
def _connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connection:
        connection.execute("set timezone = 'UTC'")
        yield connection
