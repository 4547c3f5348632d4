"""How long a simulated day of a large ship takes: every reading with its physics, place and bytes. No broker.

    python -m benchmarks.simulator [--containers 20000] [--hours 24]

One ship at sea with reefers of every kind aboard, each read every five minutes. Measured is what a voyage does for it,
from the thermal model to the payload as published, from the moment the ship sails; loading it is not. Prints a table
and writes ``build/bench/simulator.json``: ``readings``, ``cpu_seconds`` and ``seconds`` of one process with one
thread, ``cpu_us_per_reading``, ``planning_seconds``, ``rss_mb``, ``sha256`` of every tenth payload of another, short
run (twice the same, or it fails), ``target``, ``machine``. The target is held against CPU seconds: what one core
needs, whatever else the machine does.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks.harness import Figures, Say, main
from simulators.fleet.commodities import COMMODITIES
from simulators.fleet.scenario_file import parse
from simulators.steps import MessageKind, Publish
from simulators.voyage.voyage import Voyage
from topologies.loader.load import load

TARGET_SECONDS = 60.0  # for 20,000 containers and 24 hours
SCENARIO = """
name: day-at-sea
topology: minimal
booking_office: tokyo
start: 2026-07-01T00:00:00Z
reading_interval: 5m
ships:
  duck-star:
    first_arrival: 2h
    calls: [{ port: tokyo, stay: 4h, at_sea: 30h }, { port: tokyo, stay: 1h }]
cargo:
"""
LOT = "  {0}: {{ owner: BIGU, commodity: {0}, containers: 1, route: [tokyo, duck-star, tokyo], gate_in: 1h }}\n"


def voyage(containers: int, **changes: Any) -> Voyage:
    """The voyage of one ship; ``changes`` are fields of its scenario."""
    text = SCENARIO + "".join(LOT.format(name) for name in sorted(COMMODITIES))
    scenario = parse(text, "day-at-sea").model_copy(update=changes).adjusted(containers=containers)
    return Voyage(scenario, load("minimal", env={}), seed=7)


def sailing(made: Voyage, hours: float) -> tuple[Iterator[Publish], dt.datetime]:
    """The messages from the ship's departure on, and the time ``hours`` later."""
    sails = made.plan.timetables["duck-star"].calls[0].departs
    steps = (step for step in made.steps() if isinstance(step, Publish))
    for step in steps:
        if step.sim_time >= sails:
            break
    return steps, sails + dt.timedelta(hours=hours)


def measure(options: argparse.Namespace, say: Say) -> Figures:
    """The figures of one run, with the digest of a short one.

    Raises:
        SystemExit: two runs with one seed gave different bytes.
    """
    found = sail(options.containers, options.hours)
    digests = {digest(500, 1.0) for _ in range(2)}
    if len(digests) != 1:
        raise SystemExit("two runs with one seed gave different bytes")
    return {**found, "sha256": digests.pop(), "target": {"cpu_seconds": TARGET_SECONDS}}


def sail(containers: int, hours: float) -> dict[str, Any]:
    began = time.process_time()
    made = voyage(containers)
    planned = time.process_time() - began
    steps, until = sailing(made, hours)
    readings = 0
    cpu, wall = time.process_time(), time.perf_counter()
    for step in steps:
        if step.sim_time >= until:
            break
        readings += step.kind is MessageKind.READING
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "containers": containers,
        "hours": hours,
        "readings": readings,
        "cpu_seconds": round(cpu, 1),
        "seconds": round(wall, 1),
        "cpu_us_per_reading": round(cpu / readings * 1e6, 2),
        "readings_per_cpu_second": round(readings / cpu),
        "planning_seconds": round(planned, 1),
        "rss_mb": round(psutil.Process().memory_info().rss / 1e6),
    }


def digest(containers: int, hours: float) -> str:
    steps, until = sailing(voyage(containers), hours)
    total = hashlib.sha256()
    for nth, step in enumerate(steps):
        if step.sim_time >= until:
            break
        if nth % 10 == 0:
            total.update(step.payload)
    return total.hexdigest()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--containers", type=int, default=20_000, help="of the simulator")
    parser.add_argument("--hours", type=float, default=24.0, help="of the simulator")


if __name__ == "__main__":
    main("simulator", {"simulator": measure}, __doc__, add_options)
