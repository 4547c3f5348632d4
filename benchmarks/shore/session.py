"""One Spark session of a benchmark, as ``fairlead shore run`` starts it, and one run of job ``readings`` in it."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks._suite import Say
from benchmarks.edge.names import topology
from benchmarks.shore.gauge import Gauge
from benchmarks.shore.site import Site
from shore.datasource import register
from shore.jobs import readings
from shore.jobs.model import JobContext
from shore.places import Places
from shore.session import close, spark
from shore.session import settings as usual_settings
from shore.tables.readings import READINGS, READINGS_REJECTED

STUCK_SECONDS: Final = 900
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_FIRST_COMPILER_ONLY: Final = "-XX:TieredStopAtLevel=1"
_SETTINGS: Final = {
    "spark.sql.streaming.numRecentProgressUpdates": "500",
    "spark.sql.streaming.noDataProgressEventInterval": "0",  # every trigger is told, also one with nothing new
}


@dataclass(frozen=True, slots=True)
class Work:
    """A Spark session in a folder of its own."""

    folder: Path
    spark: SparkSession

    def places(self, name: str) -> Places:
        """Tables and checkpoints of their own."""
        return Places(str(self.folder / name))

    def query(self, site: Site, places: Places, max_records: int) -> DataStreamWriter:
        """Job ``readings``, with its checkpoint."""
        for table in (READINGS, READINGS_REJECTED):
            table.create(places.table(table.name))
        register(self.spark, site.endpoint)
        writer = readings.query(JobContext(topology(), site.endpoint, places, self.spark, max_records))
        return writer.option("checkpointLocation", places.checkpoint("readings"))


@contextlib.contextmanager
def session(settings: Mapping[str, str] | None = None, *, full_compiler: bool = False) -> Iterator[Work]:
    """A session that is closed, with its folder, in the end.

    Args:
        full_compiler: Java's second compiler works too: slow to start, faster in the end.
    """
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-", ignore_cleanup_errors=True) as name:
        extra = _SETTINGS | dict(settings or {})
        if full_compiler:
            extra[_JAVA_OPTIONS] = usual_settings(Path(name))[_JAVA_OPTIONS].replace(_FIRST_COMPILER_ONLY, "")
        started = spark(Path(name), extra=extra)
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


def drain(writer: DataStreamWriter, site: Site, places: Places, rows: int) -> Ran:
    """Run a query until it has read what is there.

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
    stored = DeltaTable(places.table(READINGS.name)).to_pyarrow_dataset().count_rows()
    if stored != rows:
        raise SystemExit(f"table readings has {stored:,} rows of {rows:,} readings")
    return Ran(seconds, [dict(one) for one in query.recentProgress if one["numInputRows"]], gauge)


def brief(figures: Mapping[str, Any], say: Say, name: str) -> None:
    """Say what fits into a line."""
    say(f"{name}: { ({key: value for key, value in figures.items() if key != 'trigger_ms'}) }")
