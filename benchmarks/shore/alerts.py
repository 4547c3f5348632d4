"""Part ``alerts``: job ``alerts`` at very many containers, each of which reports every five minutes.

From a broker, as ``fairlead shore run`` starts it, with ``WANTED`` times as many readings a second as the containers
send. ``catch_up``: several readings of each that are there already. ``round``: one of each at once, so that everything
that is remembered is read and written for one reading each. ``paced``: readings come at that rate, the job has its
usual trigger; it keeps up when no batch takes longer than the trigger and nothing is left in the end. ``restart``: a
new Spark session with the state of the first; the time until the first batch is done, without Spark's own start.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.harbour import topology
from benchmarks.harness import Say
from benchmarks.shore.session import STUCK_SECONDS, Gauge, Work, session
from benchmarks.shore.site import BenchmarkSite, fresh
from shore.datasource import register
from shore.delta.commit import create_tables
from shore.errors import SlowWorkerError
from shore.jobs import alerts
from shore.jobs.model import JobContext
from shore.jobs.query import job_failure
from shore.jobs.runner import MAX_STARTS
from shore.paths import TablePaths
from shore.tables import TABLES

INTERVAL_SECONDS: Final = 300
WANTED: Final = 10
TRIGGER_SECONDS: Final = 10
RESTORE_SECONDS: Final = 30
_CHUNK: Final = 500  # logs in one append


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--containers", type=int, default=20_000, help="that are watched by job alerts")
    parser.add_argument("--backlog", type=int, default=14, help="readings of each container that job alerts catches up")
    parser.add_argument("--paced-seconds", type=int, default=120, help="how long readings come at the wanted rate")


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    rate = WANTED * options.containers / INTERVAL_SECONDS
    found: dict[str, Any] = {
        "containers": options.containers,
        "target": {"readings_per_second": round(rate), "restore_seconds": RESTORE_SECONDS},
    }
    with fresh(options.containers) as site, tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        numbers = site.open_logs(options.containers, say)
        site.append(numbers, options.backlog, say)
        bench = _Bench(site, TablePaths(folder))
        with session() as work:
            found["catch_up"] = bench.drain(work, len(numbers) * options.backlog)
            say(f"catching up: {found['catch_up']}")
            site.append(numbers, 1, say)
            found["round"] = bench.drain(work, len(numbers))
            say(f"one reading of each: {found['round']}")
            found["paced"] = bench.paced(work, numbers, rate, options.paced_seconds, say)
            say(f"paced: {found['paced']}")
        site.append(numbers[:_CHUNK], 1, say)
        with session() as work:
            found["restart"] = bench.drain(work, min(_CHUNK, len(numbers)))
            say(f"after a restart: {found['restart']}")
    found["readings_per_second"] = min(found["catch_up"]["readings_per_second"], found["round"]["readings_per_second"])
    found["restore_seconds"] = found["restart"]["seconds"]
    found["keeps_up"] = found["paced"]["keeps_up"]
    return found


class _Bench:
    """One job's tables and checkpoint, over several Spark sessions."""

    def __init__(self, site: BenchmarkSite, paths: TablePaths) -> None:
        self._site, self._places = site, paths

    @contextlib.contextmanager
    def _query(self, work: Work, **trigger: Any) -> Iterator[StreamingQuery]:
        register(work.spark, self._site.endpoint)
        needed = ("alerts_ashore", "containers_now")
        create_tables(work.spark, {self._places.table(name): TABLES[name] for name in needed})
        context = JobContext(topology(), self._site.endpoint, self._places, work.spark, alerts.MAX_RECORDS)
        writer = alerts.query(context).option("checkpointLocation", self._places.checkpoint("alerts"))
        query = writer.trigger(**trigger).start()
        try:
            yield query
        except PySparkException as error:  # cannot leave this process as it is
            raise job_failure("alerts", str(error)) from None
        finally:
            query.stop()

    def drain(self, work: Work, readings: int) -> dict[str, Any]:
        """Read everything; try again where a busy machine was too slow to start Spark's workers."""
        for _ in range(MAX_STARTS - 1):
            with contextlib.suppress(SlowWorkerError):
                return self._drain(work, readings)
        return self._drain(work, readings)

    def _drain(self, work: Work, readings: int) -> dict[str, Any]:
        """From starting the query to its end.

        Raises:
            SystemExit: it does not end, or has read another number of readings.
        """
        with Gauge(self._site.brokers()) as gauge:
            began = time.perf_counter()
            with self._query(work, availableNow=True) as query:
                if not query.awaitTermination(STUCK_SECONDS):
                    raise SystemExit(f"the query did not end within {STUCK_SECONDS} s")
                seconds = time.perf_counter() - began
                batches = [dict(one) for one in query.recentProgress]
        if (rows := sum(one["numInputRows"] for one in batches)) != readings:
            raise SystemExit(f"the job has read {rows:,} of {readings:,} readings")
        working = sum(one["durationMs"]["triggerExecution"] for one in batches)
        return {
            "readings": rows,
            "seconds": round(seconds, 2),
            "readings_per_second": round(rows / working * 1000),
            **_batches(batches),
            **gauge.figures(rows),
        }

    def paced(self, work: Work, numbers: Sequence[str], rate: float, seconds: int, say: Say) -> dict[str, Any]:
        """Readings at a rate, one box after the other, while the job runs with its usual trigger."""
        sent, total = 0, round(rate * seconds)
        with (
            Gauge(self._site.brokers()) as gauge,
            self._query(work, processingTime=f"{TRIGGER_SECONDS} seconds") as query,
        ):
            began = time.perf_counter()
            while sent < total and query.isActive:
                first = sent % len(numbers)
                chunk = numbers[first : first + min(_CHUNK, total - sent)]
                self._site.append(chunk, 1, lambda text: None)
                sent += len(chunk)
                time.sleep(max(0.0, began + sent / rate - time.perf_counter()))
            took = time.perf_counter() - began
            until = time.monotonic() + STUCK_SECONDS
            while _rows(query) < sent and query.isActive and time.monotonic() < until:
                time.sleep(0.1)
            left = time.perf_counter() - began - took
            batches = [dict(one) for one in query.recentProgress]
        if (rows := sum(one["numInputRows"] for one in batches)) != sent:
            raise SystemExit(f"the job has read {rows:,} of {sent:,} readings: {query.exception()}")
        warm = batches[1:] or batches  # the first starts workers
        longest = max(one["durationMs"]["triggerExecution"] for one in warm) / 1000
        return {
            "readings": sent,
            "readings_per_second": round(sent / took),
            "seconds_until_all_was_read": round(left, 1),
            "longest_batch_seconds": round(longest, 2),
            "keeps_up": longest <= TRIGGER_SECONDS and sent / took >= 0.98 * rate and left <= 2 * TRIGGER_SECONDS,
            **_batches(batches),
            **gauge.figures(sent),
        }


def _rows(query: StreamingQuery) -> int:
    return sum(int(one["numInputRows"]) for one in query.recentProgress)


def _batches(batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    states = [one["stateOperators"][0] for one in batches if one["stateOperators"]]
    return {
        "batches": [
            {"rows": one["numInputRows"], "seconds": one["durationMs"]["triggerExecution"] / 1000} for one in batches
        ],
        "state_mb": round(max((each["memoryUsedBytes"] for each in states), default=0) / 1e6, 1),
        "state_load_ms": max((each["customMetrics"].get("rocksdbLoadLatencyMs", 0) for each in states), default=0),
    }
