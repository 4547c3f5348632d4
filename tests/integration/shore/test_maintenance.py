"""Compaction, vacuum and retention by Spark, one by one and on the schedule of a run."""

from __future__ import annotations

import datetime as dt
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from delta.exceptions import ConcurrentDeleteReadException
from delta.tables import DeltaOptimizeBuilder
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlead.cli.app import run
from fairlead.errors import RefusedError, UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore import maintenance
from shore.delta.commit import Between, create_table, create_tables, replace_rows
from shore.delta.lake import Lake
from shore.feeds.readers import kept_tables
from shore.jobs.checkpoint import commit_actions, write_checkpoint
from shore.jobs.maintenance import TableMaintenance, unread_by
from shore.jobs.status import MaintenanceStatus, read_maintenance
from shore.maintenance import (
    FEW,
    compact,
    expire,
    kept_since,
    maintenance_session,
    plan_compaction,
    plan_expiry,
    plan_vacuum,
    vacuum,
)
from shore.paths import TablePaths
from shore.read import sql
from shore.report.slices import open_slices
from shore.tables import TABLES
from shore.tables.quality import QUALITY
from tests.support.delta_rs import create
from tests.support.shore.world import World
from tests.support.tables import age
from tests.support.waits import PATIENCE
from topologies import model
from topologies.model import Customer, Topology

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]

READINGS = TABLES["readings"]
NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
DUCKS = "customers/ducks"


@pytest.fixture
def paths(tmp_path: Path) -> TablePaths:
    found = TablePaths.of(tmp_path)
    for name in ("readings", "events"):
        create(TABLES[name], found.table(name))
    return found


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    return maintenance_session(spark)


def content_of(table: str, number: int, *, boxes: int = 50, at: dt.datetime = NOW) -> pa.Table:
    """Return one row for each box."""
    rows = [
        {
            "log": f"c.{box:03d}",
            "log_offset": number,
            "equipment_reference": f"{box:03d}",
            "device_date_time": at,
            "received_date_time": at,
            "record_date_time": at,
            "payload": b"x" * 20,
        }
        for box in range(boxes)
    ]
    schema = TABLES[table].plain_schema
    known = set(schema.names)
    return pa.Table.from_pylist([{k: v for k, v in row.items() if k in known} for row in rows], schema=schema)


def incompressible(content: pa.Table) -> pa.Table:
    """Return the rows with payloads of 100 random bytes."""
    payloads = pa.array([secrets.token_bytes(100) for _ in range(content.num_rows)])
    return content.set_column(content.schema.get_field_index("payload"), "payload", payloads)


def append_file(session: SparkSession, paths: TablePaths, content: pa.Table) -> None:
    """Append rows to ``readings`` by Spark, in one file: delta-rs cannot write to clustered tables."""
    rows = session.createDataFrame(content.to_pandas(), READINGS.spark_schema)
    rows.coalesce(1).write.format("delta").mode("append").save(paths.table("readings"))


def fill(paths: TablePaths, commits: int, table: str = "readings", first: int = 0) -> None:
    for number in range(first, first + commits):
        write_deltalake(paths.table(table), content_of(table, number), mode="append")


def rows_of(paths: TablePaths, table: str = "readings") -> pa.Table:
    keys = [("log", "ascending"), ("log_offset", "ascending")]
    return DeltaTable(paths.table(table)).to_pyarrow_dataset().to_table().sort_by(keys)


def test_compaction_moves_rows_and_changes_none(paths: TablePaths, session: SparkSession) -> None:
    fill(paths, 12)
    fill(paths, 12, table="events")
    before = rows_of(paths), rows_of(paths, "events")
    plan = {step.table: step for step in plan_compaction(paths)}
    assert (plan["readings"].files, plan["readings"].opened, plan["readings"].liquid) == (12, 12, False)
    assert "opens up to 12 files" in plan["readings"].why
    assert "12 small ones" in plan["events"].why
    for step in plan.values():
        assert compact(session, paths, step) == (12, 1)
        table = DeltaTable(paths.table(step.table))
        (moved,) = [one for one in commit_actions(table, table.version()) if "add" in one]
        assert moved["add"]["dataChange"] is False
    assert (rows_of(paths), rows_of(paths, "events")) == before
    assert [step.why for step in plan_compaction(paths)] == ["", ""]
    stored = DeltaTable(paths.table("readings")).to_pyarrow_dataset().to_table()["equipment_reference"].to_pylist()
    assert stored == sorted(stored)


TODAY = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
TODAYS = Between("day", TODAY, TODAY)


def days_of_quality(lake: Lake) -> pa.Table:
    """Create table ``quality`` with 50 rows of each of 12 days, in one file each, of which today is the last."""
    create_tables(lake.spark, {lake.paths.table("quality"): QUALITY})
    for ago in range(12):
        rows = [{"equipment_reference": f"{box:03d}", "device_id": "d", "day": TODAY - ago * DAY} for box in range(50)]
        lake.append("quality", lake.spark.createDataFrame(pa.Table.from_pylist(rows, schema=QUALITY.plain_schema)))
    return quality_rows(lake)


def quality_rows(lake: Lake) -> pa.Table:
    return QUALITY.sorted(DeltaTable(lake.paths.table("quality")).to_pyarrow_table())


def change_today(lake: Lake) -> int:
    """Change all rows of today, as a batch does."""
    fresh = lake.read("quality").where(TODAYS.of()).withColumn("readings", F.lit(2))
    return replace_rows(lake, QUALITY, fresh, within=lambda rows: rows.where(TODAYS.of()), bounds=[TODAYS])


@pytest.mark.parametrize("partitions", [[], ["device_id"]])
def test_a_change_of_a_recent_row_does_not_write_old_ones_again(
    partitions: list[str], tmp_path: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction puts rows of the last days into files of their own, in tables with an earlier release's partitions
    too."""
    monkeypatch.setattr(maintenance, "_APART_BYTES", 0)
    lake = Lake(session, TablePaths.of(tmp_path))
    if partitions:
        write_deltalake(lake.paths.table("quality"), QUALITY.plain_schema.empty_table(), partition_by=partitions)
    before = days_of_quality(lake)
    (step,) = plan_compaction(lake.paths, ["quality"])
    compact(session, lake.paths, step)
    assert quality_rows(lake) == before

    assert change_today(lake) == 50
    table = DeltaTable(lake.paths.table("quality"))
    (written,) = [
        one["commitInfo"]["operationMetrics"] for one in commit_actions(table, table.version()) if "commitInfo" in one
    ]
    assert int(written["numTargetRowsCopied"]) <= 50, "yesterday is recent, too"


def test_a_batch_that_commits_meanwhile_is_not_undone(
    tmp_path: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_APART_BYTES", 0)
    lake = Lake(session, TablePaths.of(tmp_path))
    days_of_quality(lake)
    (step,) = plan_compaction(lake.paths, ["quality"])
    frames = type(lake.read("quality"))  # Spark's own class of DataFrames
    sort = frames.sortWithinPartitions
    changed: list[int] = []

    def sort_after_a_batch(rows: DataFrame, *columns: str) -> DataFrame:
        changed.append(change_today(lake))
        return sort(rows, *columns)

    monkeypatch.setattr(frames, "sortWithinPartitions", sort_after_a_batch)
    compact(session, lake.paths, step)
    assert changed == [50]
    found = quality_rows(lake)
    assert found.num_rows == 600
    assert pc.sum(pc.equal(found["readings"], 2)).as_py() == 50


def test_a_clustered_table_is_clustered_on_the_way(tmp_path: Path, session: SparkSession) -> None:
    """A query for one container opens 10 files or more before the compaction, and at most 2 after it."""
    paths = TablePaths.of(tmp_path)
    clustered = replace(READINGS, cluster_by=("equipment_reference", "device_date_time"))
    create_table(session, clustered, paths.table("readings"))
    known = {"readings": clustered}

    def append(number: int) -> None:
        rows = session.createDataFrame(content_of("readings", number, boxes=4000).to_pandas(), clustered.spark_schema)
        rows.write.format("delta").mode("append").save(paths.table("readings"))

    append(0)
    (step,) = plan_compaction(paths, tables=known)
    assert (step.liquid, step.cluster_by, step.why) == (True, ("equipment_reference", "device_date_time"), "")
    for number in range(1, 10):
        append(number)
    (step,) = plan_compaction(paths, tables=known)
    assert step.opened is not None
    assert step.opened >= 10
    assert "by equipment_reference and device_date_time" in step.why
    before = rows_of(paths)
    _, files = compact(session, paths, replace(step, sizes=replace(step.sizes, target=50_000)))
    assert files >= 3
    assert rows_of(paths) == before
    (step,) = plan_compaction(paths, tables=known)
    assert step.opened is not None
    assert step.opened <= 2


@pytest.mark.parametrize("sizes", ["NEW", "GROWING"])
def test_todays_rows_are_not_put_among_those_of_earlier_days(
    sizes: str, tmp_path: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with half of the size of a group is full: later files are put together beside it."""
    paths = TablePaths.of(tmp_path)
    create_table(session, READINGS, paths.table("readings"))
    usual = getattr(maintenance, sizes)
    scale = 350_000 / usual.small
    monkeypatch.setattr(maintenance, sizes, replace(usual, small=350_000, group=int(usual.group * scale)))

    def compacted(at: dt.datetime) -> set[str]:
        for number in range(FEW + 1):
            content = content_of("readings", number, boxes=500, at=at + dt.timedelta(minutes=number))
            append_file(session, paths, incompressible(content))
        (step,) = plan_compaction(paths, ["readings"])
        assert "small ones" in step.why
        compact(session, paths, step)
        return set(DeltaTable(paths.table("readings")).file_uris())

    (yesterdays,) = compacted(NOW - DAY)
    both = compacted(NOW)
    assert yesterdays in both
    assert len(both) == 2


def test_a_large_file_is_not_cut_into_new_ones(
    tmp_path: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion or MERGE leaves large files that are not clustered."""
    paths = TablePaths.of(tmp_path)
    create_table(session, READINGS, paths.table("readings"))
    append_file(session, paths, incompressible(content_of("readings", 0, boxes=20_000)))
    (step,) = plan_compaction(paths, ["readings"])
    small = step.bytes // 20
    monkeypatch.setattr(maintenance, "NEW", replace(maintenance.NEW, small=small, group=2 * small))
    for number in range(1, FEW + 2):
        append_file(session, paths, content_of("readings", number))
    (step,) = plan_compaction(paths, ["readings"])
    assert (step.sizes, step.small) == (maintenance.NEW, FEW + 1)
    _, files = compact(session, paths, step)
    assert files <= 1 + FEW
    (step,) = plan_compaction(paths, ["readings"])
    assert (step.files, step.why) == (files, "")
    counts = pa.table(DeltaTable(paths.table("readings")).get_add_actions())["num_records"].to_pylist()
    assert max(counts) >= 20_000


def test_files_that_cannot_be_filtered_are_written_again(
    paths: TablePaths, tmp_path: Path, session: SparkSession
) -> None:
    """The delete of delta-rs writes strings as views, which Arrow cannot compare."""
    fill(paths, 2, table="events")
    DeltaTable(paths.table("events")).delete("log_offset = 1 and log > 'c.001'")
    query = "select count(*) as n from events where log = 'c.001'"

    def reported() -> int:
        with open_slices(paths) as slices:
            slices.add("events", pc.field("log") == "c.001")
            return int(slices.row("select count(*) as n from events")["n"])

    with pytest.raises(UnavailableError) as error:
        reported()
    assert "fairlead shore compact --yes" in error.value.hint
    assert sql(tmp_path, query).to_pylist() == [{"n": 2}]  # DuckDB reads them itself
    before = rows_of(paths, "events")
    (step,) = plan_compaction(paths, ["events"])
    assert (step.files, step.views) == (2, 1)
    assert "cannot be filtered" in step.why
    compact(session, paths, step)
    assert rows_of(paths, "events") == before
    assert reported() == 2
    table = DeltaTable(paths.table("events"))
    assert not any(one["add"]["dataChange"] for one in commit_actions(table, table.version()) if "add" in one)
    assert [each.why for each in plan_compaction(paths, ["events"])] == [""]


def test_a_file_that_somebody_removed(paths: TablePaths, tmp_path: Path, session: SparkSession) -> None:
    fill(paths, 9, table="events")
    next(Path(paths.table("events")).glob("*.parquet")).unlink()
    (step,) = plan_compaction(paths, ["events"])
    for attempt in (lambda: compact(session, paths, step), lambda: sql(tmp_path, "select * from events")):
        with pytest.raises(UnavailableError, match="a table cannot be read") as error:
            attempt()
        assert "fairlead shore verify" in error.value.hint


def test_a_writer_that_is_faster(paths: TablePaths, session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(paths, 9, table="events")
    (step,) = plan_compaction(paths, ["events"])
    optimize = DeltaOptimizeBuilder.executeCompaction
    lost = 2

    def raced(builder: DeltaOptimizeBuilder) -> DataFrame:
        """Lose ``lost`` times against another writer that commits first, then compact."""
        nonlocal lost
        if lost > 0:
            lost -= 1
            write_deltalake(paths.table("events"), rows_of(paths, "events"), mode="overwrite")
            raise ConcurrentDeleteReadException("a concurrent transaction deleted the same data")
        return optimize(builder)

    monkeypatch.setattr(DeltaOptimizeBuilder, "executeCompaction", raced)
    compact(session, paths, step)
    assert rows_of(paths, "events").num_rows == 9 * 50
    lost = 99
    with pytest.raises(UnavailableError, match="faster 5 times"):
        compact(session, paths, step)


def test_customers_tables_are_looked_after_too(tmp_path: Path, session: SparkSession) -> None:
    found = topology_of("ducks")
    paths, kept = TablePaths.of(tmp_path), kept_tables(found)
    schema = kept[DUCKS].plain_schema
    create(kept[DUCKS], paths.table(DUCKS))
    for number in range(10):
        row = {"feed_offset": number, "kind": "reading", "equipment_reference": "BIGU0000016", "value": "{}"}
        write_deltalake(paths.table(DUCKS), pa.Table.from_pylist([row], schema=schema), mode="append")
    (step,) = plan_compaction(paths, tables=kept)
    assert compact(session, paths, step) == (10, 1)
    age(paths, DUCKS, 8)
    (plan,) = plan_vacuum(paths, [DUCKS], tables=kept, now=NOW)
    assert vacuum(session, paths, plan) == 10
    assert DeltaTable(paths.customer("ducks")).count() == 10


def test_vacuum_keeps_what_the_last_days_need(paths: TablePaths, session: SparkSession) -> None:
    fill(paths, 10, table="events")
    (step,) = plan_compaction(paths, ["events"])
    compact(session, paths, step)
    (plan,) = plan_vacuum(paths, ["events"], now=NOW)
    assert (plan.files, plan.bytes) == (0, 0)
    age(paths, "events", 8)
    fill(paths, 1, table="events", first=10)
    (plan,) = plan_vacuum(paths, ["events"], now=NOW)
    assert plan.files == 10
    before, version = rows_of(paths, "events"), DeltaTable(paths.table("events")).version()
    assert vacuum(session, paths, plan) == 10
    assert rows_of(paths, "events") == before
    assert DeltaTable(paths.table("events")).version() == version  # no new version for jobs to read
    assert len(list(Path(paths.table("events")).glob("*.parquet"))) == 2
    assert plan_vacuum(paths, ["events"], now=NOW)[0].files == 0


def test_less_than_seven_days_only_by_force(paths: TablePaths, session: SparkSession) -> None:
    fill(paths, 10, table="events")
    compact(session, paths, plan_compaction(paths, ["events"])[0])
    (plan,) = plan_vacuum(paths, ["events"], keep=dt.timedelta(0), force=True, now=NOW)
    assert plan.files == 10
    with pytest.raises(RefusedError, match="less than 7 days ago"):
        vacuum(session, paths, plan, keep=dt.timedelta(0))
    assert len(list(Path(paths.table("events")).glob("*.parquet"))) == 11
    assert vacuum(session, paths, plan, keep=dt.timedelta(0), force=True) == 10
    assert len(list(Path(paths.table("events")).glob("*.parquet"))) == 1


def test_vacuum_leaves_a_table_alone_that_a_job_has_to_read(paths: TablePaths, session: SparkSession) -> None:
    fill(paths, 10, table="events")
    compact(session, paths, plan_compaction(paths, ["events"])[0])
    age(paths, "events", 8)
    write_checkpoint(paths, "feeds", {}, "{}")
    table_id = str(DeltaTable(paths.table("events")).metadata().id)
    source = {"sourceVersion": 1, "reservoirId": table_id, "reservoirVersion": 5, "index": -1}
    (Path(paths.checkpoint("feeds")) / "offsets" / "0").write_text("v1\n{}\n" + json.dumps(source))
    (plan,) = plan_vacuum(paths, ["events"], unread=unread_by(paths, ["feeds"]), now=NOW)
    assert (plan.files, plan.why.startswith("job feeds has still to read rows of")) == (10, True)
    assert vacuum(session, paths, plan) == 0


def test_rows_past_their_retention_are_deleted(paths: TablePaths, session: SparkSession) -> None:
    """A row is deleted if it was both measured and received before the limit; a late one stays."""
    limit = TODAY - 100 * DAY
    old, kept = (
        content_of("readings", 0, boxes=3, at=limit - dt.timedelta(seconds=1)),
        content_of("readings", 1, at=limit),
    )
    late = content_of("readings", 2, boxes=2, at=limit - 50 * DAY)
    received = late.schema.get_field_index("received_date_time")
    late = late.set_column(received, "received_date_time", pa.array([NOW] * 2, late.schema.field(received).type))
    write_deltalake(paths.table("readings"), pa.concat_tables([old, kept.slice(0, 4), late]), mode="append")
    retention = {"readings": 100 * DAY}
    assert kept_since(paths, "readings") is None
    (step,) = plan_expiry(paths, retention, now=NOW)
    assert (step.before, step.files) == (limit, 1)
    assert expire(session, paths, step) == 3
    assert kept_since(paths, "readings") == limit
    assert sorted(rows_of(paths)["log_offset"].to_pylist()) == [1, 1, 1, 1, 2, 2]
    found = rows_of(paths)
    assert pc.min(found["received_date_time"]).as_py() == limit
    version = DeltaTable(paths.table("readings")).version()
    (step,) = plan_expiry(paths, {"readings": 200 * DAY}, now=NOW)
    assert (step.files, expire(session, paths, step)) == (0, 0)
    (step,) = plan_expiry(paths, retention, now=NOW)
    assert expire(session, paths, step) == 0  # the file of the late rows might have had old ones
    assert DeltaTable(paths.table("readings")).version() == version
    assert kept_since(paths, "readings") == limit  # a longer retention does not move it back


def test_a_time_that_a_row_does_not_have_keeps_no_row(paths: TablePaths, session: SparkSession) -> None:
    """A row without any time stays."""
    limit = TODAY - 100 * DAY
    old, kept = limit - DAY, limit
    times = [(old, old), (old, None), (None, old), (kept, None), (None, kept), (None, None)]
    rows = [
        {"log": "c.0", "log_offset": number, "device_date_time": measured, "received_date_time": received}
        for number, (measured, received) in enumerate(times)
    ]
    write_deltalake(paths.table("readings"), pa.Table.from_pylist(rows, READINGS.plain_schema), mode="append")
    (step,) = plan_expiry(paths, {"readings": 100 * DAY}, now=NOW)
    assert expire(session, paths, step) == 3
    assert rows_of(paths)["log_offset"].to_pylist() == [3, 4, 5]


def topology_of(*customers: str, **shore: object) -> Topology:
    found = World(KafkaEndpoint("alpha", (("127.0.0.1", 9),), "shore")).topology()
    return found.model_copy(
        update={
            "customers": {name: Customer(feed_at="alpha", table=True) for name in customers},
            "shore": model.Shore.model_validate({"at": "alpha", **shore}),
        }
    )


@pytest.fixture
def upkeep(tmp_path: Path, paths: TablePaths) -> Callable[..., TableMaintenance]:
    (tmp_path / "run").mkdir()

    def make(**shore: object) -> TableMaintenance:
        topology = topology_of(**shore)
        assert topology.shore is not None
        return TableMaintenance(topology, topology.shore, tmp_path, paths, [])

    return make


def test_each_verb_has_its_time(upkeep: Callable[..., TableMaintenance]) -> None:
    retention = {"readings": "100d"}
    assert upkeep(retention=retention).due(NOW) == []
    assert upkeep(retention=retention).due(NOW + dt.timedelta(minutes=59)) == []  # the first run noted its time
    assert upkeep(retention=retention).due(NOW + dt.timedelta(hours=1)) == ["compact"]
    assert upkeep(retention=retention).due(NOW + DAY) == ["expire", "compact", "vacuum"]
    assert upkeep().due(NOW + DAY) == ["compact", "vacuum"]
    assert upkeep(maintenance={"compact": None, "vacuum": "2d"}).due(NOW + DAY) == []


def test_a_run_looks_after_its_tables(
    upkeep: Callable[..., TableMaintenance], paths: TablePaths, tmp_path: Path, spark: SparkSession
) -> None:
    fill(paths, 12)
    fill(paths, 12, table="events")
    next(Path(paths.table("events")).glob("*.parquet")).unlink()  # one table in trouble does not hold up the others
    one = upkeep(maintenance={"compact": "1s", "vacuum": None})
    done, told = threading.Event(), list[MaintenanceStatus]()
    save = one._save  # noqa: SLF001

    def saved() -> None:
        """Keep what the file says of each compaction: a later one, which finds nothing to do, may follow at once."""
        save()
        if one.status["compact"].tables:
            told.append(read_maintenance(tmp_path)["compact"])
            done.set()

    one._save = saved  # type: ignore[method-assign]  # noqa: SLF001
    with one.running(spark):
        assert done.wait(PATIENCE)
    (status,) = told
    assert (status.tables, status.removed) == (1, 11)
    assert "a table cannot be read" in (status.error or "")
    assert len(DeltaTable(paths.table("readings")).file_uris()) == 1
    assert "shore-maintenance" not in {thread.name for thread in threading.enumerate()}


def test_plan_then_do(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal")
    monkeypatch.setattr("shore.jobs.runner.close_session", lambda session: None)  # all tests share the session
    paths = TablePaths.of(tmp_path / "minimal")
    create(TABLES["events"], paths.table("events"))
    fill(paths, 9, table="events")
    assert run(["shore", "compact"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert run(["shore", "compact", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "make few files of 9 small ones" in " ".join(told.split())
    assert run(["shore", "compact", "events", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["files_after"] == 1
    assert run(["shore", "compact", "--yes"]) == 0
    assert "nothing" in capsys.readouterr().out
    age(paths, "events", 8)
    assert run(["shore", "vacuum", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["applied"], plan["tables"][0]["files"]) == (False, 9)
    assert run(["shore", "vacuum", "--yes"]) == 0
    assert "9 files of events deleted" in capsys.readouterr().out
    assert run(["shore", "vacuum", "--keep", "1h", "--yes"]) == 5
    assert run(["shore", "vacuum", "--keep", "soon", "--yes"]) == 2
    assert run(["shore", "compact", "event", "--yes"]) == 3
