"""Table ``feeds`` against the customers' feeds, and the feeds against what customers are entitled to.

Three things are proven: the table has exactly the records that stand in the feeds; no record was given to a customer
twice, or taken back that was not given; with what was taken back left out, a feed has exactly the records that its
customer is entitled to now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import duckdb
import pyarrow.dataset as pads
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from fairlead.endpoint import KafkaEndpoint
from fairlead.wire.cluster import Cluster
from fairlead.wire.record import Record
from shore.backlog import backlog_of
from shore.checkpoint import read_checkpoint
from shore.damage import made_again
from shore.feeds.entitlement import all_touched, entitled
from shore.feeds.readers import FeedReader
from shore.feeds.records import feed_topic, named_by
from shore.feeds.writer import app_of
from shore.places import CUSTOMERS, Places
from shore.tablelog import table_ids
from shore.tables import TABLES
from shore.verify.digest import Limits, RecordDigests, RowsDigest, connection, rows_digests
from shore.verify.model import Difference, TableCheck
from shore.verify.records import CLIENT_ID, LogRange, data_records, extents_of

_SHOWN: Final = 10
_ROWS: Final = """
select
    'feeds.' || customer as log, feed_offset as log_offset,
    (case when retracts then 'retracts ' else '' end || log || '@' || log_offset)::blob as payload
from feeds
"""
_CUSTOMERS_ROWS: Final = "select '{topic}' as log, feed_offset as log_offset, encode(value) as payload from feed"
_TWICE: Final = f"""
select distinct customer, log, log_offset
from (
    select customer, log, log_offset, digest, coalesce(retracts, false) as retracted,
        lag(coalesce(retracts, false)) over item as before, lag(digest) over item as digest_before
    from feeds
    window item as (partition by customer, log, log_offset order by feed_offset)
)
where retracted = coalesce(before, true) and (retracted or digest is null or digest = digest_before)
order by all limit {_SHOWN}
"""  # noqa: S608  # a constant


def check_feeds(readers: Sequence[FeedReader], endpoint: KafkaEndpoint, places: Places) -> TableCheck:
    """Table ``feeds``, of those whose feed begins at this site."""
    customers = [reader.customer for reader in readers]
    try:
        feeds = DeltaTable(places.table("feeds"))
    except TableNotFoundError:
        return TableCheck(table="feeds", kind="logs", same=None, notes=("job feeds has not run yet",))
    known = {}
    for customer in customers:
        version = feeds.transaction_version(app_of(customer))
        known[feed_topic(customer)] = 0 if version is None else version + 1
    rows = feeds.to_pyarrow_dataset()
    expected, limits, behind = asyncio.run(_read(endpoint, known, _named))
    with connection() as opened, connection() as second:
        found = _rows(opened, second, rows, limits)
        twice = _twice(opened, rows)
    differing = [log for log in limits if found.get(log, RowsDigest()).inside != expected.get(log, RowsDigest().inside)]
    differing += [log for log, each in found.items() if each.beyond and log in limits and log not in differing]
    missing, notes = _missing(places, readers)
    return TableCheck(
        table="feeds",
        kind="logs",
        same=not differing and not twice and not missing,
        rows=sum(each.inside.records for each in found.values()),
        expected=sum(each.records for each in expected.values()),
        logs=len(limits),
        behind=behind,
        gone=sum(each.before for log, each in found.items() if log in limits),
        differing=len(differing) + len(twice) + len(missing),
        differences=tuple([*twice, *missing][:_SHOWN]),
        notes=tuple([*(f"table and log differ: {log}" for log in differing), *notes]),
    )


def check_customer(endpoint: KafkaEndpoint, places: Places, customer: str) -> TableCheck:
    """A customer's own table against its feed: every record of it, once, with the same value."""
    name, topic = CUSTOMERS + customer, feed_topic(customer)
    try:
        table = DeltaTable(places.customer(customer))
    except TableNotFoundError:
        return TableCheck(table=name, kind="logs", same=None, notes=("job feeds has not run yet",))
    version = table.transaction_version(app_of(customer))
    known = {topic: 0 if version is None else version + 1}
    expected, limits, behind = asyncio.run(_read(endpoint, known, _given))
    with connection() as opened, connection() as second:
        second.register("feed", table.to_pyarrow_dataset())
        rows = second.sql(_CUSTOMERS_ROWS.format(topic=topic)).to_arrow_reader(32_768)
        found = rows_digests(opened, rows, limits).get(topic, RowsDigest())
    same = found.inside == expected.get(topic, RowsDigest().inside) and not found.beyond
    return TableCheck(
        table=name,
        kind="logs",
        same=same,
        rows=found.inside.records,
        expected=sum(each.records for each in expected.values()),
        logs=1,
        behind=behind,
        gone=found.before,
        differing=0 if same else 1,
        notes=() if same else (made_again(places, name),),
    )


async def _read(
    endpoint: KafkaEndpoint, known: dict[str, int], as_row: Callable[[Record], Record | None]
) -> tuple[dict[str, Any], dict[str, Limits], int]:
    """The digests of what stands in the feeds up to where the table knows them, these limits, and what is beyond."""
    with connection() as opened:
        digests = RecordDigests(opened)
        async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
            extents, _ = await extents_of(cluster, lambda topic: topic in known, ())
            limits = {
                log: Limits(min(extents[log].start, position), position, position) if log in extents
                else Limits(position, position, position)
                for log, position in known.items()
            }  # fmt: skip
            ranges = [LogRange(log, each.start, each.stop) for log, each in limits.items()]
            async for log, records in data_records(cluster, ranges):
                digests.add(log, [row for record in records if (row := as_row(record)) is not None])
        behind = sum(max(0, each.end - known[log]) for log, each in extents.items())
        return digests.found(), limits, behind


def _named(record: Record) -> Record | None:
    """The record with what it is about as its value: that is what the table knows of it. None where it stands for no
    row, since others than shore wrote it (``shore.feeds.records.delivered``)."""
    named = named_by(record)
    if named is None:
        return None
    log, offset, retracts = named
    return record._replace(value=f"{'retracts ' if retracts else ''}{log}@{offset}".encode())


def _given(record: Record) -> Record | None:
    """The record, if it stands for a row."""
    return None if named_by(record) is None else record


def _rows(
    opened: duckdb.DuckDBPyConnection, second: duckdb.DuckDBPyConnection, rows: pads.Dataset, limits: dict[str, Limits]
) -> dict[str, RowsDigest]:
    second.register("feeds", rows)
    return rows_digests(opened, second.sql(_ROWS).to_arrow_reader(32_768), limits)


def _twice(opened: duckdb.DuckDBPyConnection, rows: pads.Dataset) -> list[Difference]:
    opened.register("feeds", rows)
    found = opened.execute(_TWICE).fetchall()
    return [_told("doubled", row) for row in found]


def _missing(places: Places, readers: Sequence[FeedReader]) -> tuple[list[Difference], list[str]]:
    """What customers are entitled to and do not have (``missing``), or have and are not entitled to (``extra``), unless
    the job has not read everything yet."""
    checkpoint = read_checkpoint(places, "feeds")
    if checkpoint is None:
        return [], ["what customers are entitled to was not compared: job feeds has not run yet"]
    backlog = backlog_of(checkpoint, places, table_ids(places, TABLES))
    if checkpoint.under_way or backlog.rows:
        return [], [f"what customers are entitled to was not compared: {backlog.rows:,} rows are still to be read"]
    left = entitled(places, readers, all_touched(places), limit=_SHOWN)
    return [
        _told("missing" if row["retracts"] is None else "extra", [row["customer"], row["log"], row["log_offset"]])
        for row in left.to_pylist()
    ], []


def _told(what: Any, row: Sequence[Any]) -> Difference:
    return Difference(table="feeds", what=what, key=dict(zip(("customer", "log", "log_offset"), row, strict=True)))
