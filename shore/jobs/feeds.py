"""Job ``feeds``: appends to each customer's feed the records that the customer is entitled to.

``shore.feeds`` decides which records these are, and ``shore.sink`` appends each exactly once. The query follows new
rows of ``readings``, ``alerts``, ``custody_entries``, ``events``, ``alerts_ashore`` and ``digests``, and changes of
``bookings``. A batch compares its new rows, and all records of containers whose bookings changed, with the feeds. So a
record may arrive before or after its booking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shore.delta.commit import create_tables
from shore.delta.lake import Lake
from shore.feeds.entitlement import believed, customer_rows, due
from shore.feeds.kinds import FeedKinds, Ledgers
from shore.feeds.look import BOX, CHANGE, AtSea, Look, keys_of, look_of, of_boxes
from shore.feeds.periods import periods
from shore.feeds.readers import SHORE_LOG, FeedReader, logs_here
from shore.jobs.checkpoint import has_begun
from shore.jobs.first_fill import without_batch
from shore.jobs.model import JobContext
from shore.jobs.move import note_feeds_taken_over
from shore.jobs.reference import stored
from shore.kept import Kept, kept_of
from shore.sink.exactly_once import FeedSink
from shore.sink.feed_logs import create_feeds
from shore.sink.takeover import take_over
from shore.site import read_site
from shore.tables.feeds import CUSTOMER_FEED
from shore.tables.reference import OWNERS, SITES

INPUTS: Final = ("readings", "alerts", "bookings", "custody_entries", "events", "alerts_ashore", "digests")


def query(context: JobContext) -> DataStreamWriter:
    """Build the query. Before it starts, create the feeds' logs and tables, take the feeds over where shore has moved,
    fill the feeds of new customers, and deliver what small tables have when the job is new."""
    lake, paths, endpoint = context.lake, context.paths, context.endpoint
    readers = logs_here(context.topology)
    create_feeds(endpoint, [reader.customer for reader in readers])
    record = read_site(paths)
    if record is not None and record.feeds_at != endpoint.site:
        take_over(lake, endpoint, readers)
        note_feeds_taken_over(paths)
    create_tables(context.spark, {paths.customer(each.customer): CUSTOMER_FEED for each in readers if each.table})
    feeds = Feeds(readers, FeedSink.open(lake, endpoint, readers), ledgers(lake))
    begun = has_begun(paths, "feeds")
    fill_changed_feeds(lake, feeds, begun=begun)
    if not begun and not without_batch(
        context, "feeds", INPUTS, lambda small, _: feeds.deliver_everything(small, readers)
    ):
        feeds.sink = FeedSink.open(lake, endpoint, readers)  # what was delivered before it failed, as after a crash

    def update(batch: DataFrame, _: int) -> None:
        feeds.deliver(lake.in_batch(batch), batch)

    writer: DataStreamWriter = changes(lake).writeStream.foreachBatch(update)
    return writer


def _part(kind: str, rows: DataFrame, **columns: Column | str) -> DataFrame:
    """Return rows of ``CHANGE`` of one kind; columns that are not given are null."""
    given: dict[str, Column | str] = {"kind": F.lit(kind), **columns}
    found = []
    for each in CHANGE.fields:
        value = given.get(each.name, F.lit(None))
        found.append((F.col(value) if isinstance(value, str) else value).cast(each.dataType).alias(each.name))
    return rows.select(*found)


def changes(lake: Lake) -> DataFrame:
    """Return the changes of all tables that decide entitlement as one stream of rows of ``CHANGE``."""

    record: dict[str, Column | str] = {"log": "log", "log_offset": "log_offset"}
    event: dict[str, Column | str] = record | {"device_date_time": "event_date_time", "late": F.lit(False)}
    box = F.split_part("entry_log", F.lit("."), F.lit(2))
    moved = F.coalesce(BOX, "vessel_imo_number")
    told = lake.new_rows("digests").select(F.explode("boxes").alias("box"))
    names = ("log", "log_offset", BOX, "device_date_time", "received_date_time", "late", "payload")
    grants = lake.new_rows("custody_entries").where("entry_type = 'grant'")
    return (
        _part("readings", lake.new_rows("readings"), **{name: name for name in names})
        .unionByName(_part("alerts", lake.new_rows("alerts"), **event, equipment_reference=BOX, payload="payload"))
        .unionByName(_part("bookings", lake.changed_rows("bookings"), equipment_reference=BOX))
        .unionByName(_part("custody", grants, **event, equipment_reference=box, payload="payload"))
        .unionByName(_part("events", lake.new_rows("events"), **event, equipment_reference=moved, event_id="event_id"))
        .unionByName(_part("alerts_ashore", lake.new_rows("alerts_ashore"), equipment_reference=BOX))
        .unionByName(_part("digests", told, equipment_reference=f"box.{BOX}", device_date_time="box.reading_date_time"))
    )


def fill_changed_feeds(lake: Lake, feeds: Feeds, *, begun: bool) -> None:
    """Fill the feed of each customer that is new to a running job, has come back, or now has another kind of feed, and
    those of port authorities when the topology has other ships, ports or lines. Compare the containers of which the
    topology now believes other grants of custody.

    The feed gets everything that the tables already hold; what the customer has and may not see is retracted. A new
    customer of a job without a checkpoint needs no call: the first batches read everything, and are repeated until they
    succeed.
    """
    kinds = FeedKinds.read(lake.paths, feeds.readers)
    if again := [each.reader for each in kinds.newcomers() if begun or each.known]:
        feeds.deliver_everything(lake, again)
    if begun and feeds.believed_by is not None and kinds.believed_by != feeds.believed_by:
        boxes = _with_other_grants(lake.read("custody_entries"), kinds.believed_by, feeds.believed_by)
        if boxes:  # all of their records are compared, as when their bookings change
            rows = lake.spark.createDataFrame(pa.table({BOX: boxes}))
            once = replace(feeds)  # what it keeps belongs to this session, and the query's batches have another
            once.deliver(lake, _part("bookings", rows, equipment_reference=BOX))
    kinds.note(lake.spark, feeds.believed_by)


def _with_other_grants(entries: DataFrame, before: Ledgers | None, now: Ledgers) -> list[str]:
    """Return the containers of which other grants are believed now than before."""
    grants, origin = entries.where("entry_type = 'grant'"), ["log", "log_offset", "entry_log"]
    was, is_now = (believed(entries, each).join(grants, origin, "left_semi").select(origin) for each in (before, now))
    changed = was.exceptAll(is_now).union(is_now.exceptAll(was))
    box = F.split_part("entry_log", F.lit("."), F.lit(2)).alias(BOX)
    return sorted(row[BOX] for row in changed.select(box).distinct().collect())


def ledgers(lake: Lake) -> Ledgers | None:
    """Return what decides which ledger entries count: kinds by site, and streams by owner code.

    Return None where table ``sites`` is still empty.
    """
    kinds = {row["site"]: row["kind"] for row in stored(lake.paths, SITES).to_pylist()}
    streams = {row["owner_code"]: row["stream"] for row in stored(lake.paths, OWNERS).to_pylist()}
    return (kinds, streams) if kinds else None


class Inputs(Mapping[str, DataFrame]):
    """The tables, each in its version among ``versions``, else in the newest when it is first asked for."""

    def __init__(self, lake: Lake, versions: Mapping[str, int] = {}) -> None:
        self._lake, self._versions, self._opened = lake, versions, dict[str, DataFrame]()

    def __getitem__(self, table: str) -> DataFrame:
        if table not in self._opened:
            version = self._versions.get(table)
            lake = self._lake.fixed([table]) if version is None else self._lake
            self._opened[table] = lake.read(table, version)
        return self._opened[table]

    def kept(self, tables: Sequence[str]) -> Kept:
        """Open these tables, and return which rows retention may have deleted of them. It notes that before it deletes
        rows, so the tables are opened first."""
        for table in tables:
            self[table]
        return kept_of(self._lake.paths, tables)

    def __iter__(self) -> Iterator[str]:
        return iter(self._opened)

    def __len__(self) -> int:
        return len(self._opened)


def everything_due(inputs: Inputs, readers: Sequence[FeedReader], believed_by: Ledgers | None) -> DataFrame:
    """Compare the whole feeds of these customers; return rows of ``DUE``: what to append, and what to retract.

    Args:
        believed_by: The result of ``ledgers``.
    """
    bookings = inputs["bookings"]
    held = periods(bookings, customer_rows(bookings.sparkSession, readers))
    look = Look(whole=None, ledgers=believed_by)
    return due(inputs, readers, held, look, inputs.kept(look.aging))


@dataclass(slots=True)
class Feeds:
    """The feeds of one query.

    Args:
        believed_by: The result of ``ledgers``.
    """

    readers: Sequence[FeedReader]
    sink: FeedSink
    believed_by: Ledgers | None
    _periods: DataFrame | None = field(default=None, init=False)
    _at_sea: AtSea | None = field(default=None, init=False)

    def deliver_everything(self, lake: Lake, readers: Sequence[FeedReader]) -> int:
        """Compare the whole feeds of these customers. Append missing records, and retractions of surplus ones."""
        return self.sink.append(everything_due(Inputs(lake), readers, self.believed_by))

    def deliver(self, lake: Lake, batch: DataFrame) -> int:
        """Append to each feed what a batch of ``changes`` makes due. Return the number of records."""
        keys = keys_of(batch)
        if not keys:
            return 0
        inputs = Inputs(lake)
        if self._periods is None or any(key.kind == "bookings" for key in keys):
            self._renew_periods(lake, inputs)
        held = self._periods
        if held is None:
            raise AssertionError("they were made just now")
        if self._at_sea is None and not lake.is_empty("digests"):
            self._at_sea = AtSea.of(inputs["feeds"])
        if self._at_sea is not None:
            self._at_sea.look_up(keys, inputs["feeds"])
        at_sea = None if self._at_sea is None else self._at_sea.times
        grains = {reader.grain for reader in self.readers if reader != SHORE_LOG}
        look = look_of(batch, keys, inputs, held, grains, self.believed_by, at_sea)
        count = 0
        if look.named or look.events is not None:
            kept = inputs.kept(look.aging)
            count = self.sink.append(due(inputs, self.readers, of_boxes(held, look.named), look, kept))
        if self._at_sea is not None:
            self._at_sea.note(keys)
        return count

    def _renew_periods(self, lake: Lake, inputs: Mapping[str, DataFrame]) -> None:
        """Compute the periods from the newest bookings. They stay valid until a booking changes."""
        self._periods = periods(inputs["bookings"], customer_rows(lake.spark, self.readers))
