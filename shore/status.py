"""What shore's jobs are doing: written by the run about once a second, read by ``fairlead shore status``."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
import psutil

State = Literal["waiting", "running", "done", "stopped", "failed", "gone"]


class JobStatus(msgspec.Struct, frozen=True):
    """One job in this run (or the last one, when none is on)."""

    job: str
    state: State
    batches: int = 0  # with data, in this run
    rows: int = 0  # read in this run
    rows_per_second: float | None = None  # of the last batch
    batch_seconds: float | None = None  # of the last batch
    logs: int | None = None  # that it reads; null for jobs that read tables
    behind: int | None = None  # records not yet taken into a batch
    skipped: tuple[str, ...] = ()  # examples of logs that vanished or cannot be read
    error: str | None = None


class ShoreStatus(msgspec.Struct, frozen=True):
    """The whole run. ``pid`` is the process that wrote it, ``at`` when."""

    pid: int
    at: dt.datetime
    jobs: dict[str, JobStatus]


def status_file(folder: Path) -> Path:
    return folder / "run" / "shore.json"


def write_status(folder: Path, jobs: Mapping[str, JobStatus]) -> None:
    """Replace the status file in one step, so that a reader never sees half of it."""
    file = status_file(folder)
    status = ShoreStatus(os.getpid(), dt.datetime.now(dt.UTC), dict(jobs))
    fresh = file.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(status))
    fresh.replace(file)


def read_status(folder: Path) -> ShoreStatus | None:
    """The state of the present or last run; None when shore never ran here.

    A job that was running when its process died is ``gone``.
    """
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        status = msgspec.json.decode(status_file(folder).read_bytes(), type=ShoreStatus)
        if psutil.pid_exists(status.pid):
            return status
        jobs = {
            name: msgspec.structs.replace(job, state="gone") if job.state in ("running", "waiting") else job
            for name, job in status.jobs.items()
        }
        return msgspec.structs.replace(status, jobs=jobs)
    return None
