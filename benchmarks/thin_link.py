"""A satellite's 64 kbit/s, saturated by telemetry: how much of it is used, and how long does an alert take?

    python -m benchmarks.thin_link [--seconds 15]

The line really carries no more than the link declares. Writes ``build/bench/thin_link.json``, one entry per case:
``share`` of the line in use, ``data_share`` of it that is record batches, ``alert_p50_s`` and ``alert_max_s`` from the
append at the source to the record at the target.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import time
from typing import Any, NamedTuple

import uvloop

from benchmarks._lines import Lines, carried, two_sites
from benchmarks._results import machine, write

LINE = 64e3
RATE = "64 kbit/s"
WARM = 24_000  # bytes: the link is up and saturated
ALERT = 200  # bytes


class Case(NamedTuple):
    """Logs with telemetry, and what their batches are."""

    rtt: float
    logs: int
    records: int
    size: int


CASES = {
    "satellite_small_batches": Case(0.6, 40, 1, 150),
    "satellite_2kB_batches": Case(0.6, 4, 4, 500),
    "satellite_one_log": Case(0.6, 1, 4, 500),
    "cable_2kB_batches": Case(0.02, 4, 4, 500),
}


async def measure(lines: Lines, case: Case, seconds: float) -> dict[str, Any]:
    run = secrets.token_hex(4)
    bulk, urgent = f"b{run}", f"u{run}"
    logs = await lines.make([f"{bulk}.alpha.{n}" for n in range(case.logs)])
    (alert,) = await lines.make([f"{urgent}.alpha"])
    wanted = LINE / 8 * (seconds + 15)
    for n in range(int(wanted / case.logs / case.records / case.size) + 1):
        await lines.append(logs, n * case.records, case.records, case.size)
    streams = {bulk: {"priority": "normal"}, urgent: {"priority": "urgent"}}
    taken: list[float] = []
    async with lines.copying(streams, rtt=case.rtt, line=LINE, rate=RATE) as (way, replicator):

        def data() -> int:
            return int(replicator.snapshot()["links"][0]["fetched_bytes"])

        began = await carried(way, WARM)
        wire, batches = way.down.bytes, data()
        while time.monotonic() - began < seconds:
            sent = time.monotonic()
            await lines.append([alert], len(taken), 1, ALERT)
            await lines.copied(alert, len(taken) + 1)
            taken.append(time.monotonic() - sent)
            await asyncio.sleep(0.37)  # no multiple of anything
        lasted = time.monotonic() - began
        wire, batches = way.down.bytes - wire, data() - batches
    return {
        **case._asdict(),
        "share": round(wire / lasted / (LINE / 8), 3),
        "data_share": round(batches / wire, 3),
        "alerts": len(taken),
        "alert_p50_s": round(statistics.median(taken), 2),
        "alert_max_s": round(max(taken), 2),
    }


async def measure_all(seconds: float) -> dict[str, Any]:
    async with two_sites() as lines:
        return {name: await measure(lines, case, seconds) for name, case in CASES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    busy = machine()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure_all(options.seconds))
    for name, figures in found.items():
        print(f"{name:26}", "  ".join(f"{key} {value}" for key, value in figures.items()))
    write("thin_link", {**found, "machine": busy})


if __name__ == "__main__":
    main()
