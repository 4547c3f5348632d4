"""Derived tables are compared with their inputs, if these can be read, and recomputed by a backfill. No Kafka."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from fairlead.errors import RefusedError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.delta import lake as of_tables
from shore.delta.commit import create_tables
from shore.delta.lake import Lake
from shore.delta.table_errors import damaged_tables
from shore.jobs.checkpoint import write_checkpoint
from shore.jobs.model import Job
from shore.jobs.runner import JOBS
from shore.maintenance import ExpiryStep, expire, maintenance_session
from shore.paths import TablePaths
from shore.repair.backfill import ALWAYS, BackfillSpan, count_odd_rows, plan_backfill, recompute
from shore.repair.rebuild import rebuild_job
from shore.tables import TABLES
from shore.tables.alerts_ashore import ALERTS_ASHORE, table_of
from shore.tables.catalogue import job_of
from shore.tables.feeds import CUSTOMER_FEED
from shore.tables.graph import BY_NAME, Derived
from shore.verify import derived as module
from shore.verify.catalogue import DERIVED, REFERENCE
from shore.verify.compare import TableCheck
from shore.verify.derived import check_derived, check_reference
from shore.verify.run import verify
from tests.support import port_story
from tests.support.delta_rs import create
from tests.support.tables import fill
from topologies.loader.load import load
from topologies.model import Customer, Topology

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1800)]

NOWHERE: Final = KafkaEndpoint("alpha", (("127.0.0.1", 1),))
DAY: Final = dt.timedelta(days=1)


@pytest.fixture(scope="module")
def topology() -> Topology:
    return load("big-blue")


@pytest.fixture(scope="module")
def story(spark: SparkSession, topology: Topology, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the tables of ``tests.support.port_story``, the derived ones by Spark; their jobs are up to date."""
    folder = tmp_path_factory.mktemp("story")
    lake = Lake(spark, TablePaths.of(folder))
    fill(folder, port_story.rows())
    create_tables(spark, {lake.paths.table(name): table for name, table in TABLES.items()})
    for derived in DERIVED:
        assert recompute(derived, lake, topology) > 0, derived.table.name
        if not Path(lake.paths.checkpoint(job_of(derived.table.name))).exists():
            write_checkpoint(lake.paths, job_of(derived.table.name), {}, "{}")
    return folder


@pytest.fixture
def lake(story: Path, spark: SparkSession, tmp_path: Path) -> Lake:
    """Return a copy of the story's tables."""
    shutil.copytree(story, tmp_path, dirs_exist_ok=True)
    return Lake(spark, TablePaths.of(tmp_path))


def line(name: str) -> Derived:
    found = BY_NAME.get(name)
    assert found is not None
    return found


def rows(lake: Lake, name: str) -> pa.Table:
    stored = DeltaTable(lake.paths.table(name)).to_pyarrow_dataset().to_table()
    return TABLES[name].sorted(stored.select(TABLES[name].plain_schema.names))


def put(lake: Lake, name: str, content: pa.Table) -> None:
    lake.spark.createDataFrame(content).write.format("delta").mode("overwrite").save(lake.paths.table(name))


def changed(content: pa.Table, column: str, row: int, value: Any) -> pa.Table:
    values = content[column].to_pylist()
    values[row] = value
    field = content.schema.field(column)
    return content.set_column(content.schema.get_field_index(column), field, pa.array(values, field.type))


def told(check: TableCheck) -> list[tuple[str, tuple[str, ...]]]:
    return [(each.what, each.columns) for each in check.differences]


def test_every_table_is_what_its_inputs_give(lake: Lake, topology: Topology) -> None:
    for derived in DERIVED:
        check = check_derived(derived, lake, topology)
        assert (check.table, check.same, check.differences) == (derived.table.name, True, ())
        assert check.rows == check.expected > 0
    for name in REFERENCE:
        assert check_reference(name, lake, topology).same is True
    plain = topology.model_copy(update={"geofences": {}})
    assert told(check_reference("geofences", lake, plain)) == [("extra", ())]
    put(lake, "geofences", rows(lake, "geofences").slice(0, 0))
    assert check_reference("geofences", lake, plain).same is True
    assert check_reference("geofences", lake, topology).notes == ("shore has not run yet",)


def test_missing_extra_doubled_and_changed_rows_are_named_and_put_right(
    lake: Lake, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for derived tables with a time column and without one, and for large ones, which Spark reads."""
    for name, column, value in (("conditions", "readings", 777), ("custody", "holder", "nobody")):
        derived, right = line(name), rows(lake, name)
        wrong = changed(right.slice(1), column, 0, value)
        extra = changed(wrong.slice(2, 1), TABLES[name].key[0], 0, "stranger")
        put(lake, name, pa.concat_tables([wrong, wrong.slice(1, 1), extra]))
        check = check_derived(derived, lake, topology, small=lake.of_small_tables())
        with monkeypatch.context() as large:
            large.setattr(of_tables, "SMALL_BYTES", 0)
            assert check == check_derived(derived, Lake(lake.spark, lake.paths), topology)
        assert (check.same, check.rows, check.expected) == (False, right.num_rows + 1, right.num_rows)
        assert sorted(told(check)) == [("changed", (column,)), ("doubled", ()), ("extra", ()), ("missing", ())]
        (odd,) = [each for each in check.differences if each.what == "changed"]
        assert odd.key == {key: right[key][1].as_py() for key in TABLES[name].key}
        assert (odd.found, odd.expected) == ({column: value}, {column: right[column][1].as_py()})
        assert count_odd_rows(derived, lake, topology, ALWAYS) == 4
        recompute(derived, lake, topology)
        assert check_derived(derived, lake, topology).same is True
        assert rows(lake, name).num_rows == right.num_rows
        assert recompute(derived, lake, topology) == 0  # nothing is committed where nothing differs


def test_a_span_bounds_what_is_made_again(lake: Lake, topology: Topology) -> None:
    derived, right = line("conditions"), rows(lake, "conditions")
    times = right["window_end"].to_pylist()
    days = sorted({time.replace(hour=0, minute=0) for time in times})
    first, last = times.index(min(times)), times.index(max(times))
    put(lake, "conditions", changed(changed(right, "readings", first, 777), "readings", last, 777))
    span = BackfillSpan(days[-1], days[-1] + DAY)
    assert count_odd_rows(derived, lake, topology, span) == 1
    assert recompute(derived, lake, topology, span) == 1
    assert count_odd_rows(derived, lake, topology, ALWAYS) == 1
    assert count_odd_rows(derived, lake, topology, BackfillSpan(None, max(times))) == 1  # a span excludes its end
    assert rows(lake, "conditions")["readings"].to_pylist().count(777) == 1
    put(lake, "custody", changed(rows(lake, "custody"), "holder", 0, "nobody"))
    assert count_odd_rows(line("custody"), lake, topology, span) == 1  # no time column: the span is ignored


def test_what_a_job_has_not_done_cannot_be_compared(lake: Lake, topology: Topology) -> None:
    custody, checkpoint = line("custody"), Path(lake.paths.checkpoint(job_of("custody")))
    shutil.copy(checkpoint / "offsets" / "0", checkpoint / "offsets" / "1")
    check = check_derived(custody, lake, topology)
    assert (check.same, check.differing) == (None, 0)
    assert "works on a batch, or broke off" in check.notes[0]
    (checkpoint / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert check_derived(custody, lake, topology).same is True
    shutil.rmtree(lake.paths.table("custody_entries"))
    assert "not there yet" in check_derived(custody, lake, topology).notes[0]


def test_tables_that_change_all_the_time_are_not_compared(
    lake: Lake, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter(range(99))
    monkeypatch.setattr(module, "versions_of", lambda paths, names: dict.fromkeys(names, next(versions)))
    check = check_derived(line("custody"), lake, topology)
    assert (check.same, check.notes) == (
        None,
        ("the tables change all the time; try again, or stop shore first",),
    )


def test_inputs_may_grow_while_they_are_compared(
    lake: Lake, topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison reads the versions of one moment."""
    alerts = line("alerts_ashore")
    real = module.compare_derived

    def compare(derived: Derived, *others: Any) -> Any:
        put(lake, "readings", rows(lake, "readings").slice(0, 0))
        return real(derived, *others)

    monkeypatch.setattr(module, "compare_derived", compare)
    assert check_derived(alerts, lake, topology).same is True


@pytest.mark.parametrize("damage", ["file", "commit"])
def test_a_table_that_cannot_be_read_is_told_beside_the_others(lake: Lake, topology: Topology, damage: str) -> None:
    place, folder = Path(lake.paths.table("custody")), Path(lake.paths.base)
    if damage == "file":
        for file in place.glob("*.parquet"):
            file.unlink()
    else:
        for file in place.glob("_delta_log/*.json"):
            file.write_text("this is no commit")
    found = verify(lake.spark, topology, NOWHERE, folder, ["custody", "bookings"])
    check, other = sorted(found.tables, key=lambda each: each.table, reverse=True)
    assert (check.table, check.same, check.unreadable, found.ok) == ("custody", False, True, False)
    assert "cannot be read" in check.notes[0]
    assert f"fairlead shore rebuild {job_of('custody')} --yes" in check.notes[0]
    assert (other.table, other.same) == ("bookings", True)


def test_what_is_made_from_a_damaged_table_is_not_blamed(lake: Lake, topology: Topology) -> None:
    for file in Path(lake.paths.table("custody_entries")).glob("*.parquet"):
        file.write_bytes(b"no Parquet")
    (check,) = verify(lake.spark, topology, NOWHERE, Path(lake.paths.base), ["custody"]).tables
    assert (check.same, check.unreadable) == (None, False)
    assert check.notes == ("it is made from custody_entries, which cannot be read",)
    (why,) = damaged_tables(lake.paths, ["custody", "custody_entries", "mkt"]).items()
    assert why[0] == "custody_entries"
    assert "Parquet" in why[1]


def test_a_customers_table_that_cannot_be_read_says_how_to_have_it_again(spark: SparkSession, tmp_path: Path) -> None:
    topology = load("minimal")
    assert topology.shore is not None
    ducks = Customer(feed_at=topology.shore.at, table=True)
    paths = TablePaths.of(tmp_path)
    create(CUSTOMER_FEED, paths.customer("ducks"))
    for file in Path(paths.customer("ducks"), "_delta_log").glob("*.json"):
        file.write_text("this is no commit")
    found = verify(spark, topology.model_copy(update={"customers": {"ducks": ducks}}), NOWHERE, tmp_path, ["feeds"])
    check = found.of("customers/ducks")
    assert check is not None and (check.same, check.unreadable) == (False, True)
    assert f"remove {paths.customer('ducks')}: the next run fills it again from the feed" in check.notes[0]
    assert "rebuild" not in check.notes[0]


@pytest.mark.parametrize("lost", [pytest.param(False, marks=pytest.mark.chaos), True])
def test_a_jobs_tables_are_rebuilt(lake: Lake, topology: Topology, lost: bool) -> None:
    job = job_of("conditions")
    right = {name: rows(lake, name) for name in JOBS[job].tables}
    for name in right:
        if lost:
            shutil.rmtree(lake.paths.table(name))
        else:
            put(lake, name, pa.concat_tables([right[name], right[name].slice(0, 1)]))
    jobs: dict[str, Job] = {job: JOBS[job]}
    done = rebuild_job(job, jobs, lake, topology, NOWHERE)
    assert set(done.created) == (set(right) if lost else set())
    assert done.put_aside is not None and Path(done.put_aside, "offsets", "0").exists()
    assert all(done.written[name] >= table.num_rows for name, table in right.items())
    for name, table in right.items():
        assert rows(lake, name).num_rows == table.num_rows
        assert count_odd_rows(line(name), lake, topology, ALWAYS) == 0


def test_alerts_ashore_are_compared_but_for_what_only_time_tells(lake: Lake, topology: Topology) -> None:
    alerts, right = line("alerts_ashore"), rows(lake, "alerts_ashore")
    for column, value in (("detail", "forged"), ("log", "containers.FORGED"), ("worst_offset", 12345)):
        put(lake, "alerts_ashore", changed(right, column, 0, value))
        check = check_derived(alerts, lake, topology)
        assert told(check) == [("changed", (column,))]
    put(lake, "alerts_ashore", pa.concat_tables([right.slice(1), right.slice(1, 1)]))
    assert sorted(told(check_derived(alerts, lake, topology))) == [("doubled", ()), ("missing", ())]
    put(lake, "alerts_ashore", ALERTS_ASHORE.sorted(table_of([])))
    assert check_derived(alerts, lake, topology).differing == right.num_rows


def test_rows_that_outlive_what_they_follow_from_are_neither_accused_nor_changed(
    lake: Lake, topology: Topology, spark: SparkSession
) -> None:
    """Retention has deleted readings. Rows of ``conditions`` are kept longer, and so are those of other tables."""
    right = {derived.table.name: rows(lake, derived.table.name) for derived in DERIVED if "readings" in derived.inputs}
    limit = port_story.at(3)
    assert expire(maintenance_session(spark), lake.paths, ExpiryStep("readings", limit, 1)) > 0
    compared = set()
    for name in right:
        check = check_derived(line(name), lake, topology)
        assert (name, check.differing) == (name, 0)
        assert "retention has deleted rows of readings" in check.notes[0]
        if check.same:
            compared.add(name)
        else:
            assert check.forgotten
    assert compared == {"conditions", "mkt", "excursion_parts", "quality", "outlook"}
    for name in compared:
        assert count_odd_rows(line(name), lake, topology, ALWAYS) == 0
    for job in ("conditions", "containers_now"):
        rebuild_job(job, JOBS, lake, topology, NOWHERE)
    assert {name: rows(lake, name) for name in right} == right
    with pytest.raises(RefusedError, match="cold_treatments cannot be made again: retention has deleted"):
        plan_backfill(lake, topology, NOWHERE, ALWAYS, ["cold_treatments"])
    todo = plan_backfill(lake, topology, NOWHERE, ALWAYS, ["conditions"])
    assert todo.empty
    ends = right["conditions"]["window_end"].to_pylist()
    put(lake, "conditions", changed(right["conditions"], "readings", ends.index(max(ends)), 777))
    assert recompute(line("conditions"), lake, topology) == 1
    assert rows(lake, "conditions") == right["conditions"]


def test_a_tables_own_retention_leaves_its_rows_out_on_both_sides(
    lake: Lake, topology: Topology, spark: SparkSession
) -> None:
    limit = port_story.at(4)
    step = ExpiryStep("conditions", limit, 1)
    assert expire(maintenance_session(spark), lake.paths, step) > 0
    left = rows(lake, "conditions")
    whole = sum(begin >= limit for begin in left["window_start"].to_pylist())  # the hours of the others are gone
    check = check_derived(line("conditions"), lake, topology)
    assert 0 < whole < left.num_rows
    assert (check.same, check.rows, check.expected) == (True, whole, whole)
    assert recompute(line("conditions"), lake, topology) == 0
