"""Part ``feeds``: how long after a reading is in its log at headquarters it is in its customer's feed, steadily.

A site with one log per box; each box is booked for one of many customers. Jobs ``readings``, ``operations`` and
``feeds`` run continuously as ``fairlead shore run`` has them, with the pauses given (the product's own where none are).
Readings are appended at an even rate; a consumer follows all feeds. The time of a reading is from the answer that it is
stored in its log until the consumer has it from the feed. Readings of the first part of a run, while Spark is cold, do
not count.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

import shore
from benchmarks.harbour import SITE, log_of, topology
from benchmarks.harness import Say
from benchmarks.shore.site import BenchmarkSite, fresh, reading
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import Tail
from fairlead.kafka.convention import marker_record
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode, headers
from fairlead.records.booking import Booking
from shore.jobs.runner import JOBS as JOBS_OF_SHORE
from topologies.model import DEFAULT_STREAMS, Customer, Shore, Topology

JOBS: Final = ("readings", "operations", "feeds")
TARGET_SECONDS: Final = 5.0
_BOOKINGS: Final = f"bookings.{SITE}"
_PATIENCE: Final = 180.0  # seconds until the first reading is in the feed: Spark starts
_POLL: Final = 0.05
_FIRST: Final = ("operations", next(job.name for job in JOBS_OF_SHORE.values() if "bookings" in job.tables))
"""The jobs that make ``bookings``, once, before the readings begin."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--feed-customers", type=int, default=200)
    parser.add_argument("--feed-boxes", type=int, default=2_000)
    parser.add_argument("--feed-rate", type=float, default=100.0, help="readings a second, of all boxes together")
    parser.add_argument("--feed-seconds", type=float, default=180.0, help="of readings that count")
    parser.add_argument("--feed-cold", type=float, default=30.0, help="seconds of readings before, that do not count")
    parser.add_argument("--feed-intervals", default="", help="pauses of readings and feeds, in Spark's words")


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """p50, p95 and the longest time, in seconds; and what shore and its JVM use of a core meanwhile."""
    pauses = [text.strip() for text in options.feed_intervals.split(",") if text.strip()]
    intervals = dict(zip(("readings", "feeds"), pauses * (1 if len(pauses) > 1 else 2), strict=False))
    with fresh(options.feed_boxes) as site, tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        numbers = site.open_logs(options.feed_boxes, say)
        customers = [f"customer-{number:03d}" for number in range(options.feed_customers)]
        owners = {number: customers[index % len(customers)] for index, number in enumerate(numbers)}
        asyncio.run(_book(site, owners))
        shore.run(_topology(customers), site.endpoint, Path(folder), _FIRST, once=True)
        say("bookings are known")
        stop, found = threading.Event(), dict[str, Any]()

        def work() -> None:
            try:
                found.update(asyncio.run(_sail(site, owners, options, say)))
            finally:
                stop.set()

        worker = threading.Thread(target=work)
        worker.start()
        shore.run(_topology(customers), site.endpoint, Path(folder), JOBS, intervals=intervals, stop=stop)
        worker.join()
    size = {"customers": options.feed_customers, "boxes": options.feed_boxes, "rate": options.feed_rate}
    return {"intervals": intervals or "the product's", **size, **found}


def figures(taken: Sequence[float]) -> dict[str, float]:
    """p50, p95 and the longest of times in seconds."""
    cuts = statistics.quantiles(taken, n=100)
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2), "max": round(max(taken), 2)}


def _topology(customers: Sequence[str]) -> Topology:
    small = topology()
    return small.model_copy(
        update={
            "streams": DEFAULT_STREAMS | small.streams,
            "customers": {name: Customer(feed_at=SITE) for name in customers},
            "shore": Shore(at=SITE),
        }
    )


async def _book(site: BenchmarkSite, owners: Mapping[str, str]) -> None:
    """A booking for each box, for all time."""
    async with await Cluster.open(site.endpoint, client_id="bench") as cluster:
        await asyncio.to_thread(create_logs, site.endpoint, {_BOOKINGS: {}})
        await cluster.wait_writable([_BOOKINGS])
        appender = Appender(cluster)
        await appender.ensure_open(TP(_BOOKINGS), marker_record(b"opened for the benchmark", timestamp_ms=0))
        bookings = [
            Booking(
                booking_reference=f"B{index}",
                customer=customer,
                equipment_reference=number,
                valid_from=dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
            )
            for index, (number, customer) in enumerate(owners.items())
        ]
        await appender.append(TP(_BOOKINGS), [NewRecord(encode(each), timestamp_ms=0) for each in bookings])
        await appender.close()


async def _sail(
    site: BenchmarkSite, owners: Mapping[str, str], options: argparse.Namespace, say: Say
) -> dict[str, Any]:
    """Append and follow at once; the times of what counts."""
    stored: dict[str, float] = {}
    arrived: dict[str, float] = {}
    numbers = list(owners)
    follower = asyncio.create_task(_follow(site, sorted(set(owners.values())), arrived))
    async with await Cluster.open(site.endpoint, client_id="bench-writer") as cluster:
        appender = Appender(cluster)
        first = await _append(appender, numbers[0], 1, stored)
        await _until(lambda: first in arrived, _PATIENCE)
        say(f"the first reading took {arrived[first] - stored[first]:.1f} s")
        begin, count = time.monotonic(), int(options.feed_rate * (options.feed_cold + options.feed_seconds))
        used = _cpu_seconds()
        async with asyncio.TaskGroup() as appends:
            for index in range(count):
                await asyncio.sleep(max(0.0, begin + index / options.feed_rate - time.monotonic()))
                sequence, box = divmod(index, len(numbers))
                appends.create_task(_append(appender, numbers[box], 2 + sequence, stored))
        seconds, used = time.monotonic() - begin, _cpu_seconds() - used
        await appender.close()
    await _until(lambda: stored.keys() <= arrived.keys(), _PATIENCE)
    follower.cancel()
    counted = [name for name, at in stored.items() if at >= begin + options.feed_cold]
    taken = [arrived[name] - stored[name] for name in counted]
    times = figures(taken)
    return {
        "readings": len(taken),
        "seconds": times,
        "seconds_to_the_feed": times["p50"],
        "target": {"seconds_to_the_feed": TARGET_SECONDS},
        "cores_used": round(used / seconds, 2),
    }


def _cpu_seconds() -> float:
    """What this process, Spark's JVM and its Python workers have used."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


async def _append(appender: Appender, number: str, sequence: int, stored: dict[str, float]) -> str:
    done = await appender.append(TP(log_of(number)), [reading(number, sequence)])
    name = f"{log_of(number)}@{done.base_offset}"
    stored[name] = time.monotonic()
    return name


async def _follow(site: BenchmarkSite, customers: Sequence[str], arrived: dict[str, float]) -> None:
    """Note when each record of the feeds is there, by its origin."""
    async with await Cluster.open(site.endpoint, client_id="bench-reader") as cluster:
        logs = {TP(f"feeds.{customer}"): 0 for customer in customers}
        async for _, records in Tail(cluster, logs, max_wait_ms=50):
            now = time.monotonic()
            for record in records:
                origin: Mapping[str, bytes | None] = dict(record.headers)
                if (value := origin.get(headers.ORIGIN)) is not None:
                    arrived.setdefault(value.decode(), now)


async def _until(condition: Any, patience: float) -> None:
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"not in the feed within {patience:.0f} s")
        await asyncio.sleep(_POLL)
