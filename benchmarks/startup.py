"""How long until every site of Big Blue serves: fresh, after a clean stop, after a crash, and when all run already.

    python -m benchmarks.startup

Prints a table and writes ``build/bench/startup.json``: ``fairlead``, ``plain``, ``ratio``, ``target``, ``machine``.
``plain`` is the same start without the archive of loaded classes, which is what one gets from the same jars otherwise.
Jars and archive are in the cache before the clock starts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from benchmarks._results import machine, write
from fairlead.local import cds
from fairlead.local.sites import LocalSites, SiteSpec
from topologies.loader.load import load
from topologies.users import service_users

TOPOLOGY = "big-blue"
TARGET_SECONDS = 20.0


def timed(action: Callable[[], None]) -> float:
    began = time.monotonic()
    action()
    return round(time.monotonic() - began, 2)


def specs() -> list[SiteSpec]:
    topology = load(TOPOLOGY)
    return [SiteSpec(name, tuple(service_users(topology, name))) for name in topology.sites]


def measure(folder: Path) -> dict[str, Any]:
    """Every way of starting once, and what the running sites take."""
    sites, wanted = LocalSites(folder), specs()
    try:
        found: dict[str, Any] = {"sites": len(wanted), "fresh_seconds": timed(lambda: sites.up(wanted))}
        found["all_running_seconds"] = timed(lambda: sites.up(wanted))
        running = [psutil.Process(pid) for site in sites.status().values() for pid in site.pids.values()]
        found["cpu_seconds"] = round(sum(sum(process.cpu_times()[:2]) for process in running), 1)
        found["rss_mb"] = round(sum(process.memory_info().rss for process in running) / 1e6)
        found["down_seconds"] = timed(sites.down)
        found["after_stop_seconds"] = timed(lambda: sites.up(wanted))
        for spec in wanted:
            sites.kill(spec.name)
        found["after_crash_seconds"] = timed(lambda: sites.up(wanted))
        return found
    finally:
        sites.down(purge=True)


def main() -> None:
    here = machine()
    with tempfile.TemporaryDirectory() as folder:
        warm = LocalSites(Path(folder) / "warm")
        warm.up([SiteSpec("warm")])  # jars and archive
        warm.down(purge=True)
        fairlead = measure(Path(folder) / "fairlead")
        with mock.patch.object(cds, "archive_options", lambda *_args, **_options: ()):
            plain = measure(Path(folder) / "plain")
    result = {
        "topology": TOPOLOGY,
        "fairlead": fairlead,
        "plain": plain,
        "ratio": round(plain["fresh_seconds"] / fairlead["fresh_seconds"], 2),
        "target": {"fresh_seconds": TARGET_SECONDS},
        "machine": here,
    }
    write("startup", result)
    print(f"{fairlead['sites']} sites of {TOPOLOGY}       with archive    without")
    for name, unit in (
        ("fresh_seconds", "s to ready, fresh"),
        ("after_stop_seconds", "s after a clean stop"),
        ("after_crash_seconds", "s after kill -9"),
        ("all_running_seconds", "s when all run"),
        ("down_seconds", "s to stop all"),
        ("cpu_seconds", "s of CPU of a start"),
        ("rss_mb", "MB RSS, sum"),
    ):
        print(f"{unit:<26}{fairlead[name]:>10}{plain[name]:>11}")
    print(f"target: {TARGET_SECONDS:.0f} s, load before {here['load_average']:.1f}")


if __name__ == "__main__":
    main()
