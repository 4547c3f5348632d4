"""Checkpoints, tables and the writer's lock at a storage URL: a folder as ``file://``, and a real S3 server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from fairlead.errors import UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.delta.commit import conform, create_tables
from shore.delta.lake import Lake
from shore.delta.lease import Lease, check_lease, only_one
from shore.errors import AlreadyRunningError, LeaseLostError, SplitStateError
from shore.jobs.checkpoint import (
    TablePosition,
    archive_checkpoint,
    commit_actions,
    has_begun,
    read_checkpoint,
    table_end,
    write_checkpoint,
    write_table_checkpoint,
)
from shore.jobs.runner import JOBS
from shore.jobs.state import check_state, renew_incomplete
from shore.paths import TablePaths
from shore.repair import rebuild as module
from shore.repair.logs import find_odd_rows, repair_logs
from shore.repair.rebuild import rebuild_job
from shore.storage import Storage
from shore.tables import TABLES
from shore.verify import verify
from shore.verify.catalogue import FROM_LOGS
from tests.support.delta_rs import create
from tests.support.object_store import kinds, s3_base, s3_server
from tests.support.shore.world import MINUTE, T0, World, reading
from tests.support.waits import PATIENCE
from topologies.model import Topology

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.timeout(600)]  # one test builds the S3 server

LARGE = bytes(range(256)) * 8_000  # more than one buffer, or part of an upload
ROW = pa.Table.from_pylist([{"log": "a.b", "log_offset": 1}], schema=TABLES["readings"].plain_schema)


@pytest.fixture(scope="module", params=kinds())
def storage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Yield a function that returns a new base URL on one kind of storage."""
    if request.param == "file":
        yield lambda: tmp_path_factory.mktemp("storage").as_uri()
        return
    with s3_server(tmp_path_factory.mktemp("s3")) as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield s3_base


@pytest.fixture
def paths(storage: Callable[[], str], tmp_path: Path) -> TablePaths:
    return TablePaths.of(tmp_path, storage())


def test_files_of_a_storage(paths: TablePaths) -> None:
    files = Storage(paths.base)
    assert files.names("checkpoints") == files.names("") == []
    assert not files.move("checkpoints", "elsewhere")
    for path, content in (
        ("a/offsets/0", b"zero"),
        ("a/offsets/1", LARGE),
        ("a/metadata", b"old"),
        ("a/metadata", b"new"),
    ):
        files.write(path, content)
    assert (files.names("a"), files.names("a/offsets"), files.names("")) == (["metadata", "offsets"], ["0", "1"], ["a"])
    assert (files.read("a/metadata"), files.read("a/offsets/1")) == (b"new", LARGE)
    with pytest.raises(FileNotFoundError):
        files.read("a/offsets/2")
    assert files.move("a", "a.aside")
    assert (files.names("a"), files.files("a.aside")) == (
        [],
        ["a.aside/metadata", "a.aside/offsets/0", "a.aside/offsets/1"],
    )
    files.delete("a.aside")
    assert files.names("") == []


def test_a_storage_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_ENDPOINT_URL", "http://127.0.0.1:9"), ("AWS_ALLOW_HTTP", "true")):
        monkeypatch.setenv(name, value)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_MAX_RETRIES", "0")
    with pytest.raises(UnavailableError, match="s3a://nowhere/x"):
        Storage("s3a://nowhere/x").names("lock")


def test_a_lost_checkpoint_is_noticed(paths: TablePaths) -> None:
    jobs = [JOBS["readings"]]
    for table in TABLES.values():
        create(table, paths.table(table.name))
    check_state(paths, jobs)
    write_checkpoint(paths, "readings", {"a.b": 2}, "{}")
    write_deltalake(paths.table("readings"), ROW, mode="append")
    found = read_checkpoint(paths, "readings")
    assert found is not None
    assert (found.positions, found.under_way) == ({"a.b": 2}, False)
    check_state(paths, jobs)
    (*_, add) = commit_actions(DeltaTable(paths.table("readings")), 1)
    assert "add" in add or "commitInfo" in add
    assert archive_checkpoint(paths, "readings", "lost") == f"{paths.checkpoint('readings')}.lost"
    with pytest.raises(SplitStateError, match="all rows would be added again"):
        check_state(paths, jobs)
    Storage(paths.tables).delete("readings")
    write_checkpoint(paths, "readings", {"a.b": 2}, "{}")
    with pytest.raises(SplitStateError, match="table readings is gone"):
        check_state(paths, jobs)


def test_a_job_of_an_earlier_release_may_lack_tables(paths: TablePaths) -> None:
    """A version that keeps more tables fills them, whether it reads another table for that or not."""
    job = JOBS["histories"]
    for table in TABLES.values():
        if table.name != "milestones":
            create(table, paths.table(table.name))
    ends: list[TablePosition] = [table_end(paths, name) for name in job.inputs]
    write_table_checkpoint(paths, job.name, ends[:-1], "{}")
    check_state(paths, [job])
    assert archive_checkpoint(paths, job.name, "earlier")
    write_table_checkpoint(paths, job.name, ends, "{}")
    check_state(paths, [job])
    renew_incomplete(paths, [job])
    assert not has_begun(paths, job.name)


@pytest.fixture
def url(tmp_path: Path, spark: SparkSession) -> TablePaths:
    """Create all tables at a URL that Spark can use without further classes."""
    paths = TablePaths.of(tmp_path, (tmp_path / "storage").as_uri())
    create_tables(spark, {paths.table(name): table for name, table in TABLES.items()})
    return paths


@pytest.fixture
def alerts(url: TablePaths, spark: SparkSession) -> TablePaths:
    """Add a row to table ``alerts_ashore``, and a checkpoint that is past it."""
    rows = conform(spark.createDataFrame([("x",)], "alert_id string"), TABLES["alerts_ashore"])
    rows.write.format("delta").mode("append").save(url.table("alerts_ashore"))
    write_checkpoint(url, "alerts", {"a.b": 2}, "{}")
    return url


def test_alerts_are_rebuilt(
    alerts: TablePaths, spark: SparkSession, topology: Topology, nowhere: KafkaEndpoint
) -> None:
    done = rebuild_job("alerts", JOBS, Lake(spark, alerts), topology, nowhere)
    assert done.put_aside is not None
    assert read_checkpoint(alerts, "alerts") is None
    assert DeltaTable(alerts.table("alerts_ashore")).to_pyarrow_table().num_rows == 0
    assert Storage(alerts.checkpoints).read(f"{done.put_aside.rpartition('/')[2]}/offsets/0")
    check_state(alerts, [JOBS["alerts"]])


def test_a_rebuild_that_is_broken_off_loses_nothing_silently(
    alerts: TablePaths,
    spark: SparkSession,
    topology: Topology,
    nowhere: KafkaEndpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "archive_checkpoint", _broken)
        with pytest.raises(UnavailableError):
            rebuild_job("alerts", JOBS, Lake(spark, alerts), topology, nowhere)
    assert DeltaTable(alerts.table("alerts_ashore")).to_pyarrow_table().num_rows == 1  # as before
    check_state(alerts, [JOBS["alerts"]])
    with monkeypatch.context() as patch:
        patch.setattr(module, "empty_table", _broken)
        with pytest.raises(UnavailableError):
            rebuild_job("alerts", JOBS, Lake(spark, alerts), topology, nowhere)
    with pytest.raises(SplitStateError, match="has no checkpoint"):  # instead of continuing with an empty table
        check_state(alerts, [JOBS["alerts"]])
    rebuild_job("alerts", JOBS, Lake(spark, alerts), topology, nowhere)
    check_state(alerts, [JOBS["alerts"]])


def _broken(*_: object, **__: object) -> None:
    raise UnavailableError("the storage does not answer", hint="")


@pytest.fixture
def topology() -> Topology:
    return World(KafkaEndpoint("alpha", (("127.0.0.1", 9),), "shore")).topology()


@pytest.fixture
def nowhere() -> KafkaEndpoint:
    """Return a Kafka endpoint where no server answers, so that every request fails."""
    return KafkaEndpoint("alpha", (("127.0.0.1", 9),), "shore")


def test_readings_are_rebuilt_and_verified(url: TablePaths, source: SparkSession, world: World, tmp_path: Path) -> None:
    box = world.box(0)
    end = world.append({world.log(box): [reading(box, n, T0 + n * MINUTE) for n in range(20)]})[world.log(box)] + 20
    topology = world.topology()
    assert topology.shore is not None
    topology = topology.model_copy(update={"shore": topology.shore.model_copy(update={"tables": url.base})})
    entry = next(each for each in FROM_LOGS if "readings" in each.tables)
    lake = Lake(source, url)
    repair_logs(find_odd_rows(entry, lake, topology, world.endpoint, {world.log(box): end - 5}), lake)
    assert rebuild_job("readings", JOBS, lake, topology, world.endpoint).logs == 1
    check_state(url, [JOBS["readings"]])
    found = verify(source, topology, world.endpoint, tmp_path, ["readings"]).of("readings")
    assert found is not None
    assert (found.same, found.rows, found.behind) == (True, 15, 5)


class Machine(Lease):
    """The lease of one of several machines. It considers another one dead after ``dead`` seconds, by default so late
    that a living one whose beats are held up never counts as dead."""

    def __init__(
        self, base: str, host: str, on_lost: Callable[[], None] = lambda: None, *, dead: float = PATIENCE
    ) -> None:
        super().__init__(base, "/state", on_lost, beat_seconds=0.2, dead_seconds=dead, host=host)

    def die(self) -> None:
        """Stop without releasing the lock, as a killed process does."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join()


def test_one_machine_writes_at_a_time(paths: TablePaths) -> None:
    first, second = Machine(paths.base, "one"), Machine(paths.base, "two")
    first.acquire()
    with pytest.raises(AlreadyRunningError, match=r"process \d+ of one"):
        second.acquire()
    first.check()
    first.release()
    second.acquire()  # at once: the other one has released it
    assert second.term == first.term + 1
    second.die()
    again = Machine(paths.base, "two")
    again.acquire()  # at once: it is this machine's own dead process
    again.release()


def test_a_machine_that_stood_still_writes_no_more(paths: TablePaths) -> None:
    lost = threading.Event()
    first = Machine(paths.base, "one", on_lost=lost.set, dead=2.0)
    first.acquire()
    place = paths.table("readings")
    check_lease(place)  # as every write of shore does
    first.die()  # it stands still, and does not know it
    second = Machine(paths.base, "two", dead=2.0)
    began = time.monotonic()
    second.acquire()
    assert time.monotonic() - began >= second.dead_seconds
    with pytest.raises(LeaseLostError, match="of two has taken over"):
        check_lease(place)
    first.release()
    check_lease(place)  # the second may write now
    second.release()


def test_a_machine_that_lives_hears_of_it(paths: TablePaths) -> None:
    lost = threading.Event()
    first = Machine(paths.base, "one", on_lost=lost.set)
    first.acquire()
    taken = Machine(paths.base, "two")
    taken._files = Storage(f"{paths.base}/lock")  # noqa: SLF001  # it takes the next term without waiting
    DeltaTable.create(f"{paths.base}/lock/2", schema=pa.schema([("n", pa.int64())]), description='{"host":"two"}')
    assert lost.wait(PATIENCE)
    with pytest.raises(LeaseLostError):
        first.check()
    first.release()


def test_of_many_that_try_one_gets_it(paths: TablePaths) -> None:
    machines = [Machine(paths.base, f"host-{n}") for n in range(6)]
    together, got, refused = threading.Barrier(len(machines)), [], []

    def take(machine: Machine) -> None:
        together.wait()
        try:
            machine.acquire()
            got.append(machine)
        except AlreadyRunningError:
            refused.append(machine)

    threads = [threading.Thread(target=take, args=(machine,)) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, len(machines) - 1)
    got[0].check()
    got[0].release()


def test_the_lock_is_on_the_storage_too(paths: TablePaths, tmp_path: Path) -> None:
    """Two state folders stand for two machines."""
    with only_one(tmp_path / "one", paths) as lease:
        assert lease is not None
        lease.beat_seconds = 0.1
        with pytest.raises(AlreadyRunningError, match="writes to"), only_one(tmp_path / "two", paths):
            pass
    with only_one(tmp_path / "two", paths):
        pass
    with only_one(tmp_path / "one", TablePaths.of(tmp_path / "one")) as none:
        assert none is None
