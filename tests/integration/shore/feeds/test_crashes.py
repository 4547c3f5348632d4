"""Crash after every write of a delivery to a customer's feed, then repeat the delivery."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import Record
from shore.datasource import register
from shore.delta.commit import create_tables, replace_rows
from shore.delta.lake import Lake
from shore.errors import FeedMovedError, SplitStateError
from shore.feeds.entitlement import DUE
from shore.feeds.look import CHANGE
from shore.feeds.readers import FeedReader
from shore.jobs.checkpoint import write_checkpoint
from shore.jobs.feeds import Feeds
from shore.paths import TablePaths
from shore.repair.logs import find_odd_rows, repair_logs
from shore.sink.exactly_once import FeedSink, check_whole, reread
from shore.sink.feed_logs import appending, create_feeds, feed_extents
from shore.tables import TABLES
from shore.tables.bookings import BOOKINGS, STATES
from shore.tables.feeds import CUSTOMER_FEED
from shore.verify import verify
from shore.verify.catalogue import FROM_LOGS
from tests.support.crashes import crash_everywhere
from tests.support.feeds import followed, value_of
from tests.support.shore.world import MINUTE, T0, World, booking, reading

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


class Delivery:
    """Tables and feeds of one world, without the jobs that fill them."""

    def __init__(self, world: World, folder: Path, spark: SparkSession, *, recipient: bool = False) -> None:
        self.world, self.folder = world, folder
        self.lake = Lake(spark, TablePaths.of(folder))
        register(spark, world.endpoint)
        self.box, self.topology = world.box(0), world.topology(recipient=recipient)
        self.readers = [FeedReader(world.customer)]
        self.readers += [FeedReader(world.recipient, "coarse", table=True)] if recipient else []
        own = {self.lake.paths.table(name): table for name, table in TABLES.items()}
        own |= {self.lake.paths.customer(each.customer): CUSTOMER_FEED for each in self.readers if each.table}
        create_tables(spark, own)
        write_checkpoint(self.lake.paths, "feeds", {}, "{}")
        create_feeds(world.endpoint, [each.customer for each in self.readers])

    def store(self, positions: dict[str, int]) -> None:
        """Store what is in the logs before these offsets, as the jobs that ``feeds`` follows do."""
        world = self.world
        for entry in FROM_LOGS:
            if {"readings", "booking_changes"} & set(entry.tables):
                repair_logs(find_odd_rows(entry, self.lake, world.topology(), world.endpoint, positions), self.lake)
        changes = self.lake.read("booking_changes")
        replace_rows(self.lake, BOOKINGS, self.lake.spark.sql(STATES, booking_changes=changes))

    def batch(self, *changes: dict[str, Any]) -> DataFrame:
        """Return a batch of job ``feeds``."""
        schema = to_arrow_schema(CHANGE, timezone="UTC")
        return self.lake.spark.createDataFrame(pa.Table.from_pylist(list(changes), schema=schema))

    def deliver(self, batch: DataFrame) -> int:
        """Open the sink as a starting query does, and deliver its first batch."""
        sink = FeedSink.open(self.lake, self.world.endpoint, self.readers)
        return Feeds(self.readers, sink, None).deliver(self.lake, batch)

    def check(self) -> None:
        """Fail unless ``verify`` finds feeds and tables right."""
        for found in verify(self.lake.spark, self.topology, self.world.endpoint, self.folder, ["feeds"]).tables:
            assert (found.table, found.same, found.differences) == (found.table, True, ())

    def delete(self, location: str, rows: str) -> None:
        SparkTable.forPath(self.lake.spark, location).delete(rows)

    def feed(self, customer: str) -> list[Record]:
        return [record for record in self.world.read(f"feeds.{customer}") if is_data(record)]


FIRST_MINUTES = (0, 6, 3, 8, 0, 4)
"""Minute at which the booking begins after each correction: narrowed, widened, and so on."""


@pytest.mark.chaos
def test_nobody_gets_a_record_twice_and_none_is_missing(world: World, tmp_path: Path, spark: SparkSession) -> None:
    """Each round corrects the booking and adds readings; a record that must be retracted is retracted once."""
    delivery = Delivery(world, tmp_path, spark)
    box, rounds = delivery.box, 0

    def batch(number: int) -> Callable[[], object]:
        nonlocal rounds
        begin = T0 + FIRST_MINUTES[number % len(FIRST_MINUTES)] * MINUTE
        world.append({world.bookings: [booking(f"B-{world.tag}", world.customer, box, begin, None)]})
        world.append({world.log(box): [reading(box, i, T0 + i * MINUTE) for i in range(number * 4, number * 4 + 4)]})
        rounds += 1
        delivery.store({world.log(box): 1 + rounds * 4, world.bookings: 1 + rounds})
        return lambda: delivery.deliver(delivery.batch({"kind": "bookings", "equipment_reference": box}))

    def check() -> None:
        delivery.check()
        begin = FIRST_MINUTES[(rounds - 1) % len(FIRST_MINUTES)]
        times = sorted(record.timestamp_ms for record in followed(delivery.feed(world.customer)))
        assert times == [milliseconds(T0 + i * MINUTE) for i in range(begin, rounds * 4)]

    assert crash_everywhere(batch, check) == 3  # the batch, its commit, table feeds
    world.append({world.bookings: [booking(f"B-{world.tag}", world.customer, box, T0 + 9 * MINUTE, None)]})
    delivery.store({world.log(box): 1 + rounds * 4, world.bookings: 2 + rounds})
    (unfair,) = verify(spark, delivery.topology, world.endpoint, tmp_path, ["feeds"]).tables
    assert (unfair.same, {each.what for each in unfair.differences}) == (False, {"extra"})

    # Without its row in table feeds, the record would be delivered again. It was never retracted: a retraction without
    # its record would be told as well.
    rows = check_whole(delivery.lake.paths)
    delivery.delete(delivery.lake.paths.table("feeds"), "feed_offset = 15")
    with pytest.raises(SplitStateError, match=f"has {rows - 1} rows, and {rows} were written"):
        delivery.deliver(delivery.batch({"kind": "bookings", "equipment_reference": box}))
    (short,) = verify(spark, delivery.topology, world.endpoint, tmp_path, ["feeds"]).tables
    assert (short.same, [each.what for each in short.differences]) == (False, ["missing"])
    assert reread(delivery.lake, world.endpoint, [world.customer]) == rows
    assert delivery.deliver(delivery.batch({"kind": "bookings", "equipment_reference": box})) == 1
    check_whole(delivery.lake.paths)


@pytest.mark.chaos
def test_a_recipient_is_told_each_revision_of_an_hour_once(world: World, tmp_path: Path, spark: SparkSession) -> None:
    delivery = Delivery(world, tmp_path, spark, recipient=True)
    box, rounds = delivery.box, 0
    given = booking(f"B-{world.tag}", world.customer, box, T0, None, consignee=world.recipient)
    world.append({world.bookings: [given]})
    table = delivery.lake.paths.customer(world.recipient)

    def batch(number: int) -> Callable[[], object]:
        """Store a reading of the next hour and a late one of the first hour; return their delivery."""
        nonlocal rounds
        times = [T0 + number * 60 * MINUTE, T0 + number * MINUTE]
        records = [reading(box, 2 * number + i, time) for i, time in enumerate(times)]
        world.append({world.log(box): records})
        delivery.store({world.log(box): 3 + number * 2, world.bookings: 2})
        rounds += 1
        changes = [
            {"kind": "readings", "log": world.log(box), "log_offset": 1 + number * 2 + i, "equipment_reference": box}
            | {"device_date_time": time, "late": False, "payload": records[i].value}
            for i, time in enumerate(times)
        ]
        return lambda: delivery.deliver(delivery.batch(*changes))

    def check() -> None:
        delivery.check()
        feed = delivery.feed(world.recipient)
        rows = sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: row["feed_offset"])
        assert [(row["feed_offset"], row["value"].encode()) for row in rows] == [(r.offset, r.value) for r in feed]
        assert {row["kind"] for row in rows} <= {"conditions"}
        hours = {value["windowStart"]: value["readings"] for value in map(value_of, followed(feed))}
        begins = [f"{T0 + i * 60 * MINUTE:%Y-%m-%dT%H:%M:%SZ}" for i in range(rounds - 1)]
        assert hours == {begin: 1 + (i == 0) * rounds for i, begin in enumerate(begins)}

    assert crash_everywhere(batch, check) == 4  # one more: the recipient's own table
    delivery.delete(table, "feed_offset = 1")
    _, short = verify(spark, delivery.topology, world.endpoint, tmp_path, ["feeds"]).tables
    assert (short.table, short.same) == (f"customers/{world.recipient}", False)


class _Killed(Exception):
    pass


def test_a_task_that_runs_again_finds_what_it_appended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task killed before or after any append completes the feed; it refuses a feed that others write. No Spark."""
    customers = [f"{name}-{world.tag}" for name in ("one", "two")]
    create_feeds(world.endpoint, customers)
    rows = [
        {"customer": customer, "log": "containers.B", "log_offset": n, "equipment_reference": "B", "payload": b"{}"}
        | {"device_date_time": T0 + n * MINUTE, "late": False, "step": 1}
        for customer in customers
        for n in range(2_500)
    ]
    table = pa.Table.from_pylist(rows, schema=to_arrow_schema(DUE, timezone="UTC"))
    ends = {customer: extent.end for customer, extent in feed_extents(world.endpoint, customers).items()}
    real = Appender.append

    def run() -> list[tuple[Any, ...]]:
        append = appending(world.endpoint, ends, customers)
        given = [row for batch in append(batches(table)) for row in batch.to_pylist()]
        assert {row["value"] for row in given} == {"{}"}
        return sorted((row["customer"], row["feed_offset"], row["log_offset"]) for row in given)

    def attempt(number: int) -> bool:
        """Run a task that dies before or after its second append; return whether it came through."""
        calls = itertools.count()

        async def dying(self: Appender, log: Any, records: Sequence[Any], **more: Any) -> Any:
            mine = next(calls) == 1
            if mine and number % 2:
                raise _Killed
            done = await real(self, log, records, **more)
            if mine:
                raise _Killed
            return done

        with monkeypatch.context() as patch, contextlib.suppress(_Killed):
            patch.setattr(Appender, "append", dying)
            run()
            return True
        return False

    killed = next(number for number in range(100) if attempt(number))
    assert killed > 4
    expected = [(customer, 1 + n, n) for customer in customers for n in range(2_500)]
    assert run() == run() == expected
    for customer in customers:
        found = [record for record in world.read(f"feeds.{customer}") if is_data(record)]
        assert [dict(record.headers)["origin"] for record in found] == [b"containers.B@%d" % n for n in range(2_500)]
    with pytest.raises(FeedMovedError, match="another process writes this feed"):
        list(appending(world.endpoint, ends, ())(batches(table.slice(0, 10))))


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.to_batches(max_chunksize=700)


def milliseconds(time: dt.datetime) -> int:
    return int(time.timestamp() * 1000)
