"""Records deleted before shore read them: noted once, and reported everywhere until somebody acknowledges it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import shore
from fairlead.cli.app import run
from fairlead.cli.commands.shore.context import open_shore
from fairlead.errors import ExitCode
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.scrape import serve
from shore.errors import DataLossError
from shore.jobs.metrics import shore_metrics
from shore.jobs.query import job_failure
from shore.jobs.status import JobStatus, MaintenanceStatus, RunMonitor, write_status
from shore.lag import Lag
from shore.paths import TablePaths
from shore.source.losses import (
    Loss,
    acknowledge_losses,
    describe_loss,
    losses_folder,
    note_losses,
    read_losses,
    settle_losses,
)
from shore.source.options import parse_options
from shore.source.stream import Gone, StreamReader
from shore.source.task import Task
from shore.storage import Storage
from tests.support.scraping import page, scrape

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
LOG = "containers.BIGU1000010"


def loss(first: int, last: int, log: str = LOG, hours: int = 0) -> Loss:
    return Loss(log=log, first=first, last=last, why="retention", found_at=NOW + dt.timedelta(hours=hours))


@pytest.fixture(params=["path", "url"])
def paths(request: pytest.FixtureRequest, tmp_path: Path) -> TablePaths:
    return TablePaths.of(tmp_path, None if request.param == "path" else (tmp_path / "far").as_uri())


def test_a_loss_is_noted_once_and_added_up(paths: TablePaths) -> None:
    folder = losses_folder(paths, "readings")
    assert read_losses(paths) == ()
    for _ in range(2):  # a batch that is repeated
        note_losses(folder, [loss(10, 19), loss(15, 29, hours=1), loss(40, 40)])  # the driver and tasks find the same
    note_losses(folder, [loss(7, 7, "odd/log.name")])
    note_losses(losses_folder(paths, "alerts"), [loss(10, 19)])
    found = read_losses(paths)
    assert [(each.job, each.log, each.records, each.first) for each in found] == [
        ("alerts", LOG, 10, 10),
        ("readings", LOG, 21, 10),
        ("readings", "odd/log.name", 1, 7),
    ]
    assert describe_loss(found[1]) == f"readings has lost 21 records of {LOG}, from offset 10 on: retention"
    assert describe_loss(found[2]) == "readings has lost a record of odd/log.name, from offset 7 on: retention"


def test_what_is_acknowledged_is_kept_and_not_told_again(paths: TablePaths) -> None:
    folder = losses_folder(paths, "readings")
    note_losses(folder, [loss(10, 19)])
    assert [each.records for each in acknowledge_losses(paths)] == [10]
    assert read_losses(paths) == acknowledge_losses(paths) == ()
    note_losses(folder, [loss(10, 19)])  # the batch is repeated
    assert read_losses(paths) == ()
    note_losses(folder, [loss(20, 21)])
    assert [each.records for each in read_losses(paths)] == [2]


def test_what_a_job_notes_while_somebody_acknowledges_stays(paths: TablePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """No note is deleted: a job that goes on after a loss notes it once."""
    folder, write = losses_folder(paths, "readings"), Storage.write

    def write_and_lose(files: Storage, path: str, content: bytes) -> None:
        write(files, path, content)
        monkeypatch.setattr(Storage, "write", write)
        note_losses(folder, [loss(30, 39)])

    note_losses(folder, [loss(10, 19)])
    monkeypatch.setattr(Storage, "write", write_and_lose)
    assert [each.first for each in acknowledge_losses(paths)] == [10]
    assert [each.first for each in read_losses(paths)] == [30]
    assert [each.first for each in acknowledge_losses(paths)] == [30]


def test_a_watch_tells_what_is_new(paths: TablePaths) -> None:
    folder = losses_folder(paths, "readings")
    note_losses(folder, [loss(1, 2)])
    told: list[str] = []
    watch = RunMonitor("big-blue", paths, lambda lost: told.append(describe_loss(lost)))
    watch.refresh()
    assert (told, watch.lost) == ([], False)  # it is older than the watch
    note_losses(folder, [loss(5, 5)])
    watch.refresh({"readings": JobStatus("readings", "running")})
    watch.refresh()
    assert (len(told), watch.lost) == (1, True)


def test_a_job_stops_until_somebody_acknowledges(paths: TablePaths) -> None:
    folder = losses_folder(paths, "readings")
    with pytest.raises(DataLossError, match=f"{LOG} has lost records 10 to 19 .* and 1 more logs") as error:
        settle_losses(folder, [loss(10, 19), loss(4, 4, "odd/log.name")], fail=True)
    assert "fairlead shore losses --acknowledge" in error.value.hint
    assert error.value.fields == {"log": LOG, "first": 10, "last": 19}
    assert [each.records for each in read_losses(paths)] == [10, 1]  # noted, although the job has stopped
    with pytest.raises(DataLossError):
        settle_losses(losses_folder(paths, "readings"), [loss(10, 19)], fail=True)
    acknowledge_losses(paths)
    settle_losses(folder, [loss(10, 19), loss(4, 4, "odd/log.name")], fail=True)
    assert read_losses(paths) == ()
    with pytest.raises(DataLossError):  # nobody acknowledged what this job lost
        settle_losses(losses_folder(paths, "alerts"), [loss(10, 19)], fail=True)


def test_a_hole_that_has_grown_since_stops_nobody_again(paths: TablePaths) -> None:
    """Retention may delete more before the job continues: that is noted, and the job skips the whole hole."""
    folder = losses_folder(paths, "readings")
    note_losses(folder, [loss(10, 19)])
    acknowledge_losses(paths)
    settle_losses(folder, [loss(10, 29)], fail=True)
    (found,) = read_losses(paths)
    assert (found.first, found.records) == (20, 10)
    settle_losses(folder, [loss(15, 29)], fail=True)  # the next batch begins in the hole
    with pytest.raises(DataLossError):
        settle_losses(folder, [loss(50, 59)], fail=True)


def test_without_fail_it_is_noted_and_goes_on(paths: TablePaths) -> None:
    settle_losses(losses_folder(paths, "readings"), [loss(10, 19)], fail=False)
    assert [each.records for each in read_losses(paths)] == [10]


def test_the_error_of_the_job_says_what_to_do() -> None:
    """Spark wraps the source's error in its own; the job's error names log, offsets and the command to continue."""
    wrapped = f"[PYTHON_STREAMING] failed\nshore.errors.DataLossError: {LOG} has lost records 10 to 19 before this job"
    failed = job_failure("readings", wrapped + " read them\n  what to do: something\n\tat java.Thing")
    assert failed.what == f"job readings has stopped: {LOG} has lost records 10 to 19 before this job read them"
    assert "fairlead shore losses --acknowledge" in failed.hint
    assert failed.passing
    assert not failed.retriable  # with --once it ends the run


def test_metrics_name_it(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    done = MaintenanceStatus(NOW, tables=3, error="a table cannot be read")
    watch = RunMonitor("big-blue", paths, lambda lost: None, lambda: {"compact": done})
    watch.lags = {"readings": Lag(records=12, seconds=3.5), "alerts": Lag(why="it has not run yet")}
    readings = JobStatus("readings", "retrying", batches=2, rows=70, batch_seconds=1.5, starts=4)
    alerts = JobStatus("alerts", "running", state_rows=9, state_bytes=4096)
    watch.refresh({"readings": readings, "alerts": alerts})
    note_losses(losses_folder(paths, "readings"), [loss(10, 19), loss(3, 3, "a.b")])
    watch.refresh()
    text = page(shore_metrics([watch.snapshot()]))
    for line in (
        'fairlead_shore_lost_records{query="readings",topology="big-blue"} 11.0',
        'fairlead_shore_lost_logs{query="readings",topology="big-blue"} 2.0',
        'fairlead_shore_lost_logs{query="alerts",topology="big-blue"} 0.0',
        'fairlead_shore_job_state{query="readings",state="retrying",topology="big-blue"} 1.0',
        'fairlead_shore_job_state{query="alerts",state="retrying",topology="big-blue"} 0.0',
        'fairlead_shore_rows_total{query="readings",topology="big-blue"} 70.0',
        'fairlead_shore_batches_total{query="readings",topology="big-blue"} 2.0',
        'fairlead_shore_starts_total{query="readings",topology="big-blue"} 4.0',
        'fairlead_shore_batch_seconds{query="readings",topology="big-blue"} 1.5',
        'fairlead_shore_state_rows{query="alerts",topology="big-blue"} 9.0',
        'fairlead_shore_state_bytes{query="alerts",topology="big-blue"} 4096.0',
        'fairlead_shore_lag_seconds{query="readings",topology="big-blue"} 3.5',
        'fairlead_shore_lag_records{query="readings",topology="big-blue"} 12.0',
        f'fairlead_shore_maintenance_timestamp_seconds{{topology="big-blue",verb="compact"}} {NOW.timestamp()}'[:70],
        'fairlead_shore_maintenance_failed{topology="big-blue",verb="compact"} 1.0',
    ):
        assert line in text
    assert 'fairlead_shore_lag_seconds{query="alerts"' not in text  # an unknown lag has no number
    assert 'fairlead_shore_state_rows{query="readings"' not in text
    server = serve(shore_metrics, [watch], 0)
    try:
        labels = frozenset({("query", "readings"), ("topology", "big-blue")})
        assert scrape(server.port)["fairlead_shore_lost_logs", labels] == 2
    finally:
        server.close()


def test_the_driver_notes_what_it_finds(tmp_path: Path) -> None:
    folder = losses_folder(TablePaths.of(tmp_path), "readings")
    options = parse_options({"streams": "containers", "losses": folder})
    reader = StreamReader(Task(KafkaEndpoint("alpha", (("127.0.0.1", 9),)), options))
    lost = reader._losses  # noqa: SLF001  # what a look at the logs has found
    lost.add({"a.b": Gone(9, 3, "deleted before they were read"), "a.c": Gone(4, 0, "a.c ends before 4")})
    with pytest.raises(DataLossError, match=r"a\.b has lost records 9 to 11 before"):
        reader._task.settle_losses(*lost.report_new(fail=False))  # noqa: SLF001
    (found,) = read_losses(TablePaths.of(tmp_path))
    assert (found.job, found.log, found.first, found.records) == ("readings", "a.b", 9, 3)


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Return a function that notes a loss of topology ``minimal``."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    place = open_shore("minimal")
    (place.folder / "run").mkdir(parents=True, exist_ok=True)
    write_status(place.folder, {"readings": JobStatus("readings", "done")})
    return lambda: note_losses(losses_folder(place.paths, "readings"), [loss(10, 19)])


def test_status_check_fails_until_it_is_acknowledged(
    ours: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    check = ["shore", "status", "--check", "--topology", "minimal"]
    assert run(check) == ExitCode.OK
    ours()
    capsys.readouterr()
    assert run(check) == ExitCode.FAILED
    assert f"readings has lost 10 records of {LOG}" in " ".join(capsys.readouterr().out.split())
    assert run([*check, "--json"]) == ExitCode.FAILED
    body = json.loads(capsys.readouterr().out)
    assert (body["ok"], body["losses"][0]["records"]) == (False, 10)
    assert run(["shore", "losses", "--topology", "minimal"]) == ExitCode.OK
    assert LOG in capsys.readouterr().out
    assert run(["shore", "losses", "--acknowledge", "--dry-run", "--topology", "minimal"]) == ExitCode.OK
    assert run(check) == ExitCode.FAILED
    assert run(["shore", "losses", "--acknowledge", "--yes", "--topology", "minimal"]) == ExitCode.OK
    assert run(check) == ExitCode.OK


@pytest.mark.parametrize("loses", [True, False])
def test_a_run_that_loses_records_says_so_and_ends_with_1(
    ours: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], loses: bool
) -> None:
    ours()  # a loss of an earlier run does not fail this one

    def jobs(*_: object, **__: object) -> dict[str, JobStatus]:
        if loses:
            place = open_shore("minimal")
            note_losses(losses_folder(place.paths, "readings"), [loss(50, 59, "containers.BIGU1000026")])
        return {}

    monkeypatch.setattr(shore, "run", jobs)
    ended = run(["shore", "run", "--once", "--topology", "minimal"])
    assert ended == (ExitCode.FAILED if loses else ExitCode.OK)
    told = " ".join(capsys.readouterr().err.split())
    assert ("readings has lost 10 records of containers.BIGU1000026" in told) is loses
