"""Part ``ingest``: readings of very many logs into tables ``readings`` and ``readings_rejected``.

The same readings are read several times within one Spark session, each time into tables of their own, by job
``readings`` as ``fairlead shore run`` starts it: the first time Spark is cold, the best of the others counts. Rows per
second are those of whole triggers, from asking where the logs end to the commit in the checkpoint; with the start of
the query it is ``rows_per_second_with_start``. All rows are counted afterwards. Two further sessions with other
admission limits show what memory depends on.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.edge.names import topology
from benchmarks.shore.gauge import Gauge
from benchmarks.shore.parts import Say
from benchmarks.shore.site import SIZES, Site, fresh
from shore.jobs import readings
from shore.jobs.model import JobContext
from shore.places import Places
from shore.session import close, spark
from shore.source import register
from shore.tables.readings import READINGS, READINGS_REJECTED

HEADLINES: Final[tuple[str, ...]] = ("idle_trigger_seconds",)
TARGET: Final = {"rows_per_second": 100_000, "idle_trigger_seconds": 1.0}
LIMITS: Final = (100_000, 500_000)
IDLE_TRIGGERS: Final = 8
STUCK_SECONDS: Final = 900
_SETTINGS: Final = {
    "spark.sql.streaming.numRecentProgressUpdates": "500",
    "spark.sql.streaming.noDataProgressEventInterval": "0",  # every trigger is told, also one with nothing new
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--readings", type=int, default=1_000_000, help="of all logs together")
    parser.add_argument("--rounds", type=int, default=4, help="how often they are read")
    parser.add_argument("--max-records", type=int, default=500_000, help="in one trigger")


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    found: dict[str, Any] = {"logs": options.logs, "max_records": options.max_records, "target": TARGET}
    with fresh(options.logs) as site:
        numbers = site.open_logs(options.logs, say)
        each = max(1, options.readings // options.logs)
        found["readings"] = each * options.logs
        found["batches"] = site.append(numbers, each, say)
        found["records_in_a_batch"] = list(SIZES)
        with session() as work:
            found["rounds"] = rounds = [
                ingest(work, site, f"round {nth}", found["readings"], options.max_records, say)
                for nth in range(1, options.rounds + 1)
            ]
            found["rows_per_second"] = max(each["rows_per_second"] for each in rounds[1:] or rounds)
            found |= idle(work, site, f"round {options.rounds}", say)
        found["memory"] = []
        for limit in LIMITS:
            with session() as work:
                used = ingest(work, site, "memory", found["readings"], limit, say)
            found["memory"].append({"max_records": limit} | {name: used[name] for name in used if "rss" in name})
    return found


class Work:
    """A Spark session in a folder of its own, and what it uses."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder = folder
        self.spark = session

    def places(self, name: str) -> Places:
        """Tables and checkpoints of their own."""
        return Places(str(self.folder / name))

    def context(self, site: Site, places: Places, max_records: int) -> JobContext:
        return JobContext(topology(), site.endpoint, places, self.spark, max_records)


class session:
    """A session that is closed, with its folder, in the end."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = _SETTINGS | dict(settings or {})

    def __enter__(self) -> Work:
        self._folder = Path(tempfile.mkdtemp(prefix="fairlead-bench-"))
        return Work(self._folder, spark(self._folder, extra=self._settings))

    def __exit__(self, *_: object) -> None:
        active = SparkSession.getActiveSession()
        if active is not None:
            close(active)
        shutil.rmtree(self._folder, ignore_errors=True)


def ingest(work: Work, site: Site, name: str, rows: int, max_records: int, say: Say) -> dict[str, Any]:
    """Read everything into new tables; what that took.

    Raises:
        SystemExit: the tables do not have every reading once.
    """
    places = work.places(name)
    for table in (READINGS, READINGS_REJECTED):
        table.create(places.table(table.name))
    register(work.spark, site.endpoint)
    with Gauge(site.brokers()) as gauge:
        began = time.perf_counter()
        writer = readings.query(work.context(site, places, max_records))
        query = writer.option("checkpointLocation", places.checkpoint("readings")).trigger(availableNow=True).start()
        query.awaitTermination(STUCK_SECONDS)
        seconds = time.perf_counter() - began
    triggers = [one for one in query.recentProgress if one["numInputRows"]]
    query.stop()
    stored = DeltaTable(places.table(READINGS.name)).to_pyarrow_dataset().count_rows()
    if stored != rows:
        raise SystemExit(f"table readings has {stored:,} rows of {rows:,} readings")
    in_triggers = sum(one["durationMs"]["triggerExecution"] for one in triggers) / 1000
    found = {
        "rows": rows,
        "triggers": len(triggers),
        "rows_per_second": round(rows / in_triggers),
        "rows_per_second_with_start": round(rows / seconds),
        "seconds": round(seconds, 2),
        "trigger_ms": [one["durationMs"] for one in triggers],
        **gauge.figures(rows),
    }
    say(f"{name}: { ({key: value for key, value in found.items() if key != 'trigger_ms'}) }")
    return found


def idle(work: Work, site: Site, name: str, say: Say) -> dict[str, Any]:
    """Triggers of a running query that has read everything."""
    writer = readings.query(work.context(site, work.places(name), LIMITS[0]))
    writer = writer.option("checkpointLocation", work.places(name).checkpoint("readings"))
    query = writer.trigger(processingTime="100 milliseconds").start()
    until = time.monotonic() + 120
    while len(query.recentProgress) < IDLE_TRIGGERS and query.isActive and time.monotonic() < until:
        time.sleep(0.1)
    taken = [one["durationMs"]["triggerExecution"] / 1000 for one in query.recentProgress]
    query.stop()
    if len(taken) < IDLE_TRIGGERS:
        raise SystemExit(f"there were only {len(taken)} triggers with nothing new: {query.exception()}")
    warm = sorted(taken[2:])
    say(f"idle triggers: {taken}")
    return {"idle_trigger_seconds": round(warm[len(warm) // 2], 3), "idle_triggers": taken}
