"""Appending to feeds exactly once: the driver's part.

Table ``feeds`` is filled only from records in the feeds' logs, and it decides what counts as delivered to a customer.

1. Before a query begins, ``FeedSink.open`` asks where all feeds end, in one request, and reads back the records that an
   interrupted run appended beyond the table.
2. ``append`` partitions the due rows by customer. Tasks append them, each append a compare-and-swap on the feed's end,
   and return the rows of table ``feeds`` with their offsets. A task that Spark runs again finds its earlier records
   after the feed's expected end and returns the same rows (``shore.sink.feed_logs``).
3. The driver commits these rows: one commit to table ``feeds``, and one to each customer's own table among them.

A crash between two of these steps leaves records in a feed that the table does not have. Step 1 reads them back, and
they are no longer due. So a batch can be repeated any number of times.

**The guard.** Every commit's transaction version is the number of rows written so far. If somebody deleted a row, its
record would be delivered a second time; ``check_whole`` refuses such a table. The number of rows comes from the table's
log: no file is read. ``reread`` fills the table again from the feeds and records how many rows it removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from fairlead.kafka.endpoint import KafkaEndpoint
from shore.delta.commit import append_once
from shore.delta.lake import Lake, computed
from shore.delta.lease import check_lease
from shore.errors import FeedMovedError, SplitStateError
from shore.feeds.entitlement import order_of_feeds
from shore.feeds.readers import FeedReader
from shore.feeds.records import feed_topic
from shore.paths import CUSTOMERS, TablePaths
from shore.sink.feed_logs import GIVEN, appending, feed_extents, reading
from shore.tables.feeds import CUSTOMER_FEED, FEEDS

WRITTEN: Final = "rows"
"""The transaction of table ``feeds`` whose version is the number of rows ever written to it."""
_REMOVED: Final = "fairlead.rows_removed"
"""The table's property with the number of those rows that ``reread`` removed."""
_DOUBTFUL: Final = "fairlead.doubtful"
"""The table's property with the customers that may have fillers in place of records that it names."""
_AT_ONCE: Final = 4  # customers' own tables that are committed side by side
_OWN: Final = CUSTOMER_FEED.plain_schema.names


def app_of(customer: str) -> str:
    """Return the transaction of a customer's own table. Its version is the feed offset of the last row."""
    return f"feed:{customer}"


def check_whole(paths: TablePaths) -> int:
    """Return how many rows were ever written to table ``feeds``.

    Raises:
        SplitStateError: the table has another number of rows, so records could be delivered a second time.
    """
    table = DeltaTable(paths.table(FEEDS.name))
    found, written = int(table.count()), table.transaction_version(WRITTEN)
    if written is None:  # a new table, or one of an older version
        return found
    expected = written - int(table.metadata().configuration.get(_REMOVED, "0"))
    if found != expected:
        raise SplitStateError(
            f"table feeds has {found:,} rows, and {expected:,} were written: somebody else changed it, and going on "
            "could give records a second time",
            hint="fairlead shore rebuild feeds --yes reads it again from the feeds; then shore goes on",
        )
    return written


def reread(lake: Lake, endpoint: KafkaEndpoint, customers: Sequence[str]) -> int:
    """Fill table ``feeds`` again from the feeds of these customers. Return its number of rows.

    Rows of other customers stay, and so do rows whose records retention has deleted from the feed. If this is
    interrupted, ``check_whole`` still refuses the table.
    """
    location = lake.paths.table(FEEDS.name)
    extents = feed_extents(endpoint, customers)
    starts = {customer: extent.start for customer, extent in extents.items()}
    stored = lake.read(FEEDS.name)
    kept = stored.exceptAll(_beyond(stored, starts, strangers=False))
    gaps = {customer: (extent.start, extent.end) for customer, extent in extents.items() if extent.start < extent.end}
    rows = kept.unionByName(_read(lake, endpoint, gaps, frozenset()).select(*FEEDS.plain_schema.names))
    check_lease(location)
    rows.write.format("delta").mode("overwrite").save(location)
    table = DeltaTable(location)
    count, written = int(table.count()), table.transaction_version(WRITTEN)
    removed = {} if written is None else {_REMOVED: str(written - count)}
    _set_properties(lake, {_DOUBTFUL: "", **removed})
    return count


def doubt(lake: Lake, customers: Collection[str]) -> None:
    """Note that fillers are about to take the place of these customers' records, until ``reread`` has been called."""
    _set_properties(lake, {_DOUBTFUL: ",".join(sorted(customers))})


def doubtful(lake: Lake) -> list[str]:
    """Return the customers of a ``doubt`` that no ``reread`` followed."""
    found = DeltaTable(lake.paths.table(FEEDS.name)).metadata().configuration.get(_DOUBTFUL)
    return found.split(",") if found else []


def _set_properties(lake: Lake, properties: Mapping[str, str]) -> None:
    location = lake.paths.table(FEEDS.name)
    check_lease(location)
    words = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    lake.spark.sql(f"alter table delta.`{location}` set tblproperties ({words})")


@dataclass(slots=True)
class FeedSink:
    """The feeds of one topology, and the tables that follow them. Each start of the query opens another sink.

    Args:
        ends: Where each feed ends; the tables have all records before.
        written: How many rows were ever written to table ``feeds``.
        own: Customers with a table of their own.
    """

    paths: TablePaths
    endpoint: KafkaEndpoint
    ends: dict[str, int]
    written: int
    own: frozenset[str]

    @classmethod
    def open(cls, lake: Lake, endpoint: KafkaEndpoint, readers: Sequence[FeedReader]) -> FeedSink:
        """Bring the tables up to the ends of the feeds, whose logs must exist. Return the sink.

        Raises:
            SplitStateError: table ``feeds`` lacks rows that were written to it.
            FeedMovedError: a feed ends before the last record that a table has of it.
            SiteUnreachableError: Kafka does not answer.
        """
        written = check_whole(lake.paths)
        own = frozenset(reader.customer for reader in readers if reader.table)
        sink = cls(lake.paths, endpoint, {}, written, own)
        extents = feed_extents(endpoint, [reader.customer for reader in readers])
        known = ends_of_table(lake) if written else {}
        own_known = {customer: _end_of_own_table(lake.paths, customer) for customer in own}
        gaps = {}
        for customer, extent in extents.items():
            if extent.end < known.get(customer, 0):
                hint = "stop shore and run 'fairlead shore rebuild feeds': the customer gets again what is gone"
                raise _cut_off(customer, extent.end, FEEDS.name, known[customer], hint)
            if extent.end < own_known.get(customer, 0):
                hint = f"remove {lake.paths.customer(customer)}: the next run fills it again from the feed"
                raise _cut_off(customer, extent.end, CUSTOMERS + customer, own_known[customer], hint)
            start = max(extent.start, min(known.get(customer, 0), own_known.get(customer, extent.end)))
            if start < extent.end:
                gaps[customer] = (start, extent.end)
        if gaps:
            sink._commit(_read(lake, endpoint, gaps, own), known, own_known)
        sink.ends.update({customer: extent.end for customer, extent in extents.items()})
        return sink

    def append(self, due: DataFrame) -> int:
        """Append rows of ``DUE`` to the feeds, and commit the records to the tables. Return the number of records.

        Raises:
            LeaseLostError: another machine has taken the right to write; nothing is appended.
            UnavailableError: the storage does not answer, so it is not known whether another has.
        """
        check_lease(self.paths.table(FEEDS.name))
        ordered = due.repartition("customer").sortWithinPartitions(*order_of_feeds())
        append = appending(self.endpoint, dict(self.ends), self.own)
        return self._commit(ordered.mapInArrow(append, from_arrow_schema(GIVEN)), {}, {})

    def _commit(self, given: DataFrame, known: Mapping[str, int], own_known: Mapping[str, int]) -> int:
        """Commit the rows of ``GIVEN`` that the tables do not have yet. Return the number of rows new to ``feeds``.

        Args:
            known, own_known: Where table ``feeds`` and customers' own tables end. For customers that are not named, all
                rows are new.
        """
        given = computed(given)
        count = self._commit_feeds(given, known)
        self._commit_own(given, own_known)
        return count

    def _commit_feeds(self, given: DataFrame, known: Mapping[str, int]) -> int:
        new = _beyond(given, known)
        found = new.groupBy("customer").agg(F.count("*").alias("rows"), F.max("feed_offset").alias("last")).collect()
        count = sum(int(row["rows"]) for row in found)
        if count:
            rows = new.select(*FEEDS.plain_schema.names).coalesce(1)
            append_once(rows, self.paths.table(FEEDS.name), app=WRITTEN, version=self.written + count)
            self.written += count
        self.ends.update({row["customer"]: row["last"] + 1 for row in found})
        return count

    def _commit_own(self, given: DataFrame, known: Mapping[str, int]) -> None:
        if not self.own:
            return
        new = _beyond(given.where(F.col("customer").isin(sorted(self.own))), known)
        last = new.groupBy("customer").agg(F.max("feed_offset").alias("last")).collect()

        def commit(customer: str, offset: int) -> None:
            rows = new.where(F.col("customer") == customer).select(*_OWN).coalesce(1)
            append_once(rows, self.paths.customer(customer), app=app_of(customer), version=offset)

        with ThreadPoolExecutor(_AT_ONCE, "own-tables") as pool:
            list(pool.map(lambda row: commit(row["customer"], row["last"]), last))


def _cut_off(customer: str, end: int, table: str, known: int, hint: str) -> FeedMovedError:
    return FeedMovedError(
        f"log {feed_topic(customer)} ends at {end:,}, and table {table} has its records up to {known:,}: it was "
        "truncated or made anew",
        hint=f"if it stays so, {hint}",
        log=feed_topic(customer),
    )


def _read(lake: Lake, endpoint: KafkaEndpoint, gaps: Mapping[str, tuple[int, int]], own: frozenset[str]) -> DataFrame:
    """Return rows of ``GIVEN`` for the records between these offsets of customers' feeds, read by tasks."""
    wanted = pa.Table.from_pylist(
        [{"customer": customer, "start": start, "stop": stop} for customer, (start, stop) in gaps.items()],
        schema=pa.schema([("customer", pa.string()), ("start", pa.int64()), ("stop", pa.int64())]),
    )
    tasks = max(1, min(len(gaps), lake.spark.sparkContext.defaultParallelism))
    rows = lake.spark.createDataFrame(wanted).repartition(tasks)
    return rows.mapInArrow(reading(endpoint, own), from_arrow_schema(GIVEN))


def _beyond(given: DataFrame, known: Mapping[str, int], *, strangers: bool = True) -> DataFrame:
    """Return the rows from these offsets of the feeds on; with ``strangers``, also all rows of unnamed customers."""
    if not known:
        return given if strangers else given.limit(0)
    rows = pa.table({"customer": list(known), "_known": pa.array(list(known.values()), pa.int64())})
    ends = F.broadcast(given.sparkSession.createDataFrame(rows))
    beyond = F.col("feed_offset") >= F.col("_known")
    wanted = beyond | F.col("_known").isNull() if strangers else beyond
    return given.join(ends, on="customer", how="left").where(wanted).select(*given.columns)


def ends_of_table(lake: Lake) -> dict[str, int]:
    """Return the offset after each customer's last row in table ``feeds``."""
    rows = lake.read(FEEDS.name).groupBy("customer").agg(F.max("feed_offset").alias("last"))
    return {row["customer"]: row["last"] + 1 for row in rows.collect()}


def _end_of_own_table(paths: TablePaths, customer: str) -> int:
    last = DeltaTable(paths.customer(customer)).transaction_version(app_of(customer))
    return 0 if last is None else last + 1
