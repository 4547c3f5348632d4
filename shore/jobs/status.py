"""What shore's jobs are doing: written by the run about once a second, read by ``fairlead shore status``.

``RunMonitor`` knows one run's jobs and losses; metrics are made of its snapshots.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import psutil

from fairlead.errors import UnavailableError
from shore.paths import TablePaths
from shore.source.losses import LostLog, read_losses

Verb = Literal["compact", "vacuum", "expire"]
State = Literal["waiting", "running", "retrying", "done", "stopped", "failed", "gone"]
ALIVE: Final = ("waiting", "running", "retrying")
IN_TROUBLE: Final = ("failed", "gone", "retrying")


class JobStatus(msgspec.Struct, frozen=True):
    """One job in this run (or the last one, when none is on).

    ``error`` is the last one, also of an earlier run, and ``error_at`` its time; ``state`` says whether it stands in
    the way now. ``retrying``: it could not go on (since ``failing_since``) and is started again and again.
    """

    job: str
    state: State
    batches: int = 0  # with data, in this run
    rows: int = 0  # read in this run
    rows_per_second: float | None = None  # of the last batch
    batch_seconds: float | None = None  # of the last batch
    logs: int | None = None  # that it reads; null for jobs that read tables
    behind: int | None = None  # records not yet taken into a batch
    skipped: tuple[str, ...] = ()  # examples of logs that vanished, lost records or cannot be read
    unreadable: int = 0  # logs that are there and cannot be read
    vanished: int = 0  # logs that are no more there
    lost: int = 0  # records that were deleted before they were read, since the query was started
    error: str | None = None
    error_at: dt.datetime | None = None
    failing_since: dt.datetime | None = None
    starts: int = 1  # of its query in this run
    state_rows: int | None = None  # rows of state that the query keeps; null for jobs without any
    state_bytes: int | None = None  # memory they take


class MaintenanceStatus(msgspec.Struct, frozen=True):
    """When a verb was last carried out, and what came of it.

    ``tables`` is how many tables it changed; ``removed`` how many files (compact, vacuum) or rows (expire) are gone.
    """

    at: dt.datetime
    tables: int = 0
    removed: int = 0
    seconds: float = 0.0
    error: str | None = None


class ShoreStatus(msgspec.Struct, frozen=True):
    """The whole run. ``pid`` is the process that wrote it, ``at`` when; ``error`` why it could not begin, or ended."""

    pid: int
    at: dt.datetime
    jobs: dict[str, JobStatus]
    error: str | None = None
    error_at: dt.datetime | None = None


def status_file(folder: Path) -> Path:
    return folder / "run" / "shore.json"


def write_status(folder: Path, jobs: Mapping[str, JobStatus], error: str | None = None) -> None:
    """Replace the status file in one step, so that a reader never sees half of it."""
    file = status_file(folder)
    now = dt.datetime.now(dt.UTC)
    status = ShoreStatus(os.getpid(), now, dict(jobs), error, now if error is not None else None)
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
            name: msgspec.structs.replace(job, state="gone") if job.state in ALIVE else job
            for name, job in status.jobs.items()
        }
        return msgspec.structs.replace(status, jobs=jobs)
    return None


LOOK_SECONDS: Final = 10.0


class RunMonitor:
    """What is known of one run: the jobs, and losses that nobody has acknowledged.

    Args:
        on_loss: Told each loss that is noted after this object was made, once.
        maintenance: Asked when the tables were last looked after, by verb.
    """

    def __init__(
        self,
        topology: str,
        paths: TablePaths,
        on_loss: Callable[[LostLog], None],
        maintenance: Callable[[], Mapping[Any, Any]] = dict,
    ) -> None:
        self._maintenance = maintenance
        self.lags: Mapping[str, Any] = {}  # ``shore.lag.Lag`` by job, as last measured
        self._topology, self._paths, self._on_loss = topology, paths, on_loss
        self._jobs: Mapping[str, JobStatus] = {}
        self._lock = threading.Lock()
        self._losses = read_losses(paths)
        self._known = set(self._losses)
        self._next = 0.0
        self.lost = False

    def refresh(self, jobs: Mapping[str, JobStatus] | None = None, *, now: bool = True) -> None:
        """Bring it up to date; without ``now`` the notes of losses are read at most every ``LOOK_SECONDS``, and later
        where the storage does not answer: the jobs say so.

        Raises:
            UnavailableError: the storage does not answer, and ``now``.
        """
        with self._lock:
            self._jobs = jobs if jobs is not None else self._jobs
            if not now and time.monotonic() < self._next:
                return
            self._next = time.monotonic() + LOOK_SECONDS
            try:
                self._losses = read_losses(self._paths)
            except UnavailableError:
                if now:
                    raise
                return
            new = [each for each in self._losses if each not in self._known]
            self._known.update(new)
            self.lost = self.lost or bool(new)
        for each in new:
            self._on_loss(each)

    @property
    def jobs(self) -> Mapping[str, JobStatus]:
        """The state of every job, as last told."""
        return self._jobs

    def snapshot(self) -> dict[str, Any]:
        """What a scrape is told."""
        with self._lock:
            return {
                "topology": self._topology,
                "jobs": dict(self._jobs),
                "losses": self._losses,
                "lags": dict(self.lags),
                "maintenance": self._maintenance(),
            }


def maintenance_file(folder: Path) -> Path:
    """Where a run notes what it has done to the tables of a state folder."""
    return folder / "run" / "maintenance.json"


def read_maintenance(folder: Path) -> dict[Verb, MaintenanceStatus]:
    """What ``fairlead shore run`` last did to the tables of a state folder, by verb."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        content = maintenance_file(folder).read_bytes()
        return msgspec.json.decode(content, type=dict[Verb, MaintenanceStatus])
    return {}
