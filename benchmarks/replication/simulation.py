"""Part ``simulation``: one replicator with 10,000 to 500,000 logs, against clusters in the same process.

The replicator is the one that ships: planner, ledgers, sessions, appender and status file. Two ports have every log,
each holds one half of them, and headquarters follow each log at its holder. All copies are complete at the start, so
what is measured is bookkeeping. ``fake_cluster`` says what is not real; its own CPU is subtracted.

Each size runs in a process of its own. A change is what a user does: a record in a log, a box that passes from one port
to the other (an entry in a ledger, without the marker in the box's log), a new box (an entry and a topic that
headquarters already have). Its cost is the CPU until it has its effect at headquarters and for ``AFTER`` more seconds,
without what the same seconds cost anyhow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import math
import multiprocessing as mp
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop

from benchmarks.harness import Figures, Say
from benchmarks.processes import peak_rss_mb
from benchmarks.replication.fake_cluster import FakeCluster, LedgerLog, box_names, connected_to, entry
from fairlead.kafka.endpoint import KafkaEndpoint
from replication.replicator import Replicator
from simulators.scale.costs import LOGS_PER_BROKER
from topologies.model import DEFAULT_STREAMS, InsertPoint, Link, Site, SiteKind, Stream, Topology

SIZES: Final = (10_000, 100_000, 500_000)
TARGET: Final = "hq"
PORTS: Final = ("port-a", "port-b")
END: Final = 20  # records of each log
SETTLE: Final = 30.0  # seconds: the search for fillers of an interrupted positioning comes 20 s after the start
SETTLE_PER_LOG: Final = 4e-4  # more seconds for each log, until this search is done
IDLE: Final = 30.0
AFTER: Final = 2.0
MANY: Final = 1_000
LOOK: Final = 0.05
WITHIN: Final = 1_800.0


def measure(options: argparse.Namespace, say: Say) -> Figures:
    """Measure each size in its own process; growth is each figure's ratio divided by that of the logs."""
    rows = []
    for logs in options.logs:
        say(f"{logs:,} logs")
        with ProcessPoolExecutor(1, mp_context=mp.get_context("spawn")) as pool:
            rows.append(pool.submit(simulate, logs).result())
    return {"rows": rows, "growth": growth(rows)}


def growth(rows: Sequence[Figures]) -> Figures:
    """Return by how much more than the logs each figure grows, from the smallest size to the largest that has it: 1 is
    linear, less is better."""
    first = rows[0]
    found = {}
    for name, value in first.items():
        last = next((row for row in reversed(rows) if row[name]), first)
        if name != "kb_per_log" and isinstance(value, float) and value > 0 and last is not first:
            found[name] = round(last[name] / value / (last["logs"] / first["logs"]), 2)
    return found


def simulate(logs: int) -> Figures:
    """Measure one size in this process."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_simulate(logs))


def fleet() -> Topology:
    """Two ports that copy everything to headquarters."""
    streams = {"containers": "all", "custody": "all"}
    return Topology(
        name="simulation",
        sites={
            TARGET: Site(kind=SiteKind.HQ),
            **{
                each: Site(kind=SiteKind.PORT, unlocode=code)
                for each, code in zip(PORTS, ("JPTYO", "SGSIN"), strict=True)
            },
        },
        streams={**DEFAULT_STREAMS, "containers": Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",))},
        links=[Link.model_validate({"from": each, "to": TARGET, "streams": streams}) for each in PORTS],
    )


@dataclass
class SimulatedClusters:
    """The clusters, and the CPU that is not theirs."""

    clusters: dict[str, FakeCluster]
    names: Sequence[str]

    @classmethod
    def of(cls, logs: int) -> SimulatedClusters:
        """``logs`` logs everywhere, and ``MANY + 1`` more that only headquarters have yet."""
        every = logs + MANY + 1
        names = [name.decode() for name in box_names(every).tolist()]
        brokers = math.ceil(every / LOGS_PER_BROKER.value)
        clusters = {}
        for site in (*PORTS, TARGET):
            ledgers = [LedgerLog(port, names[number : logs : len(PORTS)]) for number, port in enumerate(PORTS)]
            clusters[site] = FakeCluster(
                site, brokers, every, END, ledgers if site == TARGET else [_own(ledgers, site)]
            )
            clusters[site].reveal(every if site == TARGET else logs)
        return cls(clusters, names)

    @property
    def cpu(self) -> float:
        """CPU seconds of this process so far, without the clusters'."""
        return time.process_time() - sum(each.seconds for each in self.clusters.values())

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WITHIN):
            while True:
                with self.clusters[TARGET].own_time():
                    if done():
                        return
                await asyncio.sleep(LOOK)


def _own(ledgers: Sequence[LedgerLog], site: str) -> LedgerLog:
    return next(each for each in ledgers if each.site == site)


async def _simulate(logs: int) -> Figures:
    world = SimulatedClusters.of(logs)
    hq, ports = world.clusters[TARGET], [world.clusters[each] for each in PORTS]
    gc.collect()
    process = psutil.Process()
    before = _resident(process)
    endpoints: dict[str, KafkaEndpoint] = {site: each.endpoint for site, each in world.clusters.items()}
    with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as folder, connected_to(world.clusters):
        replicator = Replicator(
            fleet(), TARGET, endpoints[TARGET], endpoints.__getitem__, status_file=Path(folder) / "status.json"
        )
        planner, links = replicator._planner, replicator._source_links  # noqa: SLF001
        stop = asyncio.Event()
        start = world.cpu
        running = asyncio.ensure_future(replicator.run(stop))
        try:
            await world.until(replicator._ledger.ready.is_set)  # noqa: SLF001
            read = world.cpu
            await world.until(lambda: planner.mirroring == logs + len(PORTS))
            planned = world.cpu
            await world.until(lambda: _compared(ports, logs))
            compared = world.cpu
            await asyncio.sleep(SETTLE + logs * SETTLE_PER_LOG)
            memory, most = _resident(process) - before, peak_rss_mb(process)
            asked = _requests(world)
            standing = await _cpu_of(world, IDLE)
            requests = (_requests(world) - asked) / IDLE
            each = standing / IDLE

            async def change(act: Callable[[], None], done: Callable[[], bool]) -> float:
                began, at = world.cpu, time.monotonic()
                act()
                await world.until(done)
                await asyncio.sleep(AFTER)
                return max(0.0, world.cpu - began - each * (time.monotonic() - at))

            figures: dict[str, float] = {}
            for count, name in ((1, "one"), (MANY, "thousand")):
                some = range(0, 2 * count, 2)  # held by the first port
                figures[f"{name}_records_cpu_ms"] = await change(
                    lambda some=some: ports[0].append(some),  # type: ignore[misc]
                    lambda some=some: bool((hq.ends[list(some)] == ports[0].ends[list(some)]).all()),  # type: ignore[misc]
                )
                ports[1].append(some)  # the other port has its copy by now
            moved = 2 * MANY  # other boxes: the second port's ends of these are known from an earlier time
            for count, name in ((1, "one"), (MANY, "thousand")):
                some = range(moved, moved + 2 * count, 2)
                moved += 2 * count
                wanted = links[1].followed + count
                entries = [entry(world.names[log], PORTS[0], PORTS[1], term=2, offset=END + 1) for log in some]
                figures[f"{name}_moves_cpu_ms"] = await change(
                    lambda entries=entries: ports[0].write(0, entries),  # type: ignore[misc]
                    lambda wanted=wanted: links[1].followed == wanted,  # type: ignore[misc]
                )
            known = logs
            for count, name in ((1, "one"), (MANY, "thousand")):
                new = range(known, known + count)
                known += count
                entries = [entry(world.names[log], PORTS[0], PORTS[0], term=1, offset=0) for log in new]

                def appear(known: int = known, entries: Sequence[Any] = entries) -> None:
                    with ports[0].own_time():
                        ports[0].reveal(known)
                    ports[0].write(0, entries)

                figures[f"{name}_new_cpu_ms"] = await change(
                    appear,
                    lambda known=known: planner.mirroring == known + len(PORTS),  # type: ignore[misc]
                )
        finally:
            stop.set()
            with contextlib.suppress(asyncio.CancelledError):
                await running
    return {
        "logs": logs,
        "brokers": ports[0].brokers,
        "memory_mb": round(memory, 1),
        "memory_peak_mb": most,
        "kb_per_log": round(memory * 1e3 / logs, 2),
        "ledgers_cpu_seconds": round(read - start, 3),
        "first_plan_cpu_seconds": round(planned - read, 3),
        "comparison_cpu_seconds": round(compared - planned, 3),
        "standing_by_ms_per_second": round(each * 1e3, 3),
        "standing_by_requests_per_second": round(requests, 2),
        "sessions_of_a_broker": max(round(port.counts.sessions / port.brokers) for port in ports),
        "connections_of_a_port": max(port.counts.most_connections for port in ports),
        **{name: round(value * 1e3, 2) or None for name, value in figures.items()},  # None: lost in the noise
    }


def _compared(ports: Sequence[FakeCluster], logs: int) -> bool:
    """Whether the replicator has compared every log with the one at its holder."""
    return all(
        bool((port.position[number : logs : len(ports)] == port.ends[number : logs : len(ports)]).all())
        for number, port in enumerate(ports)
    )


def _requests(world: SimulatedClusters) -> int:
    return sum(each.counts.requests for each in world.clusters.values())


async def _cpu_of(world: SimulatedClusters, seconds: float) -> float:
    before = world.cpu
    await asyncio.sleep(seconds)
    return world.cpu - before


def _resident(process: psutil.Process) -> float:
    """Resident MB (10^6 bytes), after what is free was given back."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return float(process.memory_info().rss) / 1e6
