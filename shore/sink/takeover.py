"""Take over the customers' feeds at another site, when shore has moved there.

The new site's copy of a feed may lack the last records that shore appended at the old one. Table ``feeds`` names them,
and the tables that they were made from still have their content. So ``take_over`` first completes each feed: it appends
the missing records at the same offsets, with the same key, value, headers and time. A consumer that has read them at
the old site goes on after them, and one that has not gets them here.

Then it opens the feed's next term. From its marker on, the brokers of this site, and of every site that has the marker,
refuse appends of the old site's shore.

A record that is made for a feed (an hour's conditions, a milestone) may have become another one since. A filler stands
in its place, table ``feeds`` forgets it, and the job for feeds appends the new one, after the marker. Where the old
site comes back with records of its own at these offsets, replicators report the feed as ``diverged``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import is_marker
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import BrokerError, Conflict
from fairlead.kafka.protocol.types import TP, LogPosition
from fairlead.records import decoder
from fairlead.records.custody import Marker
from shore.delta.lake import Lake, computed
from shore.delta.lease import check_lease
from shore.feeds.ashore import states_of_log
from shore.feeds.entitlement import customer_rows, due, records
from shore.feeds.periods import periods
from shore.feeds.readers import SHORE_LOG, FeedReader
from shore.feeds.records import feed_topic, opening, restored, slices
from shore.sink.exactly_once import doubt, doubtful, ends_of_table, reread
from shore.sink.feed_logs import CLIENT_ID, Batches, moved, run_at, wait_for
from shore.tables.feeds import FEEDS

logger = logging.getLogger(__name__)

_TRIES: Final = 5  # a replicator may append the old site's own records meanwhile
_DONE: Final = pa.schema([("customer", pa.string()), ("offset", pa.int64())])
_marker = decoder(Marker)


class TakenOver(NamedTuple):
    """What was done, by customer: records appended at their old offsets, and how many of these had to be fillers."""

    appended: dict[str, int]
    replaced: dict[str, int]


def take_over(lake: Lake, endpoint: KafkaEndpoint, readers: Sequence[FeedReader]) -> TakenOver:
    """Complete the feeds of these customers at a site, and open their next term there. The feeds' logs must exist.

    May be repeated: a feed that has been taken over is left alone.

    Raises:
        LeaseLostError: another machine has taken the right to write.
        FeedMovedError: another process appends to a feed.
        SiteUnreachableError: Kafka does not answer.
    """
    check_lease(lake.paths.table(FEEDS.name))
    known = ends_of_table(lake)
    own = [reader.customer for reader in readers]
    states = run_at(endpoint, _states(endpoint, own))
    short = {name: state.end for name, state in states.items() if state.end < known.get(name, 0)}
    appended = {name: known[name] - end for name, end in short.items()}
    replaced: dict[str, int] = {}
    doubted = {*doubtful(lake)}.intersection(own)  # fillers of a call that was interrupted
    if short:
        rows = computed(to_restore(lake, [each for each in readers if each.customer in short], short))
        lost = rows.where("payload is null and retracts is null").groupBy("customer").count().collect()
        replaced = {row["customer"]: row["count"] for row in lost}
        if replaced:
            doubted.update(replaced)
            doubt(lake, doubted)
        ordered = rows.repartition("customer").sortWithinPartitions("customer", "feed_offset")
        ordered.mapInArrow(_restoring(endpoint), from_arrow_schema(_DONE)).collect()
    waiting = [name for name in own if name in short or states[name].site != endpoint.site]
    run_at(endpoint, _open_terms(endpoint, waiting, known))
    for name, count in appended.items():
        logger.warning("%s lacked %d records at %s, which shore appended again", feed_topic(name), count, endpoint.site)
    if replaced:
        names = ", ".join(f"{feed_topic(name)} ({count})" for name, count in replaced.items())
        logger.warning("records that cannot be made again have fillers in their place, and come anew: %s", names)
    if doubted:
        reread(lake, endpoint, sorted(doubted))
    return TakenOver(appended, replaced)


class _State(NamedTuple):
    """Where a feed ends at this site, its term, and the site that its newest marker names (None if it is gone)."""

    end: int
    term: int
    site: str | None


async def _states(endpoint: KafkaEndpoint, customers: Iterable[str]) -> dict[str, _State]:
    async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
        appender = Appender(cluster)
        try:
            logs = {name: TP(feed_topic(name)) for name in customers}
            positions = await appender.positions(list(logs.values()))
            return {name: await _state(cluster, log, positions[log]) for name, log in logs.items()}
        finally:
            await appender.close()


async def _state(cluster: Cluster, log: TP, position: LogPosition | None) -> _State:
    if position is None:
        return _State(0, 0, None)
    site = None
    if position.marker >= 0:
        try:
            async for record in read_log(cluster, log, position.marker, position.marker + 1):
                site = _marker.decode(record.value or b"").to_site if is_marker(record) else None
        except (BrokerError, msgspec.DecodeError):  # retention has deleted it, or it is not of this version
            site = None
    return _State(position.end, position.term, site)


def to_restore(lake: Lake, readers: Sequence[FeedReader], ends: Mapping[str, int]) -> DataFrame:
    """Return rows of ``DUE`` with ``feed_offset`` for the records that table ``feeds`` has from these offsets on. The
    payload is null where the tables do not give the same record any more.

    Args:
        ends: Where each customer's feed ends at the site.
    """
    spark = lake.spark
    feeds = lake.read(FEEDS.name).where(F.col("customer").isin(sorted(ends)))
    item = Window.partitionBy("customer", "log", "log_offset").orderBy("feed_offset")
    given = F.last(F.when(~F.col("retracts"), F.col("feed_offset")), ignorenulls=True)
    given = given.over(item.rowsBetween(Window.unboundedPreceding, -1))
    first = F.broadcast(spark.createDataFrame(pa.table({"customer": list(ends), "_end": list(ends.values())})))
    missing = computed(
        feeds.withColumn("_given", F.when(F.col("retracts"), given))
        .join(first, on="customer")
        .where("feed_offset >= _end")
        .select("customer", "feed_offset", "log", "log_offset", "equipment_reference", "device_date_time", "revision",
                "digest", F.col("_given").alias("retracts"), F.col("log").contains("/").alias("_made"))
    )  # fmt: skip
    names = ("readings", "alerts", "custody_entries")
    keys = F.broadcast(missing.where("not _made").select("log", "log_offset").distinct())
    copies = records(*(lake.read(name) for name in names)).join(keys, on=["log", "log_offset"], how="left_semi")
    copies = copies.select("log", "log_offset", "received_date_time", "late", F.col("payload").alias("_copy"))
    rows = missing.join(copies, on=["log", "log_offset"], how="left")
    made = _made(lake, readers) if not missing.where("_made").isEmpty() else None
    if made is not None:
        rows = rows.join(made, on=["customer", "log", "log_offset"], how="left")
        same = F.md5("_content") == F.col("digest")
        payload = F.when(F.col("_made"), F.when(same, F.col("_content"))).otherwise(F.col("_copy"))
    else:
        payload = F.col("_copy")
    payload = F.when(F.col("retracts").isNull(), payload)
    return rows.withColumn("payload", payload).select(
        "customer", "feed_offset", "log", "log_offset", "equipment_reference", "device_date_time",
        "received_date_time", "late", "payload", "retracts", "revision",
    )  # fmt: skip


def _made(lake: Lake, readers: Sequence[FeedReader]) -> DataFrame:
    """Return the content of every record that is made for these customers' feeds, as the tables give it now."""
    logs, topology = ("readings", "alerts", "custody_entries", "events", "digests"), ("sites", "owners")
    names = (*logs, *topology, "alerts_ashore", "bookings")
    inputs = {name: lake.read(name) for name in names} | {FEEDS.name: lake.read(FEEDS.name).limit(0)}
    held = periods(inputs["bookings"], customer_rows(lake.spark, readers))
    found = due(inputs, [reader for reader in readers if reader != SHORE_LOG], held).where("step = 3")
    made = found.select("customer", "log", "log_offset", F.col("payload").alias("_content"))
    states = states_of_log(inputs["alerts_ashore"])
    return made.unionByName(states.select(*made.columns[:3], F.encode("content", "utf-8").alias("_content")))


def _restoring(endpoint: KafkaEndpoint) -> Callable[[Batches], Batches]:
    """Return a function for tasks that appends rows of ``to_restore``, ordered by customer and offset, each customer's
    in one task. The task may run again."""

    def restore(batches: Batches) -> Batches:
        rows = [row for batch in batches for row in batch.to_pylist()]
        with asyncio.Runner() as runner:
            done = wait_for(runner, endpoint, _complete(endpoint, rows))
        yield pa.RecordBatch.from_pylist(done, schema=_DONE)

    return restore


async def _complete(endpoint: KafkaEndpoint, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
        appender = Appender(cluster)
        try:
            return [
                {"customer": customer, "offset": await _complete_one(appender, TP(feed_topic(customer)), list(own))}
                for customer, own in groupby(rows, key=lambda row: row["customer"])
            ]
        finally:
            await appender.close()


async def _complete_one(appender: Appender, log: TP, rows: Sequence[Mapping[str, Any]]) -> int:
    """Append what a feed lacks; return where it ends."""
    for _ in range(_TRIES):
        position = await appender.position(log)
        end = position.end if position is not None else 0
        try:
            for part in slices(list(restored(rows, end))):
                done = await appender.append(log, part)
                if done.base_offset != end:
                    raise moved(log, end)
                end = done.base_offset + done.count
        except Conflict:  # a replicator brought some of them: go on after these
            continue
        return end
    raise moved(log, end)


async def _open_terms(endpoint: KafkaEndpoint, customers: Iterable[str], known: Mapping[str, int]) -> None:
    async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
        appender = Appender(cluster)
        try:
            for customer in customers:
                await _open_term(cluster, appender, customer, known.get(customer, 0))
        finally:
            await appender.close()


async def _open_term(cluster: Cluster, appender: Appender, customer: str, least: int) -> None:
    log = TP(feed_topic(customer))
    for _ in range(_TRIES):
        position = await appender.position(log)
        state = await _state(cluster, log, position)
        if position is None or position.end < least:
            raise moved(log, least)
        marker = opening(
            log.topic,
            cluster.endpoint.site,
            key=customer.encode(),
            term=position.term + 1,
            from_site=state.site,
        )
        try:
            await appender.open_term(log, position.term + 1, marker, expected_end=position.end)
        except Conflict:  # a replicator was quicker
            continue
        return
    raise moved(log, least)
