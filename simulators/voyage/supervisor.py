"""Restart workers that end, for voyages and for tests that kill them.

The supervisor gives up a worker that repeatedly ends right after its start, so that the error becomes visible, and a
worker that another command has stopped.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from fairlead.local.workers import Workers

EVERY = 0.2  # seconds between two checks
QUICK = 10.0  # seconds: a worker that ends sooner has failed
TRIES = 5  # failures in a row after which a worker is given up

log = logging.getLogger(__name__)


class WorkerEnd(NamedTuple):
    """A worker that ended by itself. ``code``: its exit code, or minus the signal's number; None if not known."""

    name: str
    code: int | None
    lived: float  # seconds

    @property
    def how(self) -> str:
        """How it ended: ``was killed by SIGKILL``, ``ended with exit code 1``."""
        if self.code is None:
            return "has ended"
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            return f"was killed by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was killed by signal {-self.code}"


@dataclass(slots=True)
class _Watched:
    arguments: tuple[str, ...]
    began: float
    failures: int = 0
    missing: bool = False  # it was not there at the last check, without an exit code


class Supervisor:
    """Starts workers, and restarts them from a thread when they end, while the context is open.

    Leaving the context stops its workers. To kill one on purpose, send a signal to its process: ``Workers.kill`` and
    ``Workers.stop`` mean that it should not run.

    Args:
        workers: Starts and stops the processes.
        tries: Failures in a row after which a worker is given up.
        on_end: Called from the thread for every worker that ended, before it is restarted.
    """

    def __init__(
        self, workers: Workers, *, tries: int = TRIES, on_end: Callable[[WorkerEnd], None] = lambda _: None
    ) -> None:
        self._workers = workers
        self._tries = tries
        self._on_end = on_end
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._failure: Exception | None = None
        self.ends: list[WorkerEnd] = []

    @property
    def names(self) -> Collection[str]:
        """The workers that are watched."""
        return self._watched.keys()

    def start(self, name: str, arguments: Sequence[str], *, ready: Callable[[], bool] | None = None) -> None:
        """Start and watch a worker, and wait until it is ``ready`` (see ``Workers.start``). A restart does not wait."""
        with self._lock:
            self._workers.start(name, arguments, ready=ready)
            self._watched[name] = _Watched(tuple(arguments), time.monotonic())

    def await_ready(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait until a worker that was started is ``ready``, as ``start`` does."""
        self.start(name, self._watched[name].arguments, ready=ready)

    def check(self) -> None:
        """Raise the error of a worker that was given up, if there is one."""
        if self._failure is not None:
            raise self._failure

    def restart_ended(self) -> None:
        """Restart ended workers, every ``EVERY`` seconds; raise ``UnavailableError`` for one that is given up."""
        with self._lock:
            running = {worker.name: worker for worker in self._workers.all()}
            for name, watched in self._watched.items():
                worker = running.get(name)
                if worker is None:
                    raise self._workers.failed(name, "was stopped by another command")
                if worker.running:
                    watched.missing = False
                    continue
                if worker.code is None and not watched.missing:
                    watched.missing = True  # another thread may be collecting its exit code now: check once more
                    continue
                watched.missing = False
                lived = time.monotonic() - watched.began
                end = WorkerEnd(name, worker.code, lived)
                self.ends.append(end)
                watched.failures = watched.failures + 1 if lived < QUICK else 0
                if watched.failures >= self._tries:
                    raise self._workers.failed(name, f"has ended {watched.failures} times in a row")
                log.warning("fairlead %s %s after %.1f s and is started again", name, end.how, lived)
                self._on_end(end)
                self._workers.start(name, watched.arguments)
                watched.began = time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._workers.stop(list(self._watched))

    def _run(self) -> None:
        while not self._stop.wait(EVERY):
            try:
                self.restart_ended()
            except Exception as error:
                self._failure = error
                return
