"""Part ``bridge``: devices -> Mosquitto -> a bridge -> Kafka, one log per container."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from typing import Any, Final, NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.brokers import brokers_for, fresh_port
from benchmarks.edge import publisher
from benchmarks.edge.measured import SPAWN, Process, bridge, plain, running
from benchmarks.harbour import BRIDGE_CLIENT, SITE, USER, SiteDevices, boxes, connect, event, log_of
from benchmarks.harness import Figures, Say
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import MqttEndpoint
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites


def forget_session(sites: LocalSites, client_id: str) -> None:
    """Let the MQTT broker drop what it keeps for a client, so that it queues nothing more for it."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id, clean_session=True)
    connect(client, sites.mqtt(SITE, "bridge"))
    client.loop_start()
    until = time.monotonic() + 60
    while not client.is_connected():
        if time.monotonic() > until:
            raise SystemExit(f"the MQTT broker does not let {client_id} in")
        time.sleep(0.01)
    client.disconnect()
    client.loop_stop()


STUCK_SECONDS: Final = 60.0
AHEAD: Final = 4_000  # messages that the MQTT broker has and the measured process has not stored: it is never idle
CPU_TICK: Final = 0.01  # seconds; the kernel counts no finer
_LOOK_SECONDS: Final = 0.02
_SAMPLE_SECONDS: Final = 1.0
Device = tuple[BaseProcess, "Synchronized[int]"]
"""A process that publishes, and how many messages of it the MQTT broker has."""


class ProcessSample(NamedTuple):
    """One sample of a process: readings stored so far, seconds since the first sample, resident memory in MB."""

    readings: int
    seconds: float
    rss_mb: float


@dataclass
class Used:
    """What a process did over some time."""

    readings: int
    seconds: float
    cpu_seconds: float
    samples: list[ProcessSample] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        return {
            "readings": self.readings,
            "seconds": round(self.seconds, 2),
            "readings_per_second": round(self.readings / self.seconds),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "readings_per_second_per_core": round(self.readings / self.cpu_seconds),
            "cpu_us_per_reading": round(self.cpu_seconds / self.readings * 1e6, 1),
            "rss_mb": self.samples[-1].rss_mb,
            "peak_rss_mb": max(sample.rss_mb for sample in self.samples),
        }


@contextlib.contextmanager
def publishing(
    endpoint: MqttEndpoint,
    numbers: Sequence[str],
    first: int,
    rounds: int,
    *,
    taken: Synchronized[int] | None = None,
    processes: int = 1,
) -> Iterator[list[Device]]:
    """Run devices, each process with its share of the boxes, and stop them afterwards."""
    made: list[Device] = []
    for nth in range(processes):
        sent = SPAWN.Value("q", 0)
        given = (endpoint, numbers[nth::processes], first, rounds, sent, taken, AHEAD)
        process: BaseProcess = SPAWN.Process(target=publisher.run, args=given, name=f"publisher {nth + 1}", daemon=True)
        process.start()
        made.append((process, sent))
    try:
        yield made
    finally:
        for process, _ in made:
            if process.is_alive():
                process.kill()
            process.join()


def steady_rate(
    process: Process,
    endpoint: MqttEndpoint,
    numbers: Sequence[str],
    first: int,
    rounds: int,
    *,
    longest: float | None = None,
) -> Used:
    """Publish as fast as the process stores; return what it used until all was stored.

    Args:
        longest: Seconds after which the measurement ends early.
    """
    wanted = process.readings.value + rounds * len(numbers)
    with publishing(endpoint, numbers, first, rounds, taken=process.readings) as devices:
        progress(lambda: devices[0][1].value, 1, "readings to be published", _parts(process, devices))
        return watch(process, wanted, devices, longest=longest)


def queue_up(endpoint: MqttEndpoint, numbers: Sequence[str], first: int, rounds: int, processes: int = 2) -> float:
    """Publish while no bridge runs; return the seconds until the MQTT broker has everything."""
    began = time.perf_counter()
    with publishing(endpoint, numbers, first, rounds, processes=processes) as devices:
        progress(
            lambda: sum(sent.value for _, sent in devices),
            rounds * len(numbers),
            "readings to be queued",
            {process.name: partial(_runs_or_done, process) for process, _ in devices},
        )
    return time.perf_counter() - began


def watch(process: Process, wanted: int, devices: Sequence[Device] = (), *, longest: float | None = None) -> Used:
    """What the process uses from now until it has stored ``wanted`` readings since its start, or is out of time."""
    before, cpu, began = process.readings.value, process.cpu(), time.perf_counter()
    samples: list[ProcessSample] = []
    sampled = 0.0

    def stored() -> int:
        nonlocal sampled
        now, count = time.monotonic(), process.readings.value
        if now - sampled >= _SAMPLE_SECONDS or count >= wanted:
            samples.append(ProcessSample(count - before, time.perf_counter() - began, process.rss_mb()))
            sampled = now
        return count

    what = f"readings to be stored by the {process.name} process"
    progress(stored, wanted, what, _parts(process, devices), longest=longest)
    count = process.readings.value - before
    return Used(count, time.perf_counter() - began, max(CPU_TICK, process.cpu() - cpu), samples)


def progress(
    now: Callable[[], int],
    wanted: int,
    what: str,
    parts: Mapping[str, Callable[[], bool]],
    *,
    longest: float | None = None,
) -> None:
    """Wait until a count is reached, or ``longest`` seconds are over and something was counted.

    Args:
        parts: The processes that take part, and whether each runs or has finished.

    Raises:
        SystemExit: nothing came for a minute, or a part has ended; says how far it was.
    """
    began = since = time.monotonic()
    first = seen = now()
    while (count := now()) < wanted and (longest is None or count == first or time.monotonic() - began < longest):
        ended = [name for name, runs in parts.items() if not runs()]
        if count > seen:
            seen, since = count, time.monotonic()
        elif time.monotonic() - since > STUCK_SECONDS or ended:
            why = f"{', '.join(ended)} ended" if ended else f"nothing came for {STUCK_SECONDS:g} s"
            raise SystemExit(f"waited for {wanted:,} {what}, got {count:,}: {why}")
        time.sleep(_LOOK_SECONDS)


def _parts(process: Process, devices: Sequence[Device]) -> dict[str, Callable[[], bool]]:
    """Devices end by themselves when all is published."""
    return {process.name: process.alive} | {each.name: partial(_runs_or_done, each) for each, _ in devices}


def _runs_or_done(process: BaseProcess) -> bool:
    return process.exitcode in (None, 0)


GATE_INS_AT_ONCE: Final = 2_000
FIRST: Final = 1_000_000  # sequence of the first reading: all have the same number of digits
PUBLISHERS: Final = 2
PLAIN_SECONDS: Final = 120.0  # the plain bridge gets for its first round, and for the others
TARGET: Final = {"readings_per_second_per_core": 10_000, "rss_mb": 200, "speed_ratio": 4.0, "logs": 20_000}
_ENDS_AT_ONCE: Final = 2_000


def measure(options: argparse.Namespace, say: Say) -> Figures:
    """The steady rate of Fairlead's bridge, its rate after a stop, and the plain bridge.

    The plain bridge comes last, because it does not keep the append convention: afterwards nobody may append to these
    logs any more.

    Raises:
        SystemExit: something is stuck, or what is stored is not what was published.
    """
    numbers = boxes(options.logs)
    rounds, waiting = max(1, options.readings // options.logs), max(1, options.queued // options.logs)
    with fresh_port(options.logs, options.mqtt_profile) as sites:
        mqtt = sites.mqtt(SITE, "device")
        open_logs(sites, numbers, say)
        sequence = FIRST
        stored = asyncio.run(_records(sites, numbers))
        with running(bridge, sites.folder) as process:
            steady_rate(process, mqtt, numbers, sequence, 1)  # each writer reads the end of its log before the first
            say(f"warm: {process.rss_mb():.0f} MB")
            steady = steady_rate(process, mqtt, numbers, sequence + 1, rounds).figures()
        say(f"bridge: {steady}")
        sequence += 1 + rounds
        stored = _check(sites, numbers, stored + (1 + rounds) * options.logs)
        caught = _catch_up(sites, numbers, sequence, waiting, say)
        seconds = caught["start_seconds"] + caught["seconds"]
        caught["ratio_to_steady"] = round(caught["readings_per_second"] / steady["readings_per_second"], 2)
        caught["ratio_with_start"] = round(caught["queued"] / seconds / steady["readings_per_second"], 2)
        sequence += waiting
        _check(sites, numbers, stored + caught["queued"])
        forget_session(sites, BRIDGE_CLIENT)
        rounds = max(1, options.plain_readings // options.logs)
        with running(plain, sites.folder) as process:
            warm = steady_rate(process, mqtt, numbers, sequence, 1, longest=PLAIN_SECONDS)
            say(f"plain: the first {warm.readings:,} readings took {warm.seconds:.0f} s")
            other = steady_rate(process, mqtt, numbers, sequence + 1, rounds, longest=PLAIN_SECONDS).figures()
        say(f"plain: {other}")
    return {
        "logs": options.logs,
        "brokers": brokers_for(options.logs),
        "mqtt_profile": options.mqtt_profile.value,
        "fairlead": steady,
        "catch_up": caught,
        "plain": other,
        "readings_per_second_per_core": steady["readings_per_second_per_core"],
        "speed_ratio": round(steady["readings_per_second"] / other["readings_per_second"], 2),
        "cpu_ratio": round(other["cpu_us_per_reading"] / steady["cpu_us_per_reading"], 2),
        "target": TARGET,
    }


def open_logs(sites: LocalSites, numbers: Sequence[str], say: Say) -> None:
    """Every container comes in at the gate, so that its log is there and held by the site."""
    devices = SiteDevices(sites.mqtt(SITE, "device"))
    try:
        with running(bridge, sites.folder) as process:
            for start in range(0, len(numbers), GATE_INS_AT_ONCE):
                some = numbers[start : start + GATE_INS_AT_ONCE]
                asyncio.run(devices.publish([event("GTIN", number) for number in some]))
                progress(lambda: process.stored, start + len(some), "logs to be opened", {process.name: process.alive})
                say(f"{start + len(some):,} logs are open")
    finally:
        devices.close()


def _catch_up(sites: LocalSites, numbers: Sequence[str], first: int, rounds: int, say: Say) -> dict[str, Any]:
    """Readings pile up in the bridge's session, then the bridge starts."""
    queued = rounds * len(numbers)
    seconds = queue_up(sites.mqtt(SITE, "device"), numbers, first, rounds, processes=PUBLISHERS)
    say(f"{queued:,} readings wait; published in {seconds:.0f} s")
    began = time.perf_counter()
    with running(bridge, sites.folder) as process:
        started = time.perf_counter() - began
        used = watch(process, queued)
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


def _course(samples: Sequence[ProcessSample], queued: int) -> dict[str, Any]:
    """Memory over time: flat when the last quarter needs no more than the first had after its start."""
    at = {f"{percent}%": _at(samples, queued * percent / 100).rss_mb for percent in (5, 25, 50, 75, 100)}
    return {"rss_mb_at": at, "rss_growth_mb": round(at["100%"] - at["25%"], 1)}


def _rates(samples: Sequence[ProcessSample], queued: int) -> list[int]:
    """Readings a second in each quarter of the queue. The first has the bridge's start in it: each writer reads its
    log's end then."""
    edges = [ProcessSample(0, 0.0, 0.0), *(_at(samples, queued * part / 4) for part in (1, 2, 3, 4))]
    return [
        round((after.readings - before.readings) / max(after.seconds - before.seconds, 1e-9))
        for before, after in pairwise(edges)
    ]


def _at(samples: Sequence[ProcessSample], readings: float) -> ProcessSample:
    """The first sample with so many readings."""
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
