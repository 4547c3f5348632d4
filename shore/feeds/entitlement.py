"""Compare what customers' feeds must have with what they have, as DataFrames.

The origin (``log``, ``log_offset``) identifies a record. The newest row of an origin in table ``feeds`` says whether
the customer has the record. A record that is made for a feed (``shore.feeds.coarse``, ``movements``, ``ashore`` and
``at_sea``) has a name with a slash in place of a log. Table ``feeds`` has a digest of it; another digest is another
revision.

``due`` compares the part of the feeds that a ``Look`` names: all records of containers whose bookings changed, all
grants of containers with a new one, and other new records. Literals in its conditions let Delta skip files of large
tables.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, IntegerType, LongType, StringType, StructType, TimestampType

from shore.feeds.ashore import alerts_for_log, alerts_found_ashore, without_deleted_alerts
from shore.feeds.at_sea import (
    digests_at_sea,
    times_reached,
    without_deleted_digests,
    without_earlier_digests,
    without_reached_before,
)
from shore.feeds.coarse import hours, milestones, with_stays
from shore.feeds.look import BOX, EVERYTHING, MOST_LITERALS, Look, is_of_boxes, of_boxes, time_ranges, without_boxes
from shore.feeds.movements import NAME, movements
from shore.feeds.periods import covered
from shore.feeds.readers import SHORE_LOG, FeedReader, reader_rows
from shore.tables.custody import believed_of
from shore.tables.model import FIRST, LAST, TIME, micros_of
from topologies.ledger_trust import history_rules

DUE: Final = (
    StructType()
    .add("customer", StringType())
    .add("step", IntegerType())  # retractions, then deliveries; copied records, then made ones; shore's alerts
    .add("log", StringType())
    .add("log_offset", LongType())
    .add(BOX, StringType())
    .add("device_date_time", TimestampType())
    .add("received_date_time", TimestampType())
    .add("late", BooleanType())
    .add("payload", BinaryType())
    .add("retracts", LongType())  # offset in the feed of the record that is retracted; null: a delivery
    .add("revision", IntegerType())  # of a record made for the feed: counts from 0; null: a copied record
)
"""Rows of ``due``: what is to be appended to feeds."""

_BEGIN: Final = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
"""No feed has an earlier hour (``IN_TIME``)."""
_BEHIND: Final = dt.timedelta(days=1)
"""How far a ship's clock, by which it makes digests, may be behind the times of the readings in them."""


def customer_rows(spark: SparkSession, readers: Iterable[FeedReader]) -> DataFrame:
    """Return the relation ``customers``: ``customer``, ``grain``, ``port``, ``owners``."""
    return spark.createDataFrame(reader_rows(readers))


def records(readings: DataFrame, alerts: DataFrame, custody_entries: DataFrame) -> DataFrame:
    """Return the records of these tables that may stand in feeds."""
    found: DataFrame = readings.sparkSession.sql(
        """
        select 'readings' as kind, log, log_offset, equipment_reference, device_date_time, received_date_time, late,
            payload
        from {readings}
        union all
        select 'alerts', log, log_offset, equipment_reference, event_date_time, null, false, payload from {alerts}
        """,
        readings=readings,
        alerts=alerts,
    )
    return found.unionByName(_grants(custody_entries))


def _grants(custody_entries: DataFrame) -> DataFrame:
    return custody_entries.where("entry_type = 'grant'").selectExpr(
        "'custody' as kind",
        "log",
        "log_offset",
        "split_part(entry_log, '.', 2) as equipment_reference",
        "event_date_time as device_date_time",
        "cast(null as timestamp) as received_date_time",
        "false as late",
        "payload",
    )


def believed(entries: DataFrame, ledgers: tuple[Mapping[str, str], Mapping[str, str]] | None) -> DataFrame:
    """Return the believed rows of ``custody_entries``. All entries of a log must be among them."""
    if ledgers is None:
        return entries
    rules = ledgers  # plain values travel to executors

    def of_log(group: pa.Table) -> pa.Table:
        kept = {(each.ledger, each.offset) for each in believed_of(group, history_rules(*rules))}
        origins = zip(group["log"].to_pylist(), group["log_offset"].to_pylist(), strict=True)
        return group.filter(pa.array([each in kept for each in origins], pa.bool_()))

    needed = entries.select("log", "log_offset", "entry_type", "entry_log", "event_date_time", "payload")
    return needed.where("entry_log is not null").groupBy("entry_log").applyInArrow(of_log, needed.schema)


def entitled_records(found: DataFrame, customers: DataFrame, periods: DataFrame) -> DataFrame:
    """Return those of these records that customers may see: ``customer`` and the columns of ``RECORD``, each once.

    Args:
        found: Rows of ``RECORD``.
        customers: From ``customer_rows``. Those with a feed of alerts see the alerts about their owners' containers.
        periods: From ``shore.feeds.periods.periods``.
    """
    return found.sparkSession.sql(
        f"""
        select /*+ broadcast(p) */ p.customer, r.*
        from {{records}} r join {{periods}} p on p.equipment_reference = r.equipment_reference
        where (p.grain = 'detailed' or r.kind = 'alerts') and {covered("r.device_date_time")}
        union all
        select /*+ broadcast(o) */ o.customer, r.*
        from {{records}} r
        join (select customer, explode(owners) as owner from {{customers}} where grain = 'alerts') o
            on o.owner = left(r.equipment_reference, 4)
        where r.kind = 'alerts'
        """,  # noqa: S608  # our own names
        records=found,
        customers=customers,
        periods=periods,
    )


def newest_rows(feeds: DataFrame) -> DataFrame:
    """Return the current state of each customer and origin in rows of table ``feeds``: whether it is ``taken_back``,
    the offset in the feed of its newest record, its last revision and digest."""
    return feeds.groupBy("customer", "log", "log_offset").agg(
        F.max_by(BOX, "feed_offset").alias(BOX),
        F.max("feed_offset").alias("feed_offset"),
        F.max_by("device_date_time", "feed_offset").alias("device_date_time"),
        F.max_by("retracts", "feed_offset").alias("taken_back"),
        F.max("revision").alias("revision"),
        F.max_by("digest", "feed_offset").alias("digest"),
    )


def due(
    inputs: Mapping[str, DataFrame],
    readers: Sequence[FeedReader],
    periods: DataFrame,
    look: Look = EVERYTHING,
    kept: Mapping[str, dt.datetime] = {},
) -> DataFrame:
    """Compute what to append to feeds so that they have exactly what their customers are entitled to.

    Args:
        inputs: Tables ``readings``, ``alerts``, ``alerts_ashore``, ``custody_entries``, ``events``, ``digests``,
            ``feeds``, ``sites`` and ``owners``, by name. Only those that are needed are read.
        readers: The customers with feeds, and ``SHORE_LOG`` where shore writes its alerts.
        periods: Of these customers (``shore.feeds.periods``).
        kept: What retention may have deleted of the tables ``Look.aging`` (``shore.kept.kept_of``).

    Returns:
        Rows of ``DUE``, unordered. Append them to a feed in the order of ``order_of_feeds``.
    """
    spark = periods.sparkSession
    parts: list[DataFrame] = []
    if own := [reader for reader in readers if reader != SHORE_LOG]:
        customers = customer_rows(spark, own)
        parts += _copied(inputs, customers, periods, look)
        parts += _made(inputs, customers, own, periods, look, kept)
    if SHORE_LOG in readers:
        parts += _of_shore(inputs, look)
    if not parts:
        return spark.createDataFrame([], DUE)
    found = reduce(DataFrame.unionByName, (_conform(part) for part in parts))
    shown = F.greatest(F.least(F.unix_micros("device_date_time"), F.lit(micros_of(LAST))), F.lit(micros_of(FIRST)))
    return found.withColumn("device_date_time", F.timestamp_micros(shown))


def order_of_feeds() -> list[Column]:
    """Return the order in which rows of ``DUE`` enter the feeds: records of one log in the log's order, records made
    for a feed by time. The states of one of shore's alerts come in the order of its revisions."""
    made = F.when(F.col("step") == 3, F.col("device_date_time"))
    return [F.col("customer"), F.col("step"), made, F.col("log"), F.col("log_offset")]


def _conform(part: DataFrame) -> DataFrame:
    there = set(part.columns)
    return part.select(
        *(
            (F.col(each.name) if each.name in there else F.lit(None)).cast(each.dataType).alias(each.name)
            for each in DUE.fields
        )
    )


def _copied(
    inputs: Mapping[str, DataFrame], customers: DataFrame, periods: DataFrame, look: Look
) -> Iterable[DataFrame]:
    """Copied records: first those to retract, then those to deliver."""
    whole = look.compares_all or bool(look.boxes)
    found: list[DataFrame] = []
    if whole:
        readings, alerts = (of_boxes(inputs[name], look.whole) for name in ("readings", "alerts"))
        found.append(records(readings, alerts, _believed_entries(inputs, look, look.whole)))
    if look.news is not None and not look.compares_all:
        found.append(without_boxes(look.news.where("kind <> 'custody'"), look.boxes))
    if look.granted:
        found.append(_grants(_believed_entries(inputs, look, look.granted)))
    if not found:
        return
    rows = inputs["feeds"].where(~F.col("log").contains("/"))
    given = newest_rows(_of_readers(rows if look.compares_all else rows.where(_in_look(look)), customers))
    standing = given.where("not taken_back")
    of_records = reduce(DataFrame.unionByName, found)
    if whole:
        yield _retracted(of_boxes(standing, look.whole), found[0], customers, periods)
    if look.granted:
        grants = of_boxes(standing.where("log like 'custody.%'"), look.granted)
        yield _retracted(grants, found[-1], customers, periods)
    yield (
        entitled_records(of_records, customers, periods)
        .join(standing, on=["customer", "log", "log_offset"], how="left_anti")
        .withColumn("step", F.lit(1))
    )


def _retracted(standing: DataFrame, found: DataFrame, customers: DataFrame, periods: DataFrame) -> DataFrame:
    """Records that customers have and may not see, and grants that are not believed any more. The feed's time decides
    about other records that the tables lack."""
    return standing.sparkSession.sql(
        f"""
        select h.customer, 0 as step, h.log, h.log_offset, h.equipment_reference, h.at as device_date_time,
            false as late, h.feed_offset as retracts
        from (
            select s.*, coalesce(r.device_date_time, s.device_date_time) as at,
                s.log like 'custody.%' and r.log is null as doubted
            from {{standing}} s left join {{records}} r on r.log = s.log and r.log_offset = s.log_offset
        ) h
        join {{customers}} c on c.customer = h.customer
        left join {{periods}} p on p.customer = h.customer and p.equipment_reference = h.equipment_reference
        where case when c.grain = 'alerts'
            then split_part(h.log, '.', 1) <> 'alerts' or not array_contains(c.owners, left(h.equipment_reference, 4))
            else h.doubted or p.spans is null
                or (c.grain <> 'detailed' and split_part(h.log, '.', 1) <> 'alerts')
                or not coalesce({covered("h.at")}, false)
            end
        """,  # noqa: S608  # our own names
        standing=standing,
        records=found,
        customers=customers,
        periods=periods,
    )


def _made(
    inputs: Mapping[str, DataFrame],
    customers: DataFrame,
    readers: Sequence[FeedReader],
    periods: DataFrame,
    look: Look,
    kept: Mapping[str, dt.datetime],
) -> Iterable[DataFrame]:
    """Records made for feeds: first those to retract, then those to deliver."""
    grains = {reader.grain for reader in readers}
    spark = periods.sparkSession
    derived: list[DataFrame] = []
    scope: list[Column] = []  # rows of table feeds that ``derived`` is compared with
    begins = dict.fromkeys(look.boxes, _BEGIN) | {
        box: since for box, since in look.since.items() if box not in look.boxes
    }
    moved = look.boxes | look.moved
    coarse = periods.where("grain = 'coarse'")
    if "coarse" in grains and (begins or look.compares_all):
        first = min(begins.values(), default=_BEGIN)
        near = of_boxes(inputs["readings"], None if look.compares_all else frozenset(begins))
        near = near.where(F.col("device_date_time") >= F.lit(first - dt.timedelta(minutes=30)))
        if look.compares_all:
            since = coarse.select(BOX, F.lit(_BEGIN).alias("since")).distinct()
        else:
            rows = pa.table({BOX: list(begins), "since": pa.array(list(begins.values()), TIME)})
            since = spark.createDataFrame(rows)
        derived.append(hours(near, coarse, since))
    if "coarse" in grains and (moved or look.compares_all):
        events = inputs["events"]
        if not look.compares_all:
            events = events.where(is_of_boxes(moved) | F.col(BOX).isNull()) if len(moved) <= MOST_LITERALS else events
        boxes = None if look.compares_all else moved
        derived.append(of_boxes(milestones(events, inputs["sites"], coarse), boxes))
    if "movements" in grains and (look.events is not None or look.compares_all):
        heard = inputs["events"].where("problem is null")
        if look.events is not None:
            heard = heard.join(F.broadcast(look.events), on="event_id", how="left_semi")
        derived.append(movements(heard, inputs["sites"], inputs["owners"], customers))
    alarmed = look.boxes | look.alarmed
    ashore: DataFrame | None = None
    if alarmed or look.compares_all:
        ashore, told = (
            of_boxes(inputs[name], None if look.compares_all else alarmed) for name in ("alerts_ashore", "alerts")
        )
        derived.append(alerts_found_ashore(ashore, told, periods, customers))
    digested = look.boxes | look.digested.keys()
    seen: DataFrame | None = None
    if "detailed" in grains and (look.digested or look.compares_all):
        said, readings, since = _of_digests(inputs, periods, None if look.compares_all else look.digested)
        seen = times_reached(readings, since)
        if "digests" in kept:
            seen = seen.localCheckpoint()  # what is given and what is made are computed apart, and both need it
        derived.append(digests_at_sea(said, seen, periods, since))
    feeds = inputs["feeds"].where(F.col("log").contains("/"))
    if look.compares_all:
        rows = feeds
    else:
        kind, hour = F.split_part("log", F.lit("/"), F.lit(1)), F.col("device_date_time")
        if moved:
            scope.append((kind == "milestones") & is_of_boxes(moved))
        if begins:
            scope.append((kind == "hours") & is_of_boxes(frozenset(begins)) & (hour >= F.lit(min(begins.values()))))
        if look.events is not None:
            scope.append(kind == "movements")
        if alarmed:
            scope.append((kind == "alerts") & is_of_boxes(alarmed))
        if digested:
            scope.append((kind == "digests") & is_of_boxes(digested))
        if not scope:
            return
        rows = feeds.where(reduce(or_, scope))
    given = newest_rows(_of_readers(rows, customers))
    if not look.compares_all:
        given = _in_scope(given, look.events, begins, {"milestones": moved, "alerts": alarmed, "digests": digested})
    if ashore is not None:
        given = without_deleted_alerts(given, ashore, periods, customers)
    given = with_stays(given, periods, kept.get("readings"))
    made = reduce(DataFrame.unionByName, derived) if derived else spark.createDataFrame([], _MADE)
    made = without_reached_before(made, given, kept.get("readings"))
    if seen is not None and "digests" in kept:
        given = without_deleted_digests(given, made, seen, periods, kept["digests"])
    given, made = given.localCheckpoint(), made.localCheckpoint()  # both are read twice, and their plans are large
    if look.compares_all or look.boxes or digested or derived:
        yield spark.sql(
            """
            select g.customer, 2 as step, g.log, g.log_offset, g.equipment_reference, g.device_date_time,
                false as late, g.feed_offset as retracts
            from {given} g
            left anti join {made} m on m.customer = g.customer and m.log = g.log and m.log_offset = g.log_offset
            where not g.taken_back and not g.stays
            """,
            given=without_earlier_digests(given, {box: look.digested[box] for box in look.told}),
            made=made,
        )
    if derived:
        yield spark.sql(
            """
            select m.customer, 3 as step, m.log, m.log_offset, m.equipment_reference, m.device_date_time,
                false as late, cast(m.content as binary) as payload, coalesce(g.revision + 1, 0) as revision
            from {made} m
            left join {given} g on g.customer = m.customer and g.log = m.log and g.log_offset = m.log_offset
            where g.customer is null
                or not g.stays and (g.taken_back or g.digest is distinct from md5(cast(m.content as binary)))
            """,
            given=given,
            made=made,
        )


def _of_shore(inputs: Mapping[str, DataFrame], look: Look) -> Iterable[DataFrame]:
    """What the log of shore's alerts lacks. It is only added to."""
    boxes = None if look.compares_all else look.alarmed
    if boxes is not None and not boxes:
        return
    ashore, told = (of_boxes(inputs[name], boxes) for name in ("alerts_ashore", "alerts"))
    feeds = inputs["feeds"] if boxes is None else inputs["feeds"].where(is_of_boxes(boxes))
    found = alerts_for_log(ashore, told, feeds)
    yield found.select(
        "*", F.lit(4).alias("step"), F.lit(False).alias("late"), F.encode("content", "utf-8").alias("payload")
    )


_MADE: Final = (
    StructType()
    .add("customer", StringType())
    .add("log", StringType())
    .add("log_offset", LongType())
    .add(BOX, StringType())
    .add("device_date_time", TimestampType())
    .add("content", StringType())
)


def _of_digests(
    inputs: Mapping[str, DataFrame], periods: DataFrame, since: Mapping[str, dt.datetime] | None
) -> tuple[DataFrame, DataFrame, DataFrame]:
    """The digests, the readings, and the relation ``since`` that decide about digests (``digests_at_sea``) of
    containers and times ``since``; None: of all."""
    spark = periods.sparkSession
    if since is None:
        rows = periods.where("grain = 'detailed'").select(BOX, F.lit(_BEGIN).alias("since")).distinct()
        return inputs["digests"], inputs["readings"], rows
    first = min(since.values())
    near = of_boxes(inputs["readings"], frozenset(since)).where(F.col("device_date_time") >= F.lit(first))
    rows = spark.createDataFrame(pa.table({BOX: list(since), "since": pa.array(list(since.values()), TIME)}))
    said = inputs["digests"].where(F.col("as_of_date_time") >= F.lit(first - _BEHIND))
    return said, near, F.broadcast(rows)


def _in_scope(
    given: DataFrame, events: DataFrame | None, begins: Mapping[str, dt.datetime], again: Mapping[str, frozenset[str]]
) -> DataFrame:
    """The rows of feeds whose records are made again, and no others.

    Args:
        events: The movements that are made again (``Look.events``).
        begins: Containers whose hours are made again, and from when on.
        again: The containers all of whose records of a kind are made again, by kind.
    """
    spark = given.sparkSession
    name = F.split_part("log", F.lit("/"), F.lit(2))
    kind = F.split_part("log", F.lit("/"), F.lit(1))
    found: list[DataFrame] = []
    if begins:
        rows = pa.table({"_box": list(begins), "_since": pa.array(list(begins.values()), TIME)})
        since = F.broadcast(spark.createDataFrame(rows))
        late = F.col("log_offset") >= F.expr("unix_seconds(_since) div 3600")
        hour = given.where(kind == "hours").join(since, on=[F.col("_box") == F.col(BOX)])
        found.append(hour.where(late).drop("_box", "_since"))
    found += [of_boxes(given.where(kind == name), boxes) for name, boxes in again.items() if boxes]
    if events is not None:
        heard = F.broadcast(events.select(F.expr(NAME).alias("_event")))
        found.append(given.where(kind == "movements").join(heard, on=[F.col("_event") == name], how="left_semi"))
    return reduce(DataFrame.unionByName, found)


def _believed_entries(inputs: Mapping[str, DataFrame], look: Look, boxes: frozenset[str] | None) -> DataFrame:
    """The believed entries about these containers; None: about all."""
    entries = of_boxes(inputs["custody_entries"], boxes, F.split_part("entry_log", F.lit("."), F.lit(2)))
    return believed(entries, look.ledgers)


def _in_look(look: Look) -> Column:
    """A condition in literals for the rows of table ``feeds`` that the look may be about."""
    parts = []
    if look.boxes:
        parts.append(is_of_boxes(look.boxes))
    if look.granted:
        parts.append(F.col("log").startswith("custody.") & is_of_boxes(look.granted))
    if look.seen:
        at = F.col("device_date_time")
        times = (at.between(F.lit(each.first), F.lit(each.last)) for each in time_ranges(look.seen.values()))
        parts.append(is_of_boxes(look.seen.keys()) & reduce(or_, times))
    return reduce(or_, parts)


def _of_readers(rows: DataFrame, customers: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(customers.select("customer")), on="customer", how="left_semi")
