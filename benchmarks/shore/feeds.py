"""Part ``feeds``: how long after a reading is in its log at headquarters it is in the customer's feed, steadily.

A site with one log per box and a booking for each; jobs ``readings``, ``operations`` and ``feeds`` run continuously as
``fairlead shore run`` has them, with the pauses given (the product's own where none are). Readings are appended one
after the other at an even rate; a consumer follows the feed. The time of a reading is from the answer that it is stored
in its log until the consumer has it from the feed. Readings of the first part of a run, while Spark is cold, do not
count.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import shore
from benchmarks.harbour import SITE, log_of, topology
from benchmarks.harness import Say
from benchmarks.shore.site import Site, fresh, reading
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import marker_record
from fairlead.kafka.protocol.errors import BrokerError
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode, headers
from fairlead.records.booking import Booking
from topologies.model import DEFAULT_STREAMS, Customer, Shore, Topology

CUSTOMER: Final = "ducks"
JOBS: Final = ("readings", "operations", "feeds")
TARGET_SECONDS: Final = 5.0
_BOOKINGS: Final = f"bookings.{SITE}"
_PATIENCE: Final = 180.0  # seconds until the first reading is in the feed: Spark starts
_POLL: Final = 0.05


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--feed-boxes", type=int, default=50)
    parser.add_argument("--feed-rate", type=float, default=5.0, help="readings a second, of all boxes together")
    parser.add_argument("--feed-seconds", type=float, default=180.0, help="of readings that count")
    parser.add_argument("--feed-cold", type=float, default=30.0, help="seconds of readings before, that do not count")
    parser.add_argument("--feed-intervals", default="", help="pauses of readings and feeds, in Spark's words")


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """p50, p95 and the longest time, in seconds."""
    pauses = [text.strip() for text in options.feed_intervals.split(",") if text.strip()]
    intervals = dict(zip(("readings", "feeds"), pauses * (1 if len(pauses) > 1 else 2), strict=False))
    with fresh(options.feed_boxes) as site, tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder:
        numbers = site.open_logs(options.feed_boxes, say)
        asyncio.run(_book(site, numbers))
        stop, found = threading.Event(), dict[str, Any]()

        def work() -> None:
            try:
                found.update(asyncio.run(_sail(site, numbers, options, say)))
            finally:
                stop.set()

        worker = threading.Thread(target=work)
        worker.start()
        shore.run(_topology(), site.endpoint, Path(folder), JOBS, intervals=intervals, stop=stop)
        worker.join()
    return {"intervals": intervals or "the product's", "rate": options.feed_rate, "boxes": options.feed_boxes, **found}


def figures(taken: Sequence[float]) -> dict[str, float]:
    """p50, p95 and the longest of times in seconds."""
    cuts = statistics.quantiles(taken, n=100)
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2), "max": round(max(taken), 2)}


def _topology() -> Topology:
    small = topology()
    return small.model_copy(
        update={
            "streams": DEFAULT_STREAMS | small.streams,
            "customers": {CUSTOMER: Customer(feed_at=SITE)},
            "shore": Shore(at=SITE),
        }
    )


async def _book(site: Site, numbers: Sequence[str]) -> None:
    """A booking for each box, for all time."""
    async with await Cluster.open(site.endpoint, client_id="bench") as cluster:
        await asyncio.to_thread(create_logs, site.endpoint, {_BOOKINGS: {}})
        await cluster.wait_writable([_BOOKINGS])
        appender = Appender(cluster)
        await appender.ensure_open(TP(_BOOKINGS), marker_record(b"opened for the benchmark", timestamp_ms=0))
        bookings = [
            Booking(
                booking_reference=f"B{index}",
                customer=CUSTOMER,
                equipment_reference=number,
                valid_from=dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
            )
            for index, number in enumerate(numbers)
        ]
        await appender.append(TP(_BOOKINGS), [NewRecord(encode(each), timestamp_ms=0) for each in bookings])
        await appender.close()


async def _sail(site: Site, numbers: Sequence[str], options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Append and follow at once; the times of what counts."""
    stored: dict[str, float] = {}
    arrived: dict[str, float] = {}
    done = asyncio.Event()
    follower = asyncio.create_task(_follow(site, arrived, done))
    async with await Cluster.open(site.endpoint, client_id="bench-writer") as cluster:
        appender = Appender(cluster)
        first = await _append(appender, numbers[0], 1, stored)
        await _until(lambda: first in arrived, _PATIENCE)
        say(f"the first reading took {arrived[first] - stored[first]:.1f} s")
        begin, count = time.monotonic(), int(options.feed_rate * (options.feed_cold + options.feed_seconds))
        for index in range(count):
            await asyncio.sleep(max(0.0, begin + index / options.feed_rate - time.monotonic()))
            sequence, box = divmod(index, len(numbers))
            await _append(appender, numbers[box], 2 + sequence, stored)
        await appender.close()
    await _until(lambda: stored.keys() <= arrived.keys(), _PATIENCE)
    done.set()
    await follower
    counted = [name for name, at in stored.items() if at >= begin + options.feed_cold]
    taken = [arrived[name] - stored[name] for name in counted]
    return {"readings": len(taken), "seconds": figures(taken), "target_seconds": TARGET_SECONDS}


async def _append(appender: Appender, number: str, sequence: int, stored: dict[str, float]) -> str:
    done = await appender.append(TP(log_of(number)), [reading(number, sequence)])
    name = f"{log_of(number)}@{done.base_offset}"
    stored[name] = time.monotonic()
    return name


async def _follow(site: Site, arrived: dict[str, float], done: asyncio.Event) -> None:
    """Note when each record of the feed is there, by its origin."""
    position = 0
    async with await Cluster.open(site.endpoint, client_id="bench-reader") as cluster:
        while not done.is_set():
            try:
                async for record in read_log(cluster, TP(f"feeds.{CUSTOMER}"), position):
                    position = record.offset + 1
                    origin: Mapping[str, bytes | None] = dict(record.headers)
                    if (value := origin.get(headers.ORIGIN)) is not None:
                        arrived.setdefault(value.decode(), time.monotonic())
            except BrokerError:  # shore has not made it yet
                await cluster.topics([f"feeds.{CUSTOMER}"], refresh=True)
            await asyncio.sleep(_POLL)


async def _until(condition: Any, patience: float) -> None:
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"not in the feed within {patience:.0f} s")
        await asyncio.sleep(_POLL)
