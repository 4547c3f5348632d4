"""What the way in costs with 0, 1 and 2 intake processes, process by process.

    python -m benchmarks.intakes [--logs 2000] [--readings 60000]

The same readings each time, QoS 1 in, acks=all out, with as many messages under way as the bridge takes. Prints a table
and writes ``build/bench/intakes.json``: for each number of intakes the readings per second, and the CPU-seconds per
1,000 readings of the core, of each intake and of Mosquitto. On a machine with fewer cores than busy processes (devices
and Kafka are there too) only the CPU says something: how many readings a second the core could take with a core of
its own, ``core_limit``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks._results import machine, write
from benchmarks.custody.devices import boxes
from benchmarks.edge import load
from benchmarks.edge.chain import FIRST, open_logs
from benchmarks.edge.measured import Run, bridge, running
from benchmarks.edge.names import SITE
from benchmarks.edge.site import fresh
from fairlead.local.sites import LocalSites

Counter = Synchronized  # of int


def one_intake(folder: Path, ready: Event, stop: Event, stored: Counter[int], readings: Counter[int]) -> None:
    bridge(folder, ready, stop, stored, readings, intakes=1)


def two_intakes(folder: Path, ready: Event, stop: Event, stored: Counter[int], readings: Counter[int]) -> None:
    bridge(folder, ready, stop, stored, readings, intakes=2)


RUNS: Final[tuple[Run, ...]] = (bridge, one_intake, two_intakes)


def _found(folder: Path) -> dict[str, psutil.Process]:
    """The intakes and Mosquitto, among what this process has started."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "edge.intakes.process" in words and psutil.Process() in process.parents():
            found[f"intake {process.pid}"] = process
        elif words and words[0].endswith("mosquitto") and any(str(folder) in word for word in words):
            found["mosquitto"] = process
    return found


def _cpu(processes: dict[str, psutil.Process]) -> dict[str, float]:
    return {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}


def measure(run: Run, sites: LocalSites, numbers: Sequence[str], first: int, rounds: int) -> dict[str, Any]:
    """One of the runs, after a round that is not counted."""
    mqtt = sites.mqtt(SITE, "device")
    with running(run, sites.folder) as process:
        load.steady(process, mqtt, numbers, first, 1)
        others = _found(sites.folder)
        before = _cpu(others)
        used = load.steady(process, mqtt, numbers, first + 1, rounds)
        after = _cpu(others)
    per_thousand = {"core": used.cpu_seconds / used.readings * 1000}
    per_thousand |= {name: (after[name] - before[name]) / used.readings * 1000 for name in sorted(others)}
    return {
        "readings": used.readings,
        "readings_per_second": round(used.readings / used.seconds),
        "core_limit": round(used.readings / used.cpu_seconds),
        "cpu_seconds_per_1000": {name: round(seconds, 4) for name, seconds in per_thousand.items()},
        "core_rss_mb": used.figures()["peak_rss_mb"],
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    options.add_argument("--logs", type=int, default=2_000)
    options.add_argument("--readings", type=int, default=60_000)
    given = options.parse_args()
    numbers, rounds = boxes(given.logs), max(1, given.readings // given.logs)
    found: dict[str, Any] = {"logs": given.logs, "machine": machine(), "intakes": {}}
    with fresh(given.logs) as sites:
        open_logs(sites, numbers, print)
        first = FIRST
        for count, run in enumerate(RUNS):
            found["intakes"][str(count)] = figures = measure(run, sites, numbers, first, rounds)
            first += rounds + 1
            print(f"{count} intakes: {figures['readings_per_second']:,}/s, core alone {figures['core_limit']:,}/s")
            for name, seconds in figures["cpu_seconds_per_1000"].items():
                print(f"    {name:<16}{seconds:.4f} CPU-s per 1,000 readings")
            write("intakes", found)


if __name__ == "__main__":
    main()
