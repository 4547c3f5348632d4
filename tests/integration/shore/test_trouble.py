"""A continuous run in trouble: the site goes away and comes back, logs are deleted and recreated, a state is
damaged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

import shore
from acl.kafka import Client, KafkaRules
from acl.rules import Binding
from fairlead.kafka.admin import delete_logs
from fairlead.kafka.convention import is_data
from fairlead.kafka.credentials import give_password
from fairlead.kafka.endpoint import Endpoint, KafkaEndpoint
from fairlead.local.sites import LocalSites
from shore.delta.lake import Lake
from shore.errors import JobFailedError
from shore.jobs.runner import JOBS
from shore.jobs.status import JobStatus
from shore.paths import TablePaths
from shore.repair.rebuild import rebuild_job
from shore.tables.readings import READINGS
from shore.verify import verify
from tests.integration.shore.conftest import Shore
from tests.integration.shore.readings import records, rows, write
from tests.support.shore import hours
from tests.support.shore.world import MINUTE, T0, World, alert, booking, reading
from tests.support.waits import until
from topologies.model import Topology

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(900)]


class Running:
    """A continuous run in a thread; ``jobs`` is the newest status of each job."""

    def __init__(self) -> None:
        self.jobs: Mapping[str, JobStatus] = {}
        self.ended: BaseException | None = None

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait for a condition; fail if the run ends before."""

        def found() -> bool:
            assert self.ended is None, self.ended
            return true()

        try:
            until(found, what, patience=300)
        except AssertionError as error:
            raise AssertionError(f"{error}; the jobs: {self.jobs}") from error

    def said(self, job: str) -> JobStatus:
        return self.jobs.get(job, JobStatus(job, "waiting"))


@contextmanager
def running(
    shore_of: Shore,
    spark: SparkSession,
    *jobs: str,
    endpoint: Endpoint | None = None,
    topology: Topology | None = None,
) -> Iterator[Running]:
    """Run these jobs while the context is open, then stop them; fail if the run fails."""
    stop, run, world = threading.Event(), Running(), shore_of.world

    def watch(found: Mapping[str, JobStatus]) -> None:
        run.jobs = dict(found)

    def work() -> None:
        try:
            shore.run(
                topology or world.topology(), endpoint or world.endpoint, shore_of.folder, jobs, session=spark,
                stop=stop, on_progress=watch, intervals=dict.fromkeys(jobs, "1 second"),
            )  # fmt: skip
        except BaseException as error:
            run.ended = error
            raise

    thread = threading.Thread(target=work)
    thread.start()
    try:
        run.until(lambda: bool(run.jobs), "the tables")
        yield run
    finally:
        stop.set()
        thread.join(120)
    assert run.ended is None


def test_a_site_away_while_shore_runs(
    spark: SparkSession, kafka: Callable[..., KafkaEndpoint], sites: LocalSites, tmp_path: Path
) -> None:
    """Jobs of an unreachable site wait and report since when, the others continue; afterwards every record arrives
    once."""
    world = World(kafka("beta", "admin"))
    shore_of, other = Shore(world, tmp_path, spark), world.box(9)
    reading_jobs = ("readings", "operations")

    def states() -> set[str]:
        return {run.said(job).state for job in reading_jobs}

    write(world, boxes=2, count=10)
    world.append({world.alerts: [alert(world.box(0), "beta", T0)]})
    with running(shore_of, spark, *reading_jobs, "conditions") as run:
        run.until(lambda: shore_of.count("conditions where window_hours = 1") == 2, "what was there before")
        run.until(lambda: shore_of.count("alerts") == 1, "the alert")
        run.until(lambda: states() == {"running"}, "jobs that run")
        sites.kill("beta")
        run.until(lambda: states() == {"retrying"}, "jobs that say that they wait")
        since = {job: run.said(job).failing_since for job in reading_jobs}
        assert None not in since.values()
        # A job that reads tables goes on.
        row = pa.Table.from_pylist([hours.reading(other, 5.0)], schema=READINGS.plain_schema)
        table = TablePaths.of(shore_of.folder).table("readings")
        spark.createDataFrame(row).write.format("delta").mode("append").save(table)
        mine = f"conditions where equipment_reference = '{other}' and window_hours = 1"
        run.until(lambda: shore_of.count(mine) == 1, "conditions of a row that came meanwhile")
        assert run.said("conditions").state == "running"
        assert {job: run.said(job).failing_since for job in reading_jobs} == since
        sites.restart("beta")
        write(world, boxes=3, count=10, first=10)
        world.append({world.alerts: [alert(world.box(1), "beta", T0 + MINUTE)]})
        run.until(lambda: shore_of.count("readings") == 20 + 30 + 1, "what came when the site was back")
        run.until(lambda: shore_of.count("alerts") == 2, "its alert")
        run.until(lambda: states() == {"running"}, "jobs that run again")
        assert {run.said(job).failing_since for job in reading_jobs} == {None}
    assert set(rows(shore_of)) == {*records(world, 3), (f"containers.{other}", 300 + 10**9)}
    assert len(rows(shore_of)) == 51


def test_another_password_while_shore_runs(shore_of: Shore, spark: SparkSession, world: World) -> None:
    """After a password change, connected jobs continue and new logins use the new password; every record arrives
    once."""
    user, old, new = f"reader-{world.tag}", SecretStr("an-old-password"), SecretStr("a-new-password")
    asked = replace(world.endpoint, user=user, password=old)
    give_password(world.endpoint, user, old)
    with Client(world.endpoint) as client:
        everything = [
            Binding(f"User:{user}", kind, "LITERAL", "*", "ALL") for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")
        ]
        KafkaRules(client).add(everything)
    jobs = ("readings", "operations", "histories", "feeds")

    def fed() -> int:
        return sum(is_data(record) for record in world.read(f"feeds.{world.customer}"))

    write(world, boxes=2, count=10)
    world.append({world.bookings: [booking(f"B-{world.tag}", world.customer, world.box(0), T0, None)]})
    with running(shore_of, spark, *jobs, endpoint=lambda: asked) as run:
        run.until(lambda: shore_of.count("readings") == 20 and fed() == 10, "what was there before")
        asked = replace(asked, other_passwords=(new,))
        give_password(world.endpoint, user, new)
        asked = replace(asked, password=new, other_passwords=())
        write(world, boxes=2, count=10, first=10)
        run.until(lambda: shore_of.count("readings") == 40 and fed() == 20, "what came after the change")
        run.until(lambda: {run.said(job).state for job in jobs} == {"running"}, "jobs that run")
    assert len(set(rows(shore_of))) == 40


def test_logs_deleted_and_made_anew_while_shore_runs(shore_of: Shore, spark: SparkSession, world: World) -> None:
    """Without ``fail_on_data_loss`` other logs do not wait, no row is stored twice, and a recreated log is read on only
    from the offset reached."""
    box, topology = world.box(2), world.topology(fail_on_data_loss=False)
    gone = world.log(box)

    def of_gone() -> list[Any]:
        found = shore_of.sql(f"select log_offset from readings where log = '{gone}' order by 1")  # noqa: S608
        return [row["log_offset"] for row in found]

    def others() -> object:
        return shore_of.count(f"readings where log in ('{world.log(world.box(0))}', '{world.log(world.box(1))}')")

    def told(words: str) -> bool:
        return any(words in each for each in run.said("readings").skipped)

    write(world, boxes=3, count=10)
    with running(shore_of, spark, "readings", topology=topology) as run:
        run.until(lambda: shore_of.count("readings") == 30, "what was there before")
        delete_logs(world.endpoint, [gone])
        run.until(lambda: run.said("readings").vanished == 1, "word of the deleted log")
        write(world, boxes=2, count=10, first=10)
        run.until(lambda: shore_of.count("readings") == 50, "the records of the others")
        assert told(gone)
        anew = [reading(box, i, T0 + i * 5 * MINUTE) for i in range(20)]  # as when a replica is recreated
        world.append({gone: anew[:3]})
        run.until(lambda: told("truncated, or made anew"), "word of the log that is shorter than it was")
        assert of_gone() == list(range(1, 11))
        world.append({gone: anew[3:]})
        run.until(lambda: len(of_gone()) == 20, "what is new in the log that was made anew")
        # Delete logs repeatedly while they have records to read.
        for round_ in range(1, 4):
            fresh = world.box(10 + round_)
            world.append({world.log(fresh): [reading(fresh, i, T0 + i * MINUTE) for i in range(200)]})
            delete_logs(world.endpoint, [world.log(fresh)])
            write(world, boxes=2, count=10, first=10 + 10 * round_)
            wanted = 2 * (20 + 10 * round_)
            run.until(lambda: others() == wanted, "the records of the others")  # noqa: B023  # called here
    shore_of.run("readings", topology=topology)  # a batch may have been cut off
    assert of_gone() == list(range(1, 21))
    found = rows(shore_of)
    assert len(found) == len(set(found))
    assert {*records(world, 3)} <= set(found)
    (check,) = verify(spark, world.topology(), world.endpoint, shore_of.folder, ["readings"]).tables
    assert (check.same, check.behind) == (True, 0)


@pytest.mark.parametrize("how", ["cut off", "gone"])
def test_a_damaged_state_of_alerts_says_what_to_do(
    shore_of: Shore, spark: SparkSession, world: World, how: str
) -> None:
    """The job fails when a batch needs the damaged state, names the rebuild command, and a rebuild repairs it."""
    paths, box = TablePaths.of(shore_of.folder), world.box(0)

    def write(first: int, last: int, supply: float) -> None:
        at = [(n, T0 + 10 * n * MINUTE) for n in range(first, last)]
        world.append({world.log(box): [reading(box, n, time, supply) for n, time in at]})

    write(0, 10, 9.0)
    shore_of.run("readings", "alerts")
    assert shore_of.count("alerts_ashore") == 1
    damaged = [
        file
        for file in (Path(paths.checkpoint("alerts")) / "state").rglob("*")
        if file.suffix in {".changelog", ".zip"} and not file.name.startswith(".")
    ]
    assert damaged
    for file in damaged:
        if how == "gone":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:3])
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    write(10, 14, 4.0)
    with pytest.raises(JobFailedError) as error:
        shore_of.run("readings", "alerts")
    assert error.value.fields["job"] == "alerts"
    assert "fairlead shore rebuild alerts" in error.value.hint
    assert not error.value.passing
    rebuild_job("alerts", JOBS, Lake(spark, paths), world.topology(), world.endpoint)
    shore_of.run("readings", "alerts")
    assert shore_of.count("alerts_ashore") == 2
    (check,) = verify(spark, world.topology(), world.endpoint, shore_of.folder, ["alerts_ashore"]).tables
    assert (check.same, check.rows) == (True, 2)
    assert set(rows(shore_of)) == records(world, 1)
