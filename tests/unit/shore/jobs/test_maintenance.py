"""Maintenance by the clock goes on after an error of the storage or of the disk."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from deltalake.exceptions import DeltaError

from shore.jobs import maintenance
from shore.jobs.checkpoint import table_end, write_table_checkpoint
from shore.jobs.maintenance import TableMaintenance
from shore.jobs.status import MaintenanceStatus, read_maintenance
from shore.maintenance import ExpiryStep
from shore.paths import TablePaths
from shore.storage import Storage
from tests.support.tables import fill
from tests.support.waits import PATIENCE
from topologies.loader.load import load
from topologies.model import Shore

LONG_AGO = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def one(tmp_path: Path) -> TableMaintenance:
    """Return maintenance that is due."""
    found = TableMaintenance(load("minimal"), Shore(at="tokyo"), tmp_path, TablePaths.of(tmp_path), ())
    found.status = {"compact": MaintenanceStatus(LONG_AGO), "vacuum": MaintenanceStatus(LONG_AGO)}
    return found


@pytest.mark.parametrize("error", [OSError("a listing timed out"), DeltaError("a listing timed out")])
def test_a_storage_that_fails_while_a_step_is_planned_is_an_error_of_that_table(
    one: TableMaintenance, tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: Iterator[Exception | list[object]] = iter([error])

    def plan(*_: object, **__: object) -> list[object]:
        answer = next(plans, [])
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(maintenance, "plan_compaction", plan)
    one.do("compact", Mock(), threading.Event())
    assert read_maintenance(tmp_path)["compact"].error == "a listing timed out"
    one.do("compact", Mock(), threading.Event())
    assert read_maintenance(tmp_path)["compact"].error is None


def test_maintenance_goes_on_after_a_disk_that_was_full(one: TableMaintenance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(maintenance, "maintenance_session", Mock())
    again = threading.Event()
    began = []

    def do(verb: str, *_: object) -> None:
        began.append(verb)
        if len(began) == 1:
            raise OSError("No space left on device")
        again.set()

    monkeypatch.setattr(one, "do", do)
    with one.running(Mock()):
        assert again.wait(PATIENCE)


def test_rows_that_a_job_has_still_to_read_are_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The status names the table and the job as long as the table is left alone; the log says it once."""
    deleted = []

    def expire(session: object, paths: TablePaths, step: ExpiryStep) -> int:
        deleted.append(step.table)
        return 1

    monkeypatch.setattr(maintenance, "expire", expire)
    old = {"log": "c.0", "log_offset": 1, "device_date_time": LONG_AGO, "received_date_time": LONG_AGO}
    fill(tmp_path, {"readings": [old]})
    paths = TablePaths.of(tmp_path)
    end = table_end(paths, "readings")
    shore = Shore(at="tokyo", retention={"readings": dt.timedelta(days=30)})
    waits = "table readings is left alone: job quality has still to read rows of it"
    for behind, tables in ((True, []), (True, []), (False, ["readings"])):
        Storage(paths.checkpoints).delete("quality")
        write_table_checkpoint(paths, "quality", [replace(end, version=end.version - behind)], "{}")
        TableMaintenance(load("minimal"), shore, tmp_path, paths, ["quality"]).do("expire", Mock(), threading.Event())
        assert (deleted, read_maintenance(tmp_path)["expire"].waits) == (tables, (waits,) * behind)
    assert [record.getMessage() for record in caplog.records] == [f"expire: {waits}"]
