"""Background workers of a topology: ``fairlead bridge`` and ``fairlead replicate`` as processes of their own.

A worker has the name of its command and site (``bridge.tokyo``), has its pid file and log in ``<state folder>/run``,
and outlives the terminal. Starting a worker that runs, or stopping one that does not, has no effect.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import UnavailableError
from fairlead.home import private_folder
from fairlead.local import processes
from fairlead.local.files import tail

_PREFIX = "worker."
_NAME = re.compile(r"[a-z][a-z0-9.-]*")
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that was started and not stopped. ``pid`` is None if it ended by itself; its log has the reason.

    ``code`` is its exit code (negative: the signal that ended it) if this process started it, else None.
    """

    name: str
    pid: int | None
    log: Path
    code: int | None = None

    @property
    def running(self) -> bool:
        return self.pid is not None


class Workers:
    """The workers of one state folder. Creating the object touches nothing. Workers run ``python -m <module>``."""

    def __init__(self, folder: Path, *, module: str = "fairlead.cli.app") -> None:
        self._run = folder / "run"
        self._module = module

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        ready: Callable[[], bool] | None = None,
        timeout: float = 60.0,
    ) -> Worker:
        """Start ``fairlead <arguments>`` in the background and wait until it is ready.

        Args:
            name: The command, and the site if the worker serves only one: ``bridge.tokyo``.
            ready: Whether the worker is ready, for example because its status file exists; None: once it runs.
            timeout: Seconds until ``ready`` must be true.

        Raises:
            UnavailableError: it ended, or was not ready in time and was stopped; with the last lines of its log.
            ValueError: ``name`` cannot name a worker.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name a worker")
        pid_file, log = self._pid_file(name), self._log(name)
        process = processes.find(pid_file)
        if process is None:
            command = [sys.executable, "-m", self._module, *arguments]
            private_folder(self._run)
            process = processes.start(pid_file, command, cwd=self._run, log=log, marker=self._module)
        end = time.monotonic() + timeout
        while ready is not None and not ready():
            if processes.find(pid_file) is None:
                raise self.failed(name, "ended while starting")
            if time.monotonic() > end:
                self.stop([name])
                raise self.failed(name, f"was not ready after {timeout:.0f} s and was stopped")
            time.sleep(_PAUSE)
        return Worker(name, process.pid, log)

    def stop(self, names: Collection[str] | None = None, *, grace: float = 20.0) -> None:
        """Stop workers (None: all): SIGTERM, and SIGKILL after ``grace`` seconds."""
        chosen = self.names() if names is None else names
        processes.stop([self._pid_file(name) for name in chosen], grace=grace, forget_first=True)

    def kill(self, name: str) -> None:
        """Send SIGKILL to one worker, for fault tests."""
        processes.kill(self._pid_file(name))

    def names(self) -> list[str]:
        """Return the names of all workers that were started and not stopped."""
        return sorted(file.name[len(_PREFIX) : -len(".pid")] for file in self._run.glob(f"{_PREFIX}*.pid"))

    def of_site(self, site: str) -> list[str]:
        """Return the names of the workers that serve this site alone."""
        return [name for name in self.names() if name.partition(".")[2] == site]

    def all(self) -> list[Worker]:
        """Return the status of every worker that was started and not stopped."""
        return [self._worker(name) for name in self.names()]

    def check(self, commands: Collection[str], *, but: Collection[str] = ()) -> None:
        """Raise ``UnavailableError``, with the last lines of its log, if a worker of these commands not named in
        ``but`` has ended."""
        for worker in self.all():
            if not worker.running and worker.name.partition(".")[0] in commands and worker.name not in but:
                raise self.failed(worker.name, "has ended")

    def _worker(self, name: str) -> Worker:
        process = processes.find(self._pid_file(name))
        if process is not None:
            return Worker(name, process.pid, self._log(name))
        return Worker(name, None, self._log(name), processes.exit_code(self._pid_file(name)))

    def failed(self, name: str, how: str) -> UnavailableError:
        """Return the error for a failed worker, with the last lines of its log."""
        log = self._log(name)
        words = tail(log, 5) or "it wrote nothing"
        return UnavailableError(f"fairlead {name} {how}: {words}", hint=f"its log is {log}", worker=name, log=str(log))

    def _pid_file(self, name: str) -> Path:
        return self._run / f"{_PREFIX}{name}.pid"

    def _log(self, name: str) -> Path:
        return self._run / f"{name}.log"
