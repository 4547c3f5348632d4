"""A standalone cluster of two workers, with tables and checkpoints on a real S3 server, makes the same tables as
``local[2]`` in a folder, although a worker and then the driver are killed on the way."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame

from shore.delta.commit import append_once, conform, create_tables, replace_rows
from shore.delta.lake import Lake
from shore.jobs.runner import JOBS, own_session
from shore.maintenance import compact, maintenance_session, plan_compaction, plan_vacuum, vacuum
from shore.paths import TablePaths
from shore.read import table
from shore.storage import Storage
from shore.tables import TABLES
from tests.integration.shore.victim import start
from tests.support.object_store import kinds, s3_base, s3_server
from tests.support.shore.world import MINUTE, T0, World, alert, booking, docked, grant, reading
from tests.support.spark_cluster import EXECUTOR_SETTINGS, spark_cluster
from tests.support.waits import until
from topologies.model import Shore

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.timeout(3000)]

BOXES, READINGS, PER_BATCH = 6, 120, 200
PACKAGES = ["org.apache.hadoop:hadoop-aws:3.5.0"]
ALL_BUT_FEEDS = [name for name in JOBS if name != "feeds"]  # both runs would write one feed
SETTINGS = EXECUTOR_SETTINGS | {"spark.executor.memory": "1g"}
_PATIENCE = 900.0


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a prefix of the test's own in a bucket; only environment variables say how to reach the server."""
    if "s3" not in kinds():
        pytest.skip("the S3 server is a Go program, and there is no Go here")
    with s3_server(tmp_path / "s3") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield s3_base()


def test_a_cluster_on_s3_makes_the_tables_of_one_machine(world: World, tmp_path: Path, s3: str) -> None:
    fill(world)
    with start(world, tmp_path / "local", jobs=ALL_BUT_FEEDS) as driver:
        assert driver.wait(_PATIENCE) == 0
    with spark_cluster(tmp_path / "cluster", memory="1200m") as cluster:
        where: dict[str, Any] = {"master": cluster.url, "tables": s3, "settings": SETTINGS, "packages": PACKAGES}
        with start(world, tmp_path / "state", jobs=ALL_BUT_FEEDS, max_records=PER_BATCH, **where) as driver:
            until(lambda: driver.poll() is not None or batches(s3, "commits") >= 1, "a batch", patience=_PATIENCE)
            assert driver.poll() is None, "the driver ended before a worker could be killed"
            cluster.workers[0].kill()
            before = batches(s3, "commits")
            until(
                lambda: driver.poll() is not None or batches(s3, "commits") > before,
                "a batch without that worker",
                patience=_PATIENCE,
            )
            assert driver.poll() is None, "the driver ended before it could be killed"
            driver.kill()
            driver.wait()
        with start(world, tmp_path / "state", jobs=ALL_BUT_FEEDS, max_records=PER_BATCH, **where) as driver:
            assert driver.wait(_PATIENCE) == 0
    different = [name for name in TABLES if name != "feeds" and not same(name, tmp_path / "local", s3)]
    assert different == []
    assert table(tmp_path / "state", "readings", storage=s3).count_rows() == BOXES * READINGS
    assert any(name.startswith("eventlog") for name in Storage(f"{s3}/spark-events").names(""))


def fill(world: World) -> None:
    """Write readings, bookings, alerts, custody and a ship's call."""
    boxes = [world.box(index) for index in range(BOXES)]
    end = T0 + 60 * dt.timedelta(days=1)
    logs = {
        world.log(box): [reading(box, i, T0 + i * 10 * MINUTE, supply=4.0 + i % 7) for i in range(READINGS)]
        for box in boxes
    }
    logs[world.bookings] = [booking(f"b-{box}", world.customer, box, T0, end) for box in boxes[:4]]
    logs[world.alerts] = [alert(box, world.tag, T0 + 30 * MINUTE) for box in boxes[:2]]
    logs[world.custody] = [grant(world.log(box), 1, "alpha", T0) for box in boxes]
    logs[world.events] = [
        docked(f"in-{world.tag}", "ARRI", T0 + MINUTE),
        docked(f"out-{world.tag}", "DEPA", T0 + 90 * MINUTE),
    ]
    world.append(logs)


def batches(base: str, kind: str) -> int:
    """Return how many batches of job ``readings`` have a file of this kind in the checkpoint."""
    return sum(name.isdecimal() for name in Storage(base).names(f"checkpoints/readings/{kind}"))


def same(name: str, folder: Path, base: str) -> bool:
    """Return whether a table has the same rows in both places; floating point numbers to 1e-9."""
    keys = [(column, "ascending") for column in TABLES[name].key]
    here, there = (table(folder, name, storage=storage).to_table().sort_by(keys) for storage in (None, base))
    if (here.num_rows, here.schema.names) != (there.num_rows, there.schema.names):
        return False
    return all(same_column(here[column], there[column]) for column in here.schema.names)


def same_column(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(left.type):
        return bool(left.cast(right.type).equals(right))
    if not left.is_null().equals(right.is_null()):
        return False
    scale = pc.max_element_wise(pc.abs(left), pc.abs(right), 1.0)
    return bool(pc.all(pc.less_equal(pc.abs(pc.subtract(left, right)), pc.multiply(scale, 1e-9))).as_py() is not False)


def test_one_environment_serves_spark_and_readers(tmp_path: Path, s3: str) -> None:
    """Another process, whose session has the classes of S3, writes, merges, follows and maintains a table by Spark;
    this process reads it."""
    done = subprocess.run(  # noqa: S603  # this very interpreter
        [sys.executable, "-m", __name__, str(tmp_path), s3], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = table(tmp_path, "events", storage=s3).to_table(columns=["log", "log_offset"]).to_pylist()
    assert sorted(row["log_offset"] for row in rows) == list(range(10))
    assert Storage(s3).names("checkpoints/follower/commits")


def main(folder: Path, base: str) -> None:
    """Write, merge, compact, vacuum and follow table ``events`` at ``base`` by Spark."""
    shore = Shore(at="alpha", master="local[1]", tables=base, packages=tuple(PACKAGES))
    paths, events = TablePaths.of(folder, base), TABLES["events"]
    seen: list[int] = []
    with own_session(folder, shore) as spark:
        create_tables(spark, {paths.table("events"): events})
        lake = Lake(spark, paths)
        for number in range(10):
            rows = spark.createDataFrame([("a.b", number, "x")], "log string, log_offset bigint, event_id string")
            append_once(conform(rows, events), paths.table("events"), app="test", version=number)
        changed = spark.createDataFrame([("a.b", 3, "y")], "log string, log_offset bigint, event_id string")
        replace_rows(lake, events, changed, within=lambda rows: rows.where("log_offset = 3"))
        session = maintenance_session(spark)
        (step,) = plan_compaction(paths, ["events"])
        assert compact(session, paths, step)[1] < 10
        (old,) = plan_vacuum(paths, ["events"], keep=dt.timedelta(0), force=True, now=dt.datetime.now(dt.UTC))
        assert vacuum(session, paths, old, keep=dt.timedelta(0), force=True) == old.files > 0

        def count(batch: DataFrame, number: int) -> None:
            seen.append(batch.count())

        query = lake.new_rows("events").writeStream.foreachBatch(count)
        query = query.option("checkpointLocation", paths.checkpoint("follower")).trigger(availableNow=True)
        query.start().awaitTermination()
    assert sum(seen) == 10


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
