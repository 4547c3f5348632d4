"""Sending readings and watching a measured process take them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from typing import Any, Final, NamedTuple

from benchmarks.edge import publisher
from benchmarks.edge.measured import SPAWN, Process
from fairlead.kafka.endpoint import MqttEndpoint

STUCK_SECONDS: Final = 60.0
AHEAD: Final = 4_000  # messages that the MQTT broker has and the measured process has not stored: it is never idle
CPU_TICK: Final = 0.01  # seconds; the kernel counts no finer
_LOOK_SECONDS: Final = 0.02
_SAMPLE_SECONDS: Final = 1.0
Device = tuple[BaseProcess, "Synchronized[int]"]
"""A process that publishes, and how many messages of it the MQTT broker has."""


class Sample(NamedTuple):
    """One look at a process: readings stored so far, seconds since the first look, resident memory in MB."""

    readings: int
    seconds: float
    rss_mb: float


@dataclass
class Used:
    """What a process did over some time."""

    readings: int
    seconds: float
    cpu_seconds: float
    samples: list[Sample] = field(default_factory=list)

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
    """Devices at work, each process with its share of the boxes; they are stopped in the end."""
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


def steady(
    process: Process,
    endpoint: MqttEndpoint,
    numbers: Sequence[str],
    first: int,
    rounds: int,
    *,
    longest: float | None = None,
) -> Used:
    """Devices publish as fast as the process stores; what it used until all was stored.

    Args:
        longest: Seconds after which what is stored by then is enough.
    """
    wanted = process.readings.value + rounds * len(numbers)
    with publishing(endpoint, numbers, first, rounds, taken=process.readings) as devices:
        progress(lambda: devices[0][1].value, 1, "readings to be published", _parts(process, devices))
        return watch(process, wanted, devices, longest=longest)


def queue_up(endpoint: MqttEndpoint, numbers: Sequence[str], first: int, rounds: int, processes: int = 2) -> float:
    """Publish while nobody takes it; seconds until the MQTT broker has it all."""
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
    samples: list[Sample] = []
    sampled = 0.0

    def stored() -> int:
        nonlocal sampled
        now, count = time.monotonic(), process.readings.value
        if now - sampled >= _SAMPLE_SECONDS or count >= wanted:
            samples.append(Sample(count - before, time.perf_counter() - began, process.rss_mb()))
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
        parts: What takes part, and whether it still runs or has done its work.

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
