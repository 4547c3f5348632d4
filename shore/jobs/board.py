"""The state of all jobs of a run: in a file for ``shore status``, and told to whoever watches the call."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from shore.errors import JobFailedError
from shore.jobs.model import Job
from shore.jobs.progress import Running
from shore.status import ALIVE, JobStatus, read_status, write_status

_STATUS_SECONDS = 1.0


class Board:
    """Keeps ``jobs``. The last error of each job, and what jobs of earlier runs did, is taken over from the file."""

    def __init__(
        self, folder: Path, jobs: Sequence[Job], on_progress: Callable[[Mapping[str, JobStatus]], None] | None
    ) -> None:
        self._folder = folder
        self._on_progress = on_progress
        self._next = 0.0
        before = read_status(folder)
        known = before.jobs if before is not None else {}
        self.jobs = {job.name: _carried(JobStatus(job.name, "waiting"), known.get(job.name)) for job in jobs}
        self._others = {name: status for name, status in known.items() if name not in self.jobs}

    def look(self, running: Sequence[Running], *, now: bool = False) -> None:
        """Bring the state up to date; cheap enough to be called often."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _STATUS_SECONDS
        for one in running:
            self.jobs[one.job.name] = _carried(one.status(), self.jobs[one.job.name])
        self.show()

    def fail(self, error: BaseException) -> None:
        """The run ends with this error."""
        name = error.fields.get("job") if isinstance(error, JobFailedError) else None
        for job, status in self.jobs.items():
            if job == name:
                at = dt.datetime.now(dt.UTC)
                self.jobs[job] = msgspec.structs.replace(status, state="failed", error=str(error), error_at=at)
        told = isinstance(error, Exception) and name not in self.jobs  # Ctrl-C is no error
        self.finish("stopped", error=str(error) or type(error).__name__ if told else None)

    def finish(self, state: Literal["done", "stopped"], *, error: str | None = None) -> None:
        """No job runs any more."""
        for job, status in self.jobs.items():
            if status.state in ALIVE:
                self.jobs[job] = msgspec.structs.replace(status, state=state)
        self.show(error)

    def show(self, error: str | None = None) -> None:
        write_status(self._folder, self._others | self.jobs, error)
        if self._on_progress is not None:
            self._on_progress(self.jobs)


def _carried(status: JobStatus, before: JobStatus | None) -> JobStatus:
    """With the last error, if it has none of its own."""
    if status.error is not None or before is None:
        return status
    return msgspec.structs.replace(status, error=before.error, error_at=before.error_at)
