"""A crash before or after every write of a delivery to a customer's feed, then the delivery again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from fairlead.kafka.convention import is_data
from shore.delta.lake import Lake
from shore.feeds.readers import FeedReader
from shore.feeds.writer import create_feeds
from shore.jobs.checkpoint import write_checkpoint
from shore.jobs.entitlement import TOUCHED
from shore.jobs.feeds import create_tables, deliver
from shore.paths import TablePaths
from shore.repair.logs import find_odd_rows, repair_logs
from shore.tables import TABLES
from shore.tables.customer_feed import CUSTOMER_FEED
from shore.verify import verify
from shore.verify.catalogue import FROM_LOGS
from tests.integration.shore.world import MINUTE, T0, World, booking, reading
from tests.support.crashes import crash_everywhere
from tests.support.feeds import followed, value_of
from topologies.model import Topology

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]


def prepared(world: World, folder: Path, *, recipient: bool = False) -> tuple[TablePaths, str, Topology]:
    """Empty tables, a checkpoint and feeds; and a box."""
    paths = TablePaths.of(folder)
    for name in TABLES:
        TABLES[name].create(paths.table(name))
    write_checkpoint(paths, "feeds", {}, "{}")
    create_feeds(world.endpoint, [world.customer, *([world.recipient] if recipient else [])])
    return paths, world.box(0), world.topology(recipient=recipient)


def store(world: World, lake: Lake, positions: dict[str, int]) -> None:
    """What jobs ``readings`` and ``operations`` do with what is in the logs before these offsets."""
    for entry in FROM_LOGS:
        if {"readings", "booking_changes"} & set(entry.tables):
            repair_logs(find_odd_rows(entry, lake, world.topology(), world.endpoint, positions), lake)


def touching(box: str) -> pa.Table:
    """All of a box is to be looked at."""
    return pa.table([[box], pa.nulls(1), pa.nulls(1)], names=TOUCHED.names).cast(TOUCHED)


FIRST_HOURS = (0, 6, 3, 8, 0, 4)
"""Hour at which the booking begins after each correction: narrowed, widened, and so on."""


def test_what_is_taken_back_is_taken_back_once(world: World, tmp_path: Path, source: SparkSession) -> None:
    """A record that must be retracted is retracted once, whatever crashes."""
    paths, box, topology = prepared(world, tmp_path)
    world.append({world.log(box): [reading(box, i, T0 + i * MINUTE) for i in range(10)]})
    rounds = 0

    def batch(number: int) -> Callable[[], None]:
        nonlocal rounds
        begin = T0 + FIRST_HOURS[number % len(FIRST_HOURS)] * MINUTE
        world.append({world.bookings: [booking(f"B-{world.tag}", world.customer, box, begin, None)]})
        rounds += 1
        store(world, Lake(source, paths), {world.log(box): 11, world.bookings: 1 + rounds})
        return lambda: deliver(touching(box), paths, world.endpoint, [FeedReader(world.customer)])

    def check() -> None:
        (found,) = verify(source, topology, world.endpoint, tmp_path, ["feeds"]).tables
        assert (found.same, found.differences) == (True, ())
        begin = FIRST_HOURS[(rounds - 1) % len(FIRST_HOURS)]
        feed = [record for record in world.read(f"feeds.{world.customer}") if is_data(record)]
        times = sorted(record.timestamp_ms for record in followed(feed))
        assert times == [int((T0 + i * MINUTE).timestamp() * 1000) for i in range(begin, 10)]

    assert crash_everywhere(batch, check, ("before", "after")) == 2
    world.append({world.bookings: [booking(f"B-{world.tag}", world.customer, box, T0 + 9 * MINUTE, None)]})
    store(world, Lake(source, paths), {world.log(box): 11, world.bookings: 2 + rounds})
    (unfair,) = verify(source, topology, world.endpoint, tmp_path, ["feeds"]).tables
    assert (unfair.same, {each.what for each in unfair.differences}) == (False, {"extra"})


def test_a_recipient_is_told_each_revision_of_an_hour_once(world: World, tmp_path: Path, source: SparkSession) -> None:
    """A recipient gets each revision of an hour once."""
    paths, box, topology = prepared(world, tmp_path, recipient=True)
    shop = FeedReader(world.recipient, "coarse", table=True)
    create_tables(paths, [shop])
    given = booking(f"B-{world.tag}", world.customer, box, T0, None, consignee=world.recipient)
    world.append({world.bookings: [given]})
    table = paths.customer(world.recipient)
    rounds = 0

    def batch(number: int) -> Callable[[], None]:
        """A reading of the next hour, and one that comes late for the first hour."""
        nonlocal rounds
        minutes = (number * 60, number)
        world.append({world.log(box): [reading(box, 2 * number + i, T0 + m * MINUTE) for i, m in enumerate(minutes)]})
        store(world, Lake(source, paths), {world.log(box): 3 + number * 2, world.bookings: 2})
        rounds += 1
        touched = pa.table([[box], [world.log(box)], [1 + number * 2]], names=TOUCHED.names).cast(TOUCHED)
        return lambda: deliver(touched, paths, world.endpoint, [FeedReader(world.customer), shop])

    def check() -> None:
        found, own = verify(source, topology, world.endpoint, tmp_path, ["feeds"]).tables
        assert (found.same, found.differences, own.same) == (True, (), True)
        feed = [record for record in world.read(f"feeds.{world.recipient}") if is_data(record)]
        rows = sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: row["feed_offset"])
        assert [(row["feed_offset"], row["value"].encode()) for row in rows] == [(r.offset, r.value) for r in feed]
        assert {row["kind"] for row in rows} <= {"conditions"}
        hours = {value["windowStart"]: value["readings"] for value in map(value_of, followed(feed))}
        begins = [f"{T0 + i * 60 * MINUTE:%Y-%m-%dT%H:%M:%SZ}" for i in range(rounds - 1)]
        assert hours == {begin: 1 + (i == 0) * rounds for i, begin in enumerate(begins)}

    assert crash_everywhere(batch, check, ("before", "after")) == 5  # one of them to the recipient's own table
    write_deltalake(table, CUSTOMER_FEED.plain_schema.empty_table(), mode="overwrite", predicate="feed_offset = 1")
    _, short = verify(source, topology, world.endpoint, tmp_path, ["feeds"]).tables
    assert (short.table, short.same) == (f"customers/{world.recipient}", False)


def test_nobody_gets_a_record_twice_and_none_is_missing(world: World, tmp_path: Path, source: SparkSession) -> None:
    """No customer gets a record twice, and none is missing."""
    paths, box, topology = prepared(world, tmp_path)
    world.append({world.bookings: [booking(f"B-{world.tag}", world.customer, box, T0, None)]})
    rounds = 0

    def batch(number: int) -> Callable[[], None]:
        nonlocal rounds
        more = [reading(box, number * 4 + i, T0 + (number * 4 + i) * MINUTE) for i in range(4)]
        world.append({world.log(box): more})
        store(world, Lake(source, paths), {world.log(box): 1 + (number + 1) * 4, world.bookings: 2})
        rounds += 1
        return lambda: deliver(touching(box), paths, world.endpoint, [FeedReader(world.customer)])

    def check() -> None:
        (found,) = verify(source, topology, world.endpoint, tmp_path, ["feeds"]).tables
        assert (found.same, found.rows, found.differences) == (True, rounds * 4, ())

    writes = crash_everywhere(batch, check, ("before", "after"))
    assert writes == 2  # to the feed, and of what was read back to the table
    feed = [record for record in world.read(f"feeds.{world.customer}") if is_data(record)]
    assert len({record.headers for record in feed}) == len(feed) == rounds * 4
    last = f"feed_offset = {feed[-1].offset}"
    write_deltalake(paths.table("feeds"), TABLES["feeds"].plain_schema.empty_table(), mode="overwrite", predicate=last)
    (short,) = verify(source, topology, world.endpoint, tmp_path, ["feeds"]).tables
    assert (short.same, short.rows, short.expected) == (False, len(feed) - 1, len(feed))
    assert [each.what for each in short.differences] == ["missing"]
