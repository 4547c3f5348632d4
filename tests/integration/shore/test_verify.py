"""Verifying, backfilling and rebuilding log tables against a real broker, without shore's jobs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fairlead.kafka.admin import admin_client
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import headers
from shore.datasource import register
from shore.delta.commit import conform, create_tables
from shore.delta.lake import Lake
from shore.errors import SplitStateError
from shore.feeds.readers import FeedReader
from shore.jobs.checkpoint import read_checkpoint, write_checkpoint
from shore.jobs.readings import add_inspections
from shore.jobs.runner import JOBS
from shore.lag import job_lags
from shore.maintenance import ExpiryStep, expire, maintenance_session
from shore.paths import TablePaths
from shore.repair import backfill
from shore.repair.backfill import BackfillSpan
from shore.repair.logs import LogRepair, find_odd_rows, repair_logs
from shore.repair.rebuild import Rebuilt, rebuild_job
from shore.sink.exactly_once import FeedSink, check_whole
from shore.sink.feed_logs import create_feeds
from shore.tables import TABLES
from shore.verify import TableCheck, verify
from shore.verify.catalogue import FROM_LOGS
from tests.support.shore.world import MINUTE, T0, World, reading
from tests.support.waits import until

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]

ENTRY = next(entry for entry in FROM_LOGS if "readings" in entry.tables)


class Tables:
    """Tables ``readings`` and ``readings_rejected`` of one world, filled as the job fills them, without running it."""

    def __init__(self, world: World, folder: Path, spark: SparkSession, empty: Path) -> None:
        self.world, self.folder, self.paths, self.spark = world, folder, TablePaths.of(folder), spark
        self.lake = Lake(spark, self.paths)
        register(spark, world.endpoint)
        shutil.copytree(empty, folder, dirs_exist_ok=True)

    def fill(self, positions: dict[str, int]) -> None:
        """Store everything before these positions, and write a checkpoint of these positions."""
        repair_logs(self.odd(positions), self.lake)
        write_checkpoint(self.paths, "readings", positions, "{}")

    def odd(self, positions: dict[str, int]) -> LogRepair:
        return find_odd_rows(ENTRY, self.lake, self.world.topology(), self.world.endpoint, positions)

    def rebuild(self, job: str) -> Rebuilt:
        return rebuild_job(job, JOBS, self.lake, self.world.topology(), self.world.endpoint)

    def check(self) -> TableCheck:
        found = verify(self.spark, self.world.topology(), self.world.endpoint, self.folder, ["readings"])
        (check,) = found.tables
        assert found.ok is (check.same is not False)
        return check

    def delete(self, log: str, offset: int, table: str = "readings") -> None:
        SparkTable.forPath(self.spark, self.paths.table(table)).delete(f"log = '{log}' and log_offset = {offset}")

    def rows(self, table: str = "readings") -> pa.Table:
        order = [("log", "ascending"), ("log_offset", "ascending")]
        return DeltaTable(self.paths.table(table)).to_pyarrow_dataset().to_table().sort_by(order)

    def feeds(self) -> pa.Table:
        rows = DeltaTable(self.paths.table("feeds")).to_pyarrow_dataset(schema=TABLES["feeds"].plain_schema).to_table()
        return rows.sort_by([("customer", "descending"), ("feed_offset", "ascending")]).combine_chunks()

    def add(self, rows: pa.Table, table: str = "readings", mode: str = "append") -> None:
        fresh = conform(self.spark.createDataFrame(rows), TABLES[table])
        fresh.write.format("delta").mode(mode).save(self.paths.table(table))

    def backfill(self, since: dt.datetime | None = None, until: dt.datetime | None = None) -> dict[str, int]:
        span, world = BackfillSpan(since, until), self.world
        todo = backfill.plan_backfill(self.lake, world.topology(), world.endpoint, span, ["readings"])
        return backfill.apply_backfill(todo, self.lake, world.topology())


@pytest.fixture(scope="module")
def empty(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the tables without rows; tests copy them, because creating takes far longer."""
    folder = tmp_path_factory.mktemp("empty")
    paths = TablePaths.of(folder)
    create_tables(spark, {paths.table(name): table for name, table in TABLES.items()})
    return folder


@pytest.fixture
def tables(world: World, tmp_path: Path, spark: SparkSession, empty: Path) -> Tables:
    """Fill tables from two logs of 24 records: one record cannot be read, and 20 of the second log are not read yet."""
    one, two = world.box(0), world.box(1)
    world.append(
        {
            world.log(one): [reading(one, i, T0 + i * 60 * MINUTE) for i in range(24)],
            world.log(two): [NewRecord(b"{broken", two.encode(), timestamp_ms=int(T0.timestamp() * 1000))]
            + [reading(two, i, T0 + i * 60 * MINUTE) for i in range(23)],
        }
    )
    found = Tables(world, tmp_path, spark, empty)
    found.fill({world.log(one): 25, world.log(two): 5})
    return found


def test_tables_equal_logs_until_somebody_changes_a_row(tables: Tables, world: World) -> None:
    one, two = world.log(world.box(0)), world.log(world.box(1))
    check = tables.check()
    assert (check.same, check.rows, check.expected, check.logs, check.behind) == (True, 28, 28, 2, 20)
    assert (tables.rows().num_rows, tables.rows("readings_rejected").num_rows) == (27, 1)
    good = tables.rows()

    tables.delete(one, 7)
    tables.add(good.slice(2, 1))  # the row is there twice
    lied = good.slice(3, 1).set_column(good.schema.names.index("payload"), "payload", pa.array([b"{}"], pa.binary()))
    tables.delete(lied["log"][0].as_py(), lied["log_offset"][0].as_py())
    tables.add(lied)
    tables.delete(two, 1, "readings_rejected")
    check = tables.check()
    assert (check.same, check.rows, check.expected, check.differing) == (False, 27, 28, 2)
    told = {(each.what, each.key["log"], each.key["log_offset"]) for each in check.differences}
    lied_key = (lied["log"][0].as_py(), lied["log_offset"][0].as_py())
    twice_key = (good["log"][2].as_py(), good["log_offset"][2].as_py())
    assert told == {("missing", one, 7), ("doubled", *twice_key), ("changed", *lied_key), ("missing", two, 1)}

    assert tables.backfill() == {"readings + readings_rejected": 4}
    assert tables.check().same is True
    assert tables.rows() == good
    assert tables.backfill() == {}


def test_what_never_ran_and_has_nothing_to_do_is_equal(tables: Tables, world: World) -> None:
    found = verify(tables.spark, world.topology(), world.endpoint, tables.folder, ["custody", "conditions"])
    custody, conditions = found.of("custody"), found.of("conditions")
    assert custody is not None
    assert conditions is not None
    assert (custody.same, custody.rows) == (True, 0)
    assert (conditions.same, conditions.notes) == (None, ("job conditions has not run yet",))
    assert (found.ok, found.whole) == (True, False)
    shutil.rmtree(tables.paths.checkpoint("readings"))
    assert tables.check().notes == ("job readings has lost its checkpoint",)


def test_rows_that_are_no_records(tables: Tables, world: World) -> None:
    one = world.log(world.box(0))
    rows = tables.rows().slice(0, 1)

    def at(log: str, offset: int) -> pa.Table:
        moved = rows.set_column(0, "log", pa.array([log])).set_column(1, "log_offset", pa.array([offset], pa.int64()))
        return moved.select(rows.schema.names)

    tables.add(at(one, 99))  # beyond what the job has read
    tables.add(at(f"{one}X", 0))  # of no log
    check = tables.check()
    assert (check.same, check.differing) == (False, 2)
    assert {(each.what, each.key["log_offset"]) for each in check.differences} == {("extra", 99), ("extra", 0)}


def test_what_retention_deleted_is_no_difference(tables: Tables, world: World) -> None:
    log = world.log(world.box(0))
    world.delete_before(log, 10)
    check = tables.check()
    assert (check.same, check.rows, check.expected, check.gone) == (True, 28 - 9, 28 - 9, 9)
    tables.add(tables.rows().filter(pc.equal(tables.rows()["log"], log)).slice(2, 1))
    twice = tables.check()
    assert (twice.same, [each.what for each in twice.differences]) == (False, ["doubled"])


def test_what_retention_deleted_from_tables_is_no_difference(tables: Tables, world: World) -> None:
    """Rows past their retention are left out on both sides, and a backfill does not write them again."""
    one = world.log(world.box(0))
    step = ExpiryStep("readings", T0 + 5 * 60 * MINUTE, 1)
    assert expire(maintenance_session(tables.spark), tables.paths, step) > 0
    rows = tables.rows().num_rows
    check = tables.check()
    assert (check.same, check.rows, check.expected) == (True, rows + 1, rows + 1)
    assert tables.backfill() == {}
    assert "readings + readings_rejected" not in tables.rebuild("readings").written
    assert tables.rows().num_rows == rows
    tables.delete(one, 24)
    assert tables.check().differing == 1


@pytest.mark.chaos
def test_a_day_again_adds_only_what_is_missing_of_it(tables: Tables, world: World) -> None:
    log = world.log(world.box(0))
    for offset in (3, 10, 20):  # at 2, 9 and 19 o'clock
        tables.delete(log, offset)
    good = tables.check()
    assert good.rows == 25
    nine = T0 + dt.timedelta(hours=9)
    assert tables.backfill(nine, nine + dt.timedelta(hours=3)) == {"readings + readings_rejected": 1}
    assert tables.check().rows == 26
    assert tables.backfill(nine) == {"readings + readings_rejected": 1}
    assert tables.backfill() == {"readings + readings_rejected": 1}
    assert tables.check().same is True


def test_a_lost_checkpoint_is_made_anew_where_the_tables_end(tables: Tables, world: World) -> None:
    before = read_checkpoint(tables.paths, "readings")
    assert before is not None
    tables.delete(world.log(world.box(0)), 7)
    (Path(tables.paths.checkpoint("readings")) / "offsets" / "0").write_text("v1")
    done = tables.rebuild("readings")
    after = read_checkpoint(tables.paths, "readings")
    assert after is not None
    assert after.positions == before.positions
    assert after.query_id != before.query_id
    assert (done.written, done.logs, done.next) == ({"readings + readings_rejected": 1}, 2, ())
    assert done.put_aside is not None
    assert (Path(done.put_aside) / "offsets" / "0").exists()
    check = tables.check()
    assert (check.same, check.rows, check.behind) == (True, 28, 20)


def test_what_customers_have_is_read_back_from_their_feeds(tables: Tables, world: World) -> None:
    """Deleted rows are read back from the feed; otherwise the customer would get the records again."""
    log, customer, paths, lake = world.log(world.box(0)), world.customer, tables.paths, tables.lake
    feed, readers = f"feeds.{customer}", [FeedReader(customer)]
    records = [NewRecord(b"{}", b"x", ((headers.ORIGIN, f"{log}@{n}".encode()),), timestamp_ms=n) for n in range(1, 9)]
    create_feeds(world.endpoint, [customer])
    world.append({feed: records})
    FeedSink.open(lake, world.endpoint, readers)
    whole = tables.feeds()
    assert (whole.num_rows, check_whole(paths)) == (8, 8)

    given = SparkTable.forPath(tables.spark, paths.table("feeds"))
    given.update("feed_offset = 8", {"feed_offset": "1000"})  # beyond the end of the feed: verify does not wait
    (wrong,) = verify(tables.spark, world.topology(), world.endpoint, tables.folder, ["feeds"]).tables
    assert (wrong.same, {each.what for each in wrong.differences}) == (False, {"missing", "extra"})
    given.update("feed_offset = 1000", {"feed_offset": "8"})

    SparkTable.forPath(tables.spark, paths.table("feeds")).delete("feed_offset in (2, 8)")
    with pytest.raises(SplitStateError, match="has 6 rows, and 8 were written"):
        check_whole(paths)
    assert tables.rebuild("feeds").written == {"feeds": 8}
    assert tables.feeds() == whole
    check_whole(paths)
    former = whole.slice(0, 1).set_column(0, "customer", pa.array(["former"]))
    tables.add(former, "feeds")
    with pytest.raises(SplitStateError, match="has 9 rows, and 8 were written"):
        check_whole(paths)
    assert tables.rebuild("feeds").written == {"feeds": 9}
    assert tables.feeds() == pa.concat_tables([former, whole])
    world.append({feed: records[:2]})
    FeedSink.open(lake, world.endpoint, readers)
    assert tables.feeds().num_rows == 11
    check_whole(paths)
    world.delete_before(feed, 4)
    assert tables.rebuild("feeds").written == {"feeds": 11}
    assert tables.feeds().slice(0, 9) == pa.concat_tables([former, whole])
    check_whole(paths)


def test_a_feed_that_has_lost_its_records_is_told_and_not_waited_for(tables: Tables, world: World) -> None:
    log, customer, feed = world.log(world.box(0)), world.customer, f"feeds.{world.customer}"
    records = [NewRecord(b"{}", b"x", ((headers.ORIGIN, f"{log}@{n}".encode()),), timestamp_ms=n) for n in range(1, 9)]
    create_feeds(world.endpoint, [customer])
    world.append({feed: records})
    FeedSink.open(tables.lake, world.endpoint, [FeedReader(customer)])
    client = admin_client(world.endpoint)
    client.delete_topics([feed])[feed].result(30)
    until(lambda: feed not in client.list_topics(timeout=30).topics, "the feed is gone")
    create_feeds(world.endpoint, [customer])
    (wrong,) = verify(tables.spark, world.topology(), world.endpoint, tables.folder, ["feeds"]).tables
    assert (wrong.same, {each.what for each in wrong.differences}) == (False, {"extra"})


def test_a_log_that_was_made_anew_is_left_alone(tables: Tables, world: World) -> None:
    log = world.log(world.box(0))
    count = sum(is_data(record) for record in world.read(log))
    assert count == 24
    found = tables.odd({log: 99})
    assert (found.counts, found.rows, found.shorter) == ({}, None, (log,))


def test_lag_in_records_and_in_time(tables: Tables, world: World) -> None:
    now = dt.datetime.now(dt.UTC)
    found = job_lags(world.topology(), world.endpoint, tables.paths, ["readings", "conditions"], now=now)
    readings = found["readings"]
    assert (readings.records, readings.logs_behind, readings.logs) == (20, 1, 2)
    assert readings.seconds == 20 * 3600  # the newest record is of 22 o'clock, the last one read of 2 o'clock
    assert (found["conditions"].records, found["conditions"].why) == (None, "it has not run yet")
    away = dataclasses.replace(world.endpoint, bootstrap=(("127.0.0.1", 1),))
    (lost,) = job_lags(world.topology(), away, tables.paths, ["readings"], now=now).values()
    assert lost.records is None
    assert "alpha" in lost.why


@pytest.mark.chaos
def test_columns_that_a_release_added_are_filled_for_old_rows(
    world: World, tmp_path: Path, spark: SparkSession, empty: Path
) -> None:
    """Rows have null in columns that were added after they were written, until a backfill."""
    tables, boxes = Tables(world, tmp_path, spark, empty), [world.box(1), world.box(2)]
    more = [reading(boxes[0], 500 + n, T0 + n * MINUTE) for n in range(30)]
    first = world.append({world.log(box): [reading(box, n, T0 + n * MINUTE) for n in range(250)] for box in boxes})
    second = world.append({world.log(boxes[0]): more})
    ends = {
        world.log(boxes[1]): first[world.log(boxes[1])] + 250,
        world.log(boxes[0]): second[world.log(boxes[0])] + 30,
    }
    tables.fill(ends)
    rows = tables.rows()
    names = ("door_open", "tilt_degrees")
    old = rows
    for name in names:
        kind = rows.schema.field(name).type
        keep = pc.greater(rows["log_offset"], first[world.log(boxes[0])] + 240)  # written since
        place = rows.schema.get_field_index(name)
        values = pc.if_else(keep, rows[name], pa.scalar(None, kind))
        old = old.set_column(place, rows.schema.field(name), values)
    tables.add(old, mode="overwrite")
    found = tables.check()
    assert (found.same, found.rows) == (False, 530)
    assert {each.columns for each in found.differences} == {names[::-1]}
    before = DeltaTable(tables.paths.table("readings")).version()
    written = tables.backfill()
    assert 400 < written["readings + readings_rejected"] < 530
    assert DeltaTable(tables.paths.table("readings")).version() == before + 1  # in one commit, not one for each log
    assert tables.check().same is True
    assert tables.rows().equals(rows)


@pytest.mark.parametrize("by", ["backfill", "the next run", "the next run, of a row that is there twice"])
def test_a_table_that_lacks_the_newest_column_is_told_and_filled_from_the_payloads(
    world: World, tmp_path: Path, spark: SparkSession, empty: Path, by: str
) -> None:
    """An earlier release has stored the readings, and shore has not run since."""
    tables, box = Tables(world, tmp_path, spark, empty), world.box(0)
    inspected = {"inspectionType": "REMOTE", "inspectionDate": "2026-02-20T08:00:00Z", "inspectionResult": "PASSED"}
    sent = [json.loads(reading(box, n, T0 + n * MINUTE).value or b"") for n in range(4)]
    sent[1]["inspection"] = sent[2]["inspection"] = [inspected]
    world.append(
        {world.log(box): [NewRecord(json.dumps(each).encode(), box.encode(), timestamp_ms=1) for each in sent]}
    )
    tables.fill({world.log(box): 5})
    rows = tables.rows()
    told = [value and json.loads(value) for value in rows["inspection"].to_pylist()]
    assert told == [None, [inspected], [inspected], None]
    twice = pa.concat_tables([rows, rows.slice(2, 1)]) if "twice" in by else rows
    old = spark.createDataFrame(twice.drop_columns(["inspection"]))
    old.write.format("delta").mode("overwrite").option("overwriteSchema", True).save(tables.paths.table("readings"))
    if twice is not rows:
        add_inspections(tables.lake)
        assert [value and json.loads(value) for value in tables.rows()["inspection"].to_pylist()].count(
            [inspected]
        ) == 3
        return
    found = tables.check()
    assert (found.same, [each.columns for each in found.differences]) == (False, [("inspection",)] * 2)
    if by == "backfill":
        assert tables.backfill() == {"readings + readings_rejected": 2}
    else:
        add_inspections(tables.lake)
        create_tables(spark, {tables.paths.table("readings"): TABLES["readings"]})
        filled = DeltaTable(tables.paths.table("readings"))
        add_inspections(tables.lake)  # nothing is left to do
        assert DeltaTable(filled.table_uri).version() == filled.version()
        (column,) = (each for each in filled.schema().fields if each.name == "inspection")
        assert column.metadata["comment"] == TABLES["readings"].spark_schema["inspection"].metadata["comment"]
    assert tables.check().same is True
    assert tables.rows().equals(rows)


def test_a_repair_leaves_rows_between_alone(world: World, tmp_path: Path, spark: SparkSession, empty: Path) -> None:
    """A repair keeps rows without a record, also between rows that it corrects."""
    tables, box = Tables(world, tmp_path, spark, empty), world.box(1)
    log = world.log(box)
    end = world.append({log: [reading(box, n, T0 + n * MINUTE) for n in range(20)]})[log] + 20
    tables.fill({log: end})
    rows = tables.rows()
    place, field = rows.schema.get_field_index("log_offset"), rows.schema.field("log_offset")
    strange = rows.slice(0, 1).set_column(place, field, pa.array([0], pa.int64()))  # the marker's offset
    supply = rows.schema.get_field_index("supply_temperature")
    odd = pc.is_in(rows["log_offset"], pa.array([1, 2, 5, 6, 7, 12]))
    lied = rows.set_column(supply, rows.schema.field(supply), pc.if_else(odd, 99.0, rows["supply_temperature"]))
    tables.add(pa.concat_tables([strange, lied]), mode="overwrite")
    found = tables.odd({log: end})
    assert (found.missing, found.wrong, found.extra) == (0, 6, 1)
    assert repair_logs(found, tables.lake) == 6
    assert tables.rows().slice(1).equals(rows)
    assert tables.rows().slice(0, 1).equals(strange)


@pytest.mark.chaos
def test_missing_rows_are_new_to_those_who_follow_the_table(tables: Tables, world: World, tmp_path: Path) -> None:
    """Streams read rows that a backfill adds, but not rows that it replaces."""
    log, two = world.log(world.box(0)), world.log(world.box(1))
    good = tables.rows()
    tables.delete(log, 7)
    supply = good.schema.get_field_index("supply_temperature")
    lied = good.slice(2, 1).set_column(supply, good.schema.field(supply), pa.array([99.0]))
    tables.delete(log, 3)
    tables.add(lied)
    moved = good.filter(pc.and_(pc.equal(good["log"], two), pc.equal(good["log_offset"], 2)))
    tables.delete(two, 2)
    tables.add(moved.select(["log", "log_offset", "term", "equipment_reference", "payload"]), "readings_rejected")
    check = tables.check()
    assert {(each.table, each.what, each.key["log_offset"]) for each in check.differences} == {
        ("readings", "missing", 7), ("readings", "changed", 3), ("readings_rejected", "changed", 2),
    }  # fmt: skip
    (wrong_table,) = [each for each in check.differences if each.table == "readings_rejected"]
    assert set(wrong_table.columns) <= set(TABLES["readings"].plain_schema.names) | {"reason"}
    seen: list[int] = []
    version = DeltaTable(tables.paths.table("readings")).version()
    rows = tables.lake.new_rows("readings", startingVersion=str(version + 1))
    assert tables.backfill() == {"readings + readings_rejected": 3}
    writer = rows.writeStream.option("checkpointLocation", str(tmp_path / "follower")).trigger(availableNow=True)
    writer.foreachBatch(
        lambda batch, _: seen.extend(row["log_offset"] for row in batch.collect())
    ).start().awaitTermination()
    assert seen == [7]
    assert tables.check().same is True
    assert tables.rows().equals(good)
