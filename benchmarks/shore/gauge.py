"""CPU and memory of what works for a Spark session: this process, its JVM, the JVM's Python workers, the brokers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self

import psutil

_SAMPLE_SECONDS: Final = 0.5
KINDS: Final = ("driver", "jvm", "workers", "brokers")


class Gauge:
    """While it is entered it samples; ``figures`` says what was used."""

    def __init__(self, brokers: Sequence[psutil.Process]) -> None:
        self._brokers = {broker.pid for broker in brokers}
        self._me = psutil.Process()
        self._first: dict[int, float] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._peak = dict.fromkeys(KINDS, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._first = {pid: cpu for pid, (_, cpu) in self._look().items()}
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def figures(self, rows: int) -> dict[str, Any]:
        """CPU seconds and microseconds a row, by kind of process; the largest sum of resident memory of each kind. Of
        workers, pages that several of them share count once."""
        used = dict.fromkeys(KINDS, 0.0)
        for pid, (kind, cpu) in self._last.items():
            used[kind] += cpu - self._first.get(pid, 0.0)
        return {
            "cpu_seconds": {kind: round(seconds, 2) for kind, seconds in used.items()},
            "cpu_us_per_row": {kind: round(seconds / rows * 1e6, 2) for kind, seconds in used.items()},
            "peak_rss_mb": {kind: round(size / 1e6) for kind, size in self._peak.items()},
        }

    def _run(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._look()

    def _look(self) -> dict[int, tuple[str, float]]:
        resident = dict.fromkeys(KINDS, 0)
        for kind, process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                # A worker's forks that have ended are counted where they were made.
                gone = times.children_user + times.children_system if kind == "workers" else 0.0
                self._last[process.pid] = kind, times.user + times.system + gone
                # Workers are forks: of what they share, each has its part.
                resident[kind] += process.memory_full_info().pss if kind == "workers" else process.memory_info().rss
        self._peak = {kind: max(size, resident[kind]) for kind, size in self._peak.items()}
        return self._last

    def _processes(self) -> Iterator[tuple[str, psutil.Process]]:
        yield "driver", self._me
        for pid in self._brokers:
            with contextlib.suppress(psutil.NoSuchProcess):
                yield "brokers", psutil.Process(pid)
        for child in self._me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.pid not in self._brokers:
                    yield ("jvm" if child.name() == "java" else "workers"), child
