"""The status of shore's jobs. The run writes it to a file about once a second; ``fairlead shore status`` reads it.

``RunMonitor`` keeps the jobs and losses of one run; the metrics come from its snapshots.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import psutil

from fairlead.errors import UnavailableError
from fairlead.home import replace_file
from shore.paths import TablePaths
from shore.source.losses import LostLog, read_losses

Verb = Literal["compact", "vacuum", "expire"]
State = Literal["waiting", "running", "retrying", "done", "stopped", "failed", "gone"]
ALIVE: Final = ("waiting", "running", "retrying")
IN_TROUBLE: Final = ("failed", "gone", "retrying")
_SILENCE: Final = dt.timedelta(minutes=10)
"""How long a run that fills tables may leave the file alone; Kubernetes waits as long
(``compose/kubernetes/shore/shore.yaml``)."""
_ROUNDED: Final = 2.0  # seconds by which the time at which a process began may be wrong


class JobStatus(msgspec.Struct, frozen=True):
    """One job in this run, or in the last run when none is active.

    ``error`` is the last error, perhaps of an earlier run, and ``error_at`` its time; ``state`` says whether the error
    still stops the job. ``retrying``: the job has failed since ``failing_since`` and is restarted again and again.
    """

    job: str
    state: State
    batches: int = 0  # with data, in this run
    rows: int = 0  # read in this run
    rows_per_second: float | None = None  # of the last batch
    batch_seconds: float | None = None  # of the last batch
    logs: int | None = None  # number of logs that it reads; null for jobs that read tables
    behind: int | None = None  # records that are in no batch yet; null for jobs that read tables
    skipped: tuple[str, ...] = ()  # examples of logs that vanished, lost records or cannot be read
    unreadable: int = 0  # logs that exist and cannot be read
    vanished: int = 0  # logs that no longer exist
    lost: int = 0  # records that were deleted before they were read, since the query was started
    error: str | None = None
    error_at: dt.datetime | None = None
    failing_since: dt.datetime | None = None
    starts: int = 1  # of its query in this run
    state_rows: int | None = None  # rows in the query's state store; null for jobs without state
    state_bytes: int | None = None  # memory of the state store


class MaintenanceStatus(msgspec.Struct, frozen=True):
    """The last run of a verb: its time ``at``, how long it took, and its result.

    ``tables`` counts the tables that it changed; ``removed`` the files (compact, vacuum) or rows (expire) it removed.
    ``waits`` has a sentence for each table that it left alone because a job has still to read what it would delete.
    """

    at: dt.datetime
    tables: int = 0
    removed: int = 0
    seconds: float = 0.0
    error: str | None = None
    waits: tuple[str, ...] = ()


class ShoreStatus(msgspec.Struct, frozen=True):
    """The whole run, written at ``at`` by process ``pid`` of ``host``. ``error`` says why the run could not begin or
    has ended."""

    pid: int
    at: dt.datetime
    jobs: dict[str, JobStatus]
    error: str | None = None
    error_at: dt.datetime | None = None
    host: str = ""


def status_file(folder: Path) -> Path:
    return folder / "run" / "shore.json"


def write_status(folder: Path, jobs: Mapping[str, JobStatus], error: str | None = None) -> None:
    """Replace the status file atomically: a reader never sees half of it."""
    now = dt.datetime.now(dt.UTC)
    failed_at = now if error is not None else None
    status = ShoreStatus(os.getpid(), now, dict(jobs), error, failed_at, socket.gethostname())
    replace_file(status_file(folder), msgspec.json.encode(status))


def read_status(folder: Path) -> ShoreStatus | None:
    """Return the status of the current or last run; None when shore never ran here.

    A job that was running when its process died has state ``gone``.
    """
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        status = msgspec.json.decode(status_file(folder).read_bytes(), type=ShoreStatus)
        if _lives(status):
            return status
        jobs = {
            name: msgspec.structs.replace(job, state="gone") if job.state in ALIVE else job
            for name, job in status.jobs.items()
        }
        return msgspec.structs.replace(status, jobs=jobs)
    return None


def _lives(status: ShoreStatus) -> bool:
    if status.host not in ("", socket.gethostname()):  # another machine or container: its processes cannot be seen
        return dt.datetime.now(dt.UTC) - status.at < _SILENCE
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(status.pid).create_time() < status.at.timestamp() + _ROUNDED
    return False


LOOK_SECONDS: Final = 10.0


class RunMonitor:
    """The jobs of one run, and the losses that nobody has acknowledged.

    Args:
        on_loss: Called once for each loss that is noted after this object was made.
        maintenance: Returns the last maintenance of the tables, by verb.
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
        """Update jobs and losses. Without ``now``, losses are read at most every ``LOOK_SECONDS``, and a storage that
        does not answer is ignored, because the jobs report it.

        Raises:
            UnavailableError: the storage does not answer, and ``now`` is set.
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
        """The status of every job at the last ``refresh``."""
        return self._jobs

    def snapshot(self) -> dict[str, Any]:
        """Return the values for one scrape of the metrics."""
        with self._lock:
            return {
                "topology": self._topology,
                "jobs": dict(self._jobs),
                "losses": self._losses,
                "lags": dict(self.lags),
                "maintenance": self._maintenance(),
            }


def maintenance_file(folder: Path) -> Path:
    """Return the file in which a run records its maintenance of a state folder's tables."""
    return folder / "run" / "maintenance.json"


def read_maintenance(folder: Path) -> dict[Verb, MaintenanceStatus]:
    """Return the last maintenance of a state folder's tables by ``fairlead shore run``, by verb."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        content = maintenance_file(folder).read_bytes()
        return msgspec.json.decode(content, type=dict[Verb, MaintenanceStatus])
    return {}
