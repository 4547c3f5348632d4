"""The jobs against a real broker: rows equal records, whatever is repeated, interrupted, late or unreadable."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from pyspark.sql import SparkSession

import shore
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import encode
from fairlead.records.custody import CustodyEntry, LedgerEntry
from shore.errors import AlreadyRunningError, JobFailedError, SplitStateError
from shore.jobs import operations, readings
from shore.jobs.runner import JOBS
from shore.jobs.state import logs_read_to_end
from shore.jobs.status import read_status, status_file
from shore.paths import TablePaths
from tests.integration.shore.conftest import Shore
from tests.integration.shore.readings import records, rows, undo_commit, write
from tests.integration.shore.victim import start
from tests.support.ledgers import came_back, entry, refused
from tests.support.shore.hours import check as check_derived
from tests.support.shore.world import MINUTE, T0, World, alert, booking, reading
from tests.support.waits import PATIENCE, until

pytestmark = [pytest.mark.long, pytest.mark.integration, pytest.mark.spark]


@pytest.mark.chaos
def test_rows_equal_records_and_late_readings_correct_their_hour(shore_of: Shore, world: World) -> None:
    box = world.box(0)
    write(world, boxes=4, count=36)  # three hours
    done = shore_of.run("readings", "conditions")
    assert set(rows(shore_of)) == records(world, 4)
    assert len(rows(shore_of)) == done["readings"].rows == 4 * 36
    assert done["readings"].behind == 0
    assert shore_of.count("readings_rejected") == 0

    hours = "select window_start, readings, minutes_out_of_band as out, supply_temperature_max as top from conditions"
    mine = f"{hours} where equipment_reference = '{box}' and window_hours = 1 order by 1"
    assert shore_of.count("conditions where window_hours = 1") == 4 * 3
    assert shore_of.count("excursions") == 0
    assert [(r["readings"], r["out"]) for r in shore_of.sql(mine)] == [(12, 0.0)] * 3

    late = [reading(box, 900 + i, T0 + dt.timedelta(hours=1, minutes=2 + 5 * i), 9.0) for i in range(3)]
    early = reading(box, 910, T0 - dt.timedelta(days=3), 4.0)  # days late, in an hour of its own
    repeat = reading(box, 0, T0, 4.0)
    world.append({world.log(box): [*late, early, repeat]})
    shore_of.run("readings", "conditions")
    found = shore_of.sql(mine)
    assert [r["window_start"] for r in found] == [T0 + dt.timedelta(hours=h) for h in (-72, 0, 1, 2)]
    assert [(r["readings"], r["top"]) for r in found] == [(1, 4.0), (12, 4.0), (15, 9.0), (12, 4.0)]
    assert found[2]["out"] == pytest.approx(3 + 3 + 3)  # each until the next reading, three minutes later
    assert shore_of.count("conditions where window_hours = 1") == 4 * 3 + 1
    (excursion,) = shore_of.sql("select equipment_reference as box, minutes, worst_deviation as worst from excursions")
    assert excursion == {"box": box, "minutes": pytest.approx(3 + 2 + 3 + 2 + 3), "worst": pytest.approx(5.0)}
    check_derived(TablePaths.of(shore_of.folder))
    assert len(rows(shore_of)) == len(set(rows(shore_of))) == 4 * 36 + 5


@pytest.mark.chaos
def test_a_crash_between_write_and_commit_repeats_nothing(shore_of: Shore, world: World) -> None:
    box = world.box(0)
    write(world, boxes=3, count=24)
    world.append(
        {
            world.bookings: [booking(f"B-{world.tag}", world.customer, box, T0, None)],
            world.alerts: [alert(box, world.tag, T0 + MINUTE)],
        }
    )
    jobs = ("readings", "operations", "histories", "conditions", "feeds")
    shore_of.run(*jobs)

    def everything() -> tuple[object, ...]:
        tables = ("alerts", "booking_changes", "conditions", "feeds")
        return (sorted(rows(shore_of)), *(shore_of.count(table) for table in tables), len(world.read(feed)))

    feed = f"feeds.{world.customer}"
    before = everything()
    assert len(world.read(feed)) == 1 + 24 + 1  # marker, readings, alert
    for job in jobs:
        undo_commit(shore_of.folder, job)
    shore_of.run(*jobs)
    assert everything() == before


# A JVM of its own takes a minute. test_log_tables and test_rejected always plant crashes, and
# unit/shore/jobs/test_status covers the status of a dead run.
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_driver_killed_mid_way_loses_and_repeats_nothing(shore_of: Shore, world: World) -> None:
    write(world, boxes=5, count=200)
    commits = shore_of.folder / "checkpoints" / "readings" / "commits"
    with start(world, shore_of.folder, max_records=40) as victim:
        until(lambda: victim.poll() is not None or (commits / "2").exists(), "the third batch", patience=400)
        assert victim.poll() is None, "the victim ended before it could be killed"
    status = read_status(shore_of.folder)
    assert status is not None
    assert status.jobs["readings"].state == "gone"
    assert 0 < len(rows(shore_of)) < 1000
    shore_of.run("readings")
    assert len(rows(shore_of)) == len(set(rows(shore_of))) == 1000
    assert set(rows(shore_of)) == records(world, 5)


def test_a_run_that_ends_starts_no_query_for_logs_without_news(
    shore_of: Shore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, paths = world.topology(), TablePaths.of(shore_of.folder)

    def read_to_end() -> int | None:
        return logs_read_to_end(world.endpoint, paths, "readings", readings.logs(topology))

    write(world, boxes=2, count=3)
    assert read_to_end() is None
    shore_of.run("readings")
    logs = read_to_end()
    assert logs is not None
    with monkeypatch.context() as patched:
        patched.setitem(JOBS, "readings", replace(JOBS["readings"], query=Mock(side_effect=AssertionError)))
        status = shore_of.run("readings")["readings"]
    assert (status.state, status.logs, status.behind) == ("done", logs, 0)
    write(world, boxes=3, count=1, first=3)  # and a new log
    assert read_to_end() is None
    shore_of.run("readings")
    assert set(rows(shore_of)) == records(world, 3)
    assert read_to_end() == logs + 1
    undo_commit(shore_of.folder, "readings")
    assert read_to_end() is None


def test_running_continuously_until_stopped(shore_of: Shore, world: World, spark: SparkSession) -> None:
    write(world, boxes=2, count=10)
    stop, checked = threading.Event(), threading.Event()
    seen: list[int] = []
    done: list[object] = []

    def watch(jobs: object) -> None:
        count = shore_of.count("readings")
        assert isinstance(count, int)
        seen.append(count)
        if count == 20 and seen.count(20) == 1:
            write(world, boxes=3, count=5, first=10)  # while it runs, and with a new log
        if count == 35 and checked.is_set():
            stop.set()

    def work() -> None:
        done.append(
            shore.run(
                world.topology(), world.endpoint, shore_of.folder, ["readings"], session=spark, stop=stop,
                on_progress=watch, intervals={"readings": "1 second"},
            )
        )  # fmt: skip

    thread = threading.Thread(target=work)
    thread.start()
    try:
        with pytest.raises(AlreadyRunningError):
            _wait_for(status_file(shore_of.folder))
            shore_of.run("readings")
        checked.set()
        assert stop.wait(PATIENCE)
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert done
    assert set(rows(shore_of)) == records(world, 3)
    status = read_status(shore_of.folder)
    assert status is not None
    assert (status.jobs["readings"].state, status.jobs["readings"].behind) == ("stopped", 0)


@pytest.mark.chaos
def test_custody_is_the_chain_of_every_log_whatever_is_repeated(shore_of: Shore, world: World) -> None:
    log = world.log(world.box(0))
    port, ship, other = (f"{name}-{world.tag}" for name in ("port", "ship", "other"))

    def write(site: str, *found: LedgerEntry) -> None:
        values = [encode(msgspec.structs.replace(each, log=log)) for each in found]
        world.append({f"custody.{site}": [NewRecord(value, timestamp_ms=1) for value in values]})

    def grant(term: int, marker: int, to: str, event: str, by: str) -> CustodyEntry:
        return entry(term, marker, to, event, by=by, marker_batch=b"")

    def intervals() -> list[tuple[object, ...]]:
        query = "select term, holder, from_offset, to_offset, lost from custody where log = "
        return [tuple(row.values()) for row in shore_of.sql(f"{query}'{log}' order by term")]

    opened = grant(1, 0, port, "GTIN", by=port)
    write(port, opened)
    write(ship, grant(3, 50, port, "DISC", by=ship))
    shore_of.run("operations", "histories")
    undo_commit(shore_of.folder, "operations")
    write(port, grant(2, 10, ship, "LOAD", by=port), msgspec.structs.replace(refused("o1"), refused_by=port))
    write(ship, came_back(18, 30, 72, by=ship))
    shore_of.run("operations", "histories")
    write(other, msgspec.structs.replace(grant(18, 30, other, "SEIZURE", by=other), from_site=port))
    write(port, opened)
    shore_of.run("operations", "histories")
    undo_commit(shore_of.folder, "operations")
    shore_of.run("operations", "histories")
    assert intervals() == [
        (1, port, 1, 10, False),
        (2, ship, 11, 30, False),
        (3, port, 51, 72, True),
        (18, other, 31, None, False),
    ]
    own = f"where entry_log = '{log}' and problem is null group by entry_type"
    found = shore_of.sql(f"select entry_type, count(*) as n from custody_entries {own}")  # noqa: S608
    counts = {row["entry_type"]: row["n"] for row in found}
    assert counts == {"grant": 5, "return": 1, "refusal": 1}


def _wait_for(file: Path) -> None:
    pause = threading.Event()
    for _ in range(round(PATIENCE / 0.1)):
        if file.exists():
            return
        pause.wait(0.1)
    raise AssertionError(f"{file} never came")


def test_checkpoints_and_tables_must_belong_together(shore_of: Shore, world: World) -> None:
    import shutil

    write(world, boxes=1, count=3)
    shore_of.run("readings")
    checkpoint = shore_of.folder / "checkpoints" / "readings"
    checkpoint.rename(shore_of.folder / "kept")
    with pytest.raises(SplitStateError, match="no checkpoint"):
        shore_of.run("readings")
    (shore_of.folder / "kept").rename(checkpoint)
    shutil.rmtree(shore_of.folder / "delta" / "readings")
    with pytest.raises(SplitStateError, match="is gone"):
        shore_of.run("readings")
    shutil.rmtree(shore_of.folder / "delta")
    shutil.rmtree(shore_of.folder / "checkpoints")
    shore_of.run("readings")
    assert shore_of.count("readings") == 3


def test_a_failing_job_says_why_and_goes_on_next_time(
    shore_of: Shore, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append({world.alerts: [alert(world.box(0), world.tag, T0)]})

    def full(*_: object, **__: object) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(operations, "append_once", full)
        with pytest.raises(JobFailedError) as error:
            shore_of.run("operations")
    assert "No space left on device" in error.value.what
    assert len(error.value.what) < 300
    status = read_status(shore_of.folder)
    assert status is not None
    assert status.jobs["operations"].state == "failed"
    shore_of.run("operations")
    own = f"select kind, severity, equipment_reference, log_offset from alerts where log = '{world.alerts}'"  # noqa: S608
    assert shore_of.sql(own) == [
        {"kind": "OVERBOARD", "severity": "CRITICAL", "equipment_reference": world.box(0), "log_offset": 1}
    ]
