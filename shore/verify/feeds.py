"""Compare table ``feeds`` with the customers' feeds, and the feeds with what customers are entitled to.

Three things are proven. The table has exactly the records that stand in the feeds. No record was delivered to a
customer twice, or taken back without having been delivered. Without what was taken back, a feed has exactly the records
that its customer is entitled to now: ``shore.feeds`` finds nothing due, as when it fills the feed of a new customer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import Record
from shore.delta.lake import Lake
from shore.delta.table_errors import rebuild_hint
from shore.feeds.ashore import odd_in_log
from shore.feeds.entitlement import order_of_feeds
from shore.feeds.readers import SHORE_LOG, FeedReader
from shore.feeds.records import customer_of, feed_topic, given_rows
from shore.jobs.checkpoint import read_checkpoint
from shore.jobs.feeds import INPUTS, Inputs, everything_due, ledgers
from shore.paths import CUSTOMERS, TablePaths
from shore.sink.exactly_once import app_of
from shore.tables.feeds import CUSTOMER_FEED, FEEDS
from shore.tables.reference import OWNERS, SITES
from shore.verify.compare import Difference, TableCheck
from shore.verify.derived import job_lag, settled
from shore.verify.digests import (
    ExpectedDigests,
    LogRange,
    LogRows,
    OddRow,
    RecordsDigest,
    RowsDigest,
    Shape,
    connection,
    data_records,
    reader,
    rows_digests,
)
from shore.verify.logs import CLIENT_ID, Limits, extents_of
from topologies.model import SHORE_ALERTS

_SHOWN: Final = 10
_COMPARED: Final = (*INPUTS, FEEDS.name, SITES.name, OWNERS.name)
"""The tables that say what customers are entitled to and what they have."""
_FEEDS: Final = Shape(
    "feeds",
    FEEDS.plain_schema.names,
    log=f"case customer when '{SHORE_LOG.customer}' then '{SHORE_ALERTS}' else 'feeds.' || customer end",
    offset="feed_offset",
)
_TWICE: Final = f"""
select distinct customer, log, log_offset
from (
    select customer, log, log_offset, digest, retracts as retracted,
        lag(retracts) over item as before, lag(digest) over item as digest_before
    from feeds
    window item as (partition by customer, log, log_offset order by feed_offset)
)
where retracted = coalesce(before, true) and (retracted or digest is null or digest = digest_before)
order by all limit {_SHOWN}
"""  # noqa: S608  # a constant


def check_feeds(
    readers: Sequence[FeedReader],
    endpoint: KafkaEndpoint,
    lake: Lake,
    wrong_inputs: Callable[[], Sequence[str]] = tuple,
    *,
    small: Lake | None = None,
) -> TableCheck:
    """Check table ``feeds``, for customers whose feed begins at this site.

    Args:
        small: The result of ``Lake.of_small_tables``, for tables that are small.
        wrong_inputs: Returns the tables that entitlement follows from and that differ from the logs. Called only where
            feeds differ from what customers are entitled to; if it names a table, these differences are not reported.
    """
    customers = [reader.customer for reader in readers]
    try:
        feeds = DeltaTable(lake.paths.table("feeds"))
    except TableNotFoundError:
        return TableCheck(table="feeds", kind="logs", same=None, notes=("job feeds has not run yet",))
    rows = feeds.to_pyarrow_dataset()
    with connection() as opened:
        opened.register("given", rows.scanner(columns=["customer", "feed_offset"]).to_reader())
        last = dict(opened.execute("select customer, max(feed_offset) from given group by 1").fetchall())
        opened.unregister("given")
        known = {feed_topic(customer): last.get(customer, -1) + 1 for customer in customers}
        found = asyncio.run(_compare(opened, endpoint, _FEEDS, rows, known, FEEDS.plain_schema))
        twice = _twice(opened, rows)
    missing: list[Difference] = []
    notes = ["what customers are entitled to is not compared while the table differs from the feeds"]
    if not found.differing:  # else the table does not show what customers were given
        missing, notes = _missing(lake, readers, small)
    if missing and (wrong := wrong_inputs()):
        notes.append(
            f"{len(missing):,} records or more are not what customers are entitled to by tables that differ from the "
            f"logs themselves ({', '.join(wrong)}): put those right first, then verify again"
        )
        missing = []
    wrong_rows = len(found.differing) + len(twice) + len(missing)
    return TableCheck(
        table="feeds",
        kind="logs",
        same=not wrong_rows,
        rows=found.rows,
        expected=found.expected,
        logs=len(known),
        behind=found.behind,
        gone=found.gone,
        differing=wrong_rows,
        differences=tuple([*found.differences, *twice, *missing][:_SHOWN]),
        notes=tuple([*(f"table and log differ: {log}" for log in found.differing), *notes]),
    )


def check_customer(endpoint: KafkaEndpoint, paths: TablePaths, customer: str) -> TableCheck:
    """Compare a customer's own table with its feed: it must have every record once, with the same value."""
    name, topic = CUSTOMERS + customer, feed_topic(customer)
    try:
        table = DeltaTable(paths.customer(customer))
    except TableNotFoundError:
        return TableCheck(table=name, kind="logs", same=None, notes=("job feeds has not run yet",))
    version = table.transaction_version(app_of(customer))
    known = {topic: 0 if version is None else version + 1}
    shape = Shape(name, CUSTOMER_FEED.plain_schema.names, log=f"'{topic}'", offset="feed_offset")
    with connection() as opened:
        rows = table.to_pyarrow_dataset()
        found = asyncio.run(_compare(opened, endpoint, shape, rows, known, CUSTOMER_FEED.plain_schema))
    return TableCheck(
        table=name,
        kind="logs",
        same=not found.differing,
        rows=found.rows,
        expected=found.expected,
        logs=1,
        behind=found.behind,
        gone=found.gone,
        differing=len(found.differing),
        differences=found.differences,
        notes=(rebuild_hint(paths, name),) if found.differing else (),
    )


class _Compared(NamedTuple):
    """The comparison of a table with the feeds whose records it holds; ``differing`` are the feeds that differ."""

    differing: list[str]
    differences: tuple[Difference, ...]
    rows: int
    expected: int
    gone: int
    behind: int


async def _compare(
    opened: duckdb.DuckDBPyConnection,
    endpoint: KafkaEndpoint,
    shape: Shape,
    rows: pads.Dataset,
    known: Mapping[str, int],
    schema: pa.Schema,
) -> _Compared:
    """Compare a table with the feeds, up to the last offset that the table knows.

    Args:
        known: Offsets after the last known record, by feed.
        schema: The table's.
    """
    digests = ExpectedDigests(opened)
    async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
        extents, _ = await extents_of(cluster, lambda topic: topic in known, ())
        limits = {
            log: Limits(min(extents[log].start, position), position, position) if log in extents
            else Limits(position, position, position)
            for log, position in known.items()
        }  # fmt: skip
        async for log, records in data_records(cluster, _ranges(limits, extents)):
            digests.add(shape, _given(log, records, schema))
        found = rows_digests(opened, reader(rows, shape), shape, limits)
        differing = [
            log for log in limits
            if (own := found.get(log, RowsDigest())).inside != digests.found.get(log, RecordsDigest()) or own.beyond
        ]  # fmt: skip
        differences: list[Difference] = []
        for log in differing:
            compared = LogRows(opened, {shape.table: shape})
            async for _, records in data_records(cluster, _ranges({log: limits[log]}, extents)):
                compared.add(shape.table, _given(log, records, schema))
            odd = compared.odd({shape.table: rows}, log, limits[log], explained=_SHOWN)
            differences += [_row(shape.table, log, each) for each in odd[:_SHOWN]]
    return _Compared(
        differing,
        tuple(differences[:_SHOWN]),
        sum(each.inside.records for each in found.values()),
        sum(each.records for each in digests.found.values()),
        sum(each.before for log, each in found.items() if log in limits),
        sum(max(0, each.end - known[log]) for log, each in extents.items()),
    )


def _given(log: str, records: Sequence[Record], schema: pa.Schema) -> pa.Table:
    customer = customer_of(log)
    return given_rows([(customer, each) for each in records], schema, [customer] if "value" in schema.names else ())


def _ranges(limits: Mapping[str, Limits], extents: Mapping[str, OffsetRange]) -> list[LogRange]:
    """The offsets to read. A table that somebody changed may name offsets that its feed does not have."""
    return [
        LogRange(log, each.start, min(each.stop, extents[log].end)) for log, each in limits.items() if log in extents
    ]


def _row(table: str, log: str, odd: OddRow) -> Difference:
    """A wrong row of a feed. Its key has the customer in shore's own table, which has the feeds of all customers."""
    key: dict[str, Any] = {"feed_offset": odd.log_offset}
    if table == "feeds":
        key = {"customer": customer_of(log), **key}
    return Difference(
        table=table,
        what=odd.what,
        key=key,
        columns=tuple(odd.found),
        found=dict(odd.found),
        expected=dict(odd.expected),
    )


def _twice(opened: duckdb.DuckDBPyConnection, rows: pads.Dataset) -> list[Difference]:
    opened.register("feeds", rows)
    found = opened.execute(_TWICE).fetchall()
    return [_told("doubled", row) for row in found]


def _missing(lake: Lake, readers: Sequence[FeedReader], small: Lake | None) -> tuple[list[Difference], list[str]]:
    """Records that customers are entitled to and lack (``missing``), or have and are not entitled to (``extra``). Not
    compared while the job still has rows to read; the second value says so."""
    versions, _, why = settled(lake.paths, _COMPARED, lambda: _lag(lake.paths))
    if why:
        return [], [f"what customers are entitled to was not compared: {why}"]
    lake = small if small is not None and lake.are_small(versions) else lake
    inputs = Inputs(lake, versions)
    due = everything_due(inputs, readers, ledgers(lake)).orderBy("step", *order_of_feeds())
    rows = due.select("customer", "log", "log_offset", "retracts").limit(_SHOWN).collect()
    found = [_told("missing" if retracts is None else "extra", row) for *row, retracts in rows]
    if SHORE_LOG in readers:
        odd = odd_in_log(*(inputs[name] for name in ("alerts_ashore", "alerts", "feeds")))
        rows = odd.orderBy("what", "log", "log_offset").limit(_SHOWN).collect()
        found += [_told(what, [SHORE_LOG.customer, log, offset]) for what, log, offset in rows]
    return found, []


def _lag(paths: TablePaths) -> tuple[int, str]:
    """Return ``job_lag`` of job ``feeds``."""
    checkpoint = read_checkpoint(paths, "feeds")
    return (0, "job feeds has not run yet") if checkpoint is None else job_lag(checkpoint, paths)


def _told(what: Any, row: Sequence[Any]) -> Difference:
    return Difference(table="feeds", what=what, key=dict(zip(("customer", "log", "log_offset"), row, strict=True)))
