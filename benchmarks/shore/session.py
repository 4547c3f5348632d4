"""One Spark session of a benchmark, as ``fairlead shore run`` starts it, one run of job ``readings`` in it, and the CPU
and memory that both use.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.harbour import topology
from benchmarks.harness import Say
from benchmarks.shore.site import BenchmarkSite
from shore.datasource import register
from shore.delta.commit import create_tables
from shore.jobs import readings
from shore.jobs.model import JobContext
from shore.paths import TablePaths
from shore.session import close, spark
from shore.tables.readings import READINGS, READINGS_REJECTED

_SAMPLE_SECONDS: Final = 0.5
KINDS: Final = ("driver", "jvm", "workers", "brokers")


class Gauge:
    """Samples processes while it is entered; ``figures`` returns what they used."""

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


STUCK_SECONDS: Final = 900
_SETTINGS: Final = {
    "spark.sql.streaming.numRecentProgressUpdates": "500",
    "spark.sql.streaming.noDataProgressEventInterval": "0",  # every trigger is told, also one with nothing new
}


@dataclass(frozen=True, slots=True)
class Work:
    """A Spark session and its folder."""

    folder: Path
    spark: SparkSession

    def paths(self, name: str) -> TablePaths:
        """Tables and checkpoints of their own."""
        return TablePaths(str(self.folder / name))

    def query(self, site: BenchmarkSite, paths: TablePaths, max_records: int) -> DataStreamWriter:
        """Job ``readings``, with its checkpoint."""
        create_tables(self.spark, {paths.table(table.name): table for table in (READINGS, READINGS_REJECTED)})
        register(self.spark, site.endpoint)
        writer = readings.query(JobContext(topology(), site.endpoint, paths, self.spark, max_records))
        return writer.option("checkpointLocation", paths.checkpoint("readings"))


@contextlib.contextmanager
def session(settings: Mapping[str, str] | None = None, *, full_compiler: bool = False) -> Iterator[Work]:
    """A session that is closed, with its folder, in the end.

    Args:
        full_compiler: Java's second compiler works too, as in a run that goes on.
    """
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-", ignore_cleanup_errors=True) as name:
        started = spark(Path(name), extra=_SETTINGS | dict(settings or {}), lasting=full_compiler)
        try:
            yield Work(Path(name), started)
        finally:
            close(started)


@dataclass(frozen=True, slots=True)
class Ran:
    """One query from its start to its end; ``triggers`` are the progress of those that had rows."""

    seconds: float
    triggers: list[dict[str, Any]]
    gauge: Gauge

    def figures(self, rows: int) -> dict[str, Any]:
        """Rows per second of whole triggers, and what else is known."""
        taken = [one["durationMs"] for one in self.triggers]
        return {
            "rows": rows,
            "triggers": len(taken),
            "rows_per_second": round(rows / sum(each["triggerExecution"] for each in taken) * 1000),
            "rows_per_second_with_start": round(rows / self.seconds),
            "seconds": round(self.seconds, 2),
            **self.gauge.figures(rows),
            "trigger_ms": taken,
        }


def drain(writer: DataStreamWriter, site: BenchmarkSite, paths: TablePaths, rows: int) -> Ran:
    """Run a query until it has read everything.

    Raises:
        SystemExit: it does not end, or table ``readings`` does not have so many rows then.
    """
    with Gauge(site.brokers()) as gauge:
        began = time.perf_counter()
        query: StreamingQuery = writer.trigger(availableNow=True).start()
        ended = query.awaitTermination(STUCK_SECONDS)
        seconds = time.perf_counter() - began
    if not ended:
        query.stop()
        raise SystemExit(f"the query did not end within {STUCK_SECONDS} s")
    stored = DeltaTable(paths.table(READINGS.name)).to_pyarrow_dataset().count_rows()
    if stored != rows:
        raise SystemExit(f"table readings has {stored:,} rows of {rows:,} readings")
    return Ran(seconds, [dict(one) for one in query.recentProgress if one["numInputRows"]], gauge)


def brief(figures: Mapping[str, Any], say: Say, name: str) -> None:
    """Say what fits into a line."""
    say(f"{name}: { ({key: value for key, value in figures.items() if key != 'trigger_ms'}) }")
