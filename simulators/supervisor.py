"""Workers that are started again when they end: for voyages that must go on, and for tests that kill them.

A worker that ends as soon as it is started, time and again, is given up: starting it once more would hide why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from fairlead.local.workers import Workers

EVERY = 0.2  # seconds between two looks
QUICK = 10.0  # seconds: a worker that lives no longer than this has failed
TRIES = 5  # failures in a row after which a worker is given up

log = logging.getLogger(__name__)


class End(NamedTuple):
    """A worker that ended without having been stopped. ``code``: negative is a signal, None is not known."""

    name: str
    code: int | None
    lived: float  # seconds


@dataclass(slots=True)
class _Watched:
    arguments: tuple[str, ...]
    began: float
    failures: int = 0
    gone: bool = False  # it was not there at the last look, and how it ended could not be told


class Supervisor:
    """Starts workers, and starts again those that end, from a thread of its own, while it is entered.

    Leaving it stops its workers. To kill one on purpose, send a signal to its process: ``Workers.kill`` and
    ``Workers.stop`` mean that it should not run.

    Args:
        workers: Where they are started.
        tries: Failures in a row after which a worker is given up.
    """

    def __init__(self, workers: Workers, *, tries: int = TRIES) -> None:
        self._workers = workers
        self._tries = tries
        self._watched: dict[str, _Watched] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._failure: Exception | None = None
        self.ends: list[End] = []

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Start a worker that is not to end; see ``Workers.start``. Whether it is ready is the caller's to find out."""
        with self._lock:
            self._workers.start(name, arguments)
            self._watched[name] = _Watched(tuple(arguments), time.monotonic())

    def check(self) -> None:
        """Raise why a worker was given up; nothing while all of them run, or are about to."""
        if self._failure is not None:
            raise self._failure

    def look(self) -> None:
        """Start again what has ended; the supervisor's thread does this all the time."""
        with self._lock:
            running = {worker.name: worker for worker in self._workers.all()}
            for name, watched in self._watched.items():
                worker = running.get(name)
                if worker is not None and worker.running:
                    watched.gone = False
                    continue
                if worker is not None and worker.code is None and not watched.gone:
                    watched.gone = True  # another thread may be learning it at this moment
                    continue
                watched.gone = False
                lived = time.monotonic() - watched.began
                self.ends.append(End(name, worker.code if worker else None, lived))
                watched.failures = watched.failures + 1 if lived < QUICK else 0
                if watched.failures >= self._tries:
                    raise self._workers.failed(name, f"has ended {watched.failures} times in a row")
                log.warning("fairlead %s has ended after %.1f s and is started again", name, lived)
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
                self.look()
            except Exception as error:
                self._failure = error
                return
