"""The parts with brokers: devices -> Mosquitto -> a bridge -> Kafka, one log per container."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from benchmarks.custody.devices import Devices, boxes, event
from benchmarks.edge import load
from benchmarks.edge.measured import bridge, plain, running
from benchmarks.edge.names import BRIDGE_CLIENT, SITE, USER, log_of
from benchmarks.edge.site import brokers_for, forget_session, fresh
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites
from fairlead.local.state import Profile

GATE_INS_AT_ONCE: Final = 2_000
FIRST: Final = 1_000_000  # sequence of the first reading: all have the same number of digits
PUBLISHERS: Final = 2
PLAIN_SECONDS: Final = 120.0  # the plain bridge gets for its first round, and for the others
TARGET: Final = {"readings_per_second_per_core": 10_000, "rss_mb": 200, "speed_ratio": 4.0, "logs": 20_000}
_ENDS_AT_ONCE: Final = 2_000

Say = Callable[[str], None]


def measure(
    parts: Sequence[str],
    logs: int,
    readings: int,
    plain_readings: int,
    queued: int,
    profile: Profile,
    found: dict[str, Any],
    say: Say,
) -> None:
    """Put the figures of ``bridge`` and ``catch_up`` into ``found`` as soon as they are known, ``target`` last.

    Both need the steady rate, so that is always measured; the plain bridge comes last, because it does not keep the
    append convention: afterwards nobody may append to these logs any more.

    Raises:
        SystemExit: something is stuck, or what is stored is not what was published.
    """
    numbers = boxes(logs)
    rounds = max(1, readings // logs)
    with fresh(logs, profile) as sites:
        mqtt = sites.mqtt(SITE, "device")
        open_logs(sites, numbers, say)
        sequence = FIRST
        stored = asyncio.run(_records(sites, numbers))
        with running(bridge, sites.folder) as process:
            load.steady(
                process, mqtt, numbers, sequence, 1
            )  # each writer reads the end of its log before the first one
            say(f"warm: {process.rss_mb():.0f} MB")
            steady = load.steady(process, mqtt, numbers, sequence + 1, rounds).figures()
        say(f"bridge: {steady}")
        if "bridge" in parts:
            found["bridge"] = whole = {"logs": logs, "brokers": brokers_for(logs), "fairlead": steady}
            whole["mqtt_profile"] = profile.value
            whole["readings_per_second_per_core"] = steady["readings_per_second_per_core"]
        sequence += 1 + rounds
        stored = _check(sites, numbers, stored + (1 + rounds) * logs)
        if "catch_up" in parts:
            found["catch_up"] = caught = _catch_up(sites, numbers, sequence, max(1, queued // logs), say)
            caught["ratio_to_steady"] = round(caught["readings_per_second"] / steady["readings_per_second"], 2)
            whole_seconds = caught["start_seconds"] + caught["seconds"]
            caught["ratio_with_start"] = round(caught["queued"] / whole_seconds / steady["readings_per_second"], 2)
            caught["mqtt_profile"] = profile.value
            caught["steady_readings_per_second"] = steady["readings_per_second"]
            caught["target"] = {"queued": 1_000_000, "ratio_to_steady": 1.0}
            sequence += max(1, queued // logs)
            stored = _check(sites, numbers, stored + caught["queued"])
        if "bridge" in parts:
            forget_session(sites, BRIDGE_CLIENT)
            rounds = max(1, plain_readings // logs)
            with running(plain, sites.folder) as process:
                warm = load.steady(process, mqtt, numbers, sequence, 1, longest=PLAIN_SECONDS)
                say(f"plain: the first {warm.readings:,} readings took {warm.seconds:.0f} s")
                other = load.steady(process, mqtt, numbers, sequence + 1, rounds, longest=PLAIN_SECONDS).figures()
            say(f"plain: {other}")
            whole["plain"] = other
            whole["speed_ratio"] = round(steady["readings_per_second"] / other["readings_per_second"], 2)
            whole["cpu_ratio"] = round(other["cpu_us_per_reading"] / steady["cpu_us_per_reading"], 2)
            whole["target"] = TARGET


def open_logs(sites: LocalSites, numbers: Sequence[str], say: Say) -> None:
    """Every container comes in at the gate, so that its log is there and held by the site."""
    devices = Devices(sites.mqtt(SITE, "device"))
    try:
        with running(bridge, sites.folder) as process:
            for start in range(0, len(numbers), GATE_INS_AT_ONCE):
                some = numbers[start : start + GATE_INS_AT_ONCE]
                asyncio.run(devices.publish([event("GTIN", number) for number in some]))
                load.progress(
                    lambda: process.stored, start + len(some), "logs to be opened", {process.name: process.alive}
                )
                say(f"{start + len(some):,} logs are open")
    finally:
        devices.close()


def _catch_up(sites: LocalSites, numbers: Sequence[str], first: int, rounds: int, say: Say) -> dict[str, Any]:
    """Readings pile up in the bridge's session, then the bridge starts."""
    queued = rounds * len(numbers)
    seconds = load.queue_up(sites.mqtt(SITE, "device"), numbers, first, rounds, processes=PUBLISHERS)
    say(f"{queued:,} readings wait; published in {seconds:.0f} s")
    began = time.perf_counter()
    with running(bridge, sites.folder) as process:
        started = time.perf_counter() - began
        used = load.watch(process, queued)
    figures = {
        "queued": queued,
        "publish_seconds": round(seconds, 1),
        "start_seconds": round(started, 1),  # until it takes messages; not in the rate
        **used.figures(),
        **_course(used.samples, queued),
        "rate_by_quarter": _rates(used.samples, queued),
    }
    say(f"catch-up: {figures}")
    return figures


def _course(samples: Sequence[load.Sample], queued: int) -> dict[str, Any]:
    """Memory over time: flat when the last quarter needs no more than the first had after its start."""
    at = {f"{percent}%": _at(samples, queued * percent / 100).rss_mb for percent in (5, 25, 50, 75, 100)}
    return {"rss_mb_at": at, "rss_growth_mb": round(at["100%"] - at["25%"], 1)}


def _rates(samples: Sequence[load.Sample], queued: int) -> list[int]:
    """Readings a second in each quarter of the queue. The first has the bridge's start in it: each writer reads its
    log's end then."""
    edges = [load.Sample(0, 0.0, 0.0), *(_at(samples, queued * part / 4) for part in (1, 2, 3, 4))]
    return [
        round((after.readings - before.readings) / max(after.seconds - before.seconds, 1e-9))
        for before, after in pairwise(edges)
    ]


def _at(samples: Sequence[load.Sample], readings: float) -> load.Sample:
    """The first look that saw so many readings."""
    return next((sample for sample in samples if sample.readings >= readings), samples[-1])


def _check(sites: LocalSites, numbers: Sequence[str], wanted: int) -> int:
    """All that was published is stored, and once."""
    found = asyncio.run(_records(sites, numbers))
    if found != wanted:
        raise SystemExit(f"{wanted:,} records were to be in the logs, {found:,} are")
    return found


async def _records(sites: LocalSites, numbers: Sequence[str]) -> int:
    """How many records all logs have together."""
    total = 0
    async with await Cluster.open(sites.kafka(SITE, USER), client_id="bench", request_timeout=120) as cluster:
        for start in range(0, len(numbers), _ENDS_AT_ONCE):
            logs = [TP(log_of(number)) for number in numbers[start : start + _ENDS_AT_ONCE]]
            for end in (await cluster.end_offsets(logs)).values():
                if not isinstance(end, int):
                    raise end
                total += end
    return total
