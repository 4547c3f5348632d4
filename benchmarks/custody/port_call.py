"""A port call: N boxes go on board, and their logs with them.

    LOAD events at the port -> grants in its ledger -> logs copied on board -> custody taken -> first new readings

A port and a ship have brokers of their own, with a bridge and a replicator at each. The readings on board are published
as soon as the LOADs are out: those that come before custody are kept as strays and drained, as with real devices. In
the end the copies of every log are compared with each other and with what was published.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from benchmarks.brokers import BROKER, ONE_COPY, broker_heap
from benchmarks.custody.worker import PORT, SHIP, USER
from benchmarks.harbour import SiteDevices, boxes, event, reading
from benchmarks.harness import Figures, Say
from benchmarks.processes import cpu_seconds, peak_rss_mb
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import is_data, is_marker
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.record import decode_batch
from fairlead.kafka.protocol.types import TP
from fairlead.local.sites import LocalSites, SiteSpec

PATIENCE: Final = 600.0  # seconds without anything new after which a measurement is given up
PER_LOG: Final = 0.1  # seconds that each log may take besides
LOOK_SECONDS: Final = 0.05
WATCHED_AT_ONCE: Final = 250


class MeasuredProcess:
    """A measured process and its newest status line."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.told: dict[str, Any] = {}
        self.gauge = psutil.Process(process.pid)
        self._process = process
        self._news = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, what: str, folder: Path, site: str) -> MeasuredProcess:
        line = ("-m", "benchmarks.custody.worker", what, str(folder), site)
        process = await asyncio.create_subprocess_exec(sys.executable, *line, stdout=asyncio.subprocess.PIPE)
        return cls(f"{what} {site}", process)

    async def until(self, what: str, reached: Callable[[dict[str, Any]], bool]) -> float:
        """Wait until a status line meets the condition; return when (``time.monotonic``)."""
        async with self._news:
            while not (self.told and reached(self.told)):
                if self._reading.done():
                    raise SystemExit(f"{self.name} ended; {what} was awaited, it told {self.told}")
                try:
                    await asyncio.wait_for(self._news.wait(), PATIENCE)
                except TimeoutError:
                    raise SystemExit(f"{self.name}: {what} does not come about; it told {self.told}") from None
        return time.monotonic()

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        async for line in self._process.stdout:
            async with self._news:
                self.told = json.loads(line)
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()


class Harbour:
    """The two sites with their processes, removed afterwards."""

    def __init__(
        self, sites: LocalSites, clusters: Mapping[str, Cluster], workers: Mapping[str, MeasuredProcess]
    ) -> None:
        self.port, self.ship = clusters[PORT], clusters[SHIP]
        self.port_bridge, self.ship_bridge = workers[f"bridge {PORT}"], workers[f"bridge {SHIP}"]
        self.devices = {site: SiteDevices(sites.mqtt(site, "device")) for site in (PORT, SHIP)}
        pids = {site: state.pids for site, state in sites.status().items()}
        brokers = {f"{what} {site}": psutil.Process(pid) for site in pids for what, pid in pids[site].items()}
        self.processes = {name: worker.gauge for name, worker in workers.items()} | brokers

    @classmethod
    @contextlib.asynccontextmanager
    async def fresh(cls, brokers: int = 1) -> AsyncIterator[Harbour]:
        """Fresh sites with their processes ready. Each log has one copy at a site."""
        with tempfile.TemporaryDirectory(prefix="fairlead-bench-") as name:
            folder = Path(name) / "sites"
            sites = LocalSites(folder)
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(asyncio.to_thread, sites.down, purge=True)
                with broker_heap():
                    properties = BROKER | (ONE_COPY if brokers > 1 else {})
                    specs = [SiteSpec(site, properties=properties, brokers=brokers) for site in (PORT, SHIP)]
                    await asyncio.to_thread(sites.up, specs)
                clusters = {}
                for site in (PORT, SHIP):
                    opened = await Cluster.open(sites.kafka(site, USER), client_id="bench", request_timeout=120)
                    clusters[site] = await stack.enter_async_context(opened)
                workers: dict[str, MeasuredProcess] = {}
                for what in ("bridge", "replicator"):
                    for site in (PORT, SHIP):
                        worker = workers[f"{what} {site}"] = await MeasuredProcess.start(what, folder, site)
                        stack.push_async_callback(worker.stop)
                for worker in workers.values():
                    await worker.until("its start", lambda told: bool(told["ready"]))
                harbour = cls(sites, clusters, workers)
                for devices in harbour.devices.values():
                    stack.callback(devices.close)
                yield harbour

    def cpu(self) -> dict[str, float]:
        """CPU-seconds of every process so far."""
        return {name: cpu_seconds(process) for name, process in self.processes.items()}

    def peak_mb(self) -> dict[str, float]:
        """The most resident memory that every process ever had."""
        return {name: peak_rss_mb(process) for name, process in self.processes.items()}


async def reached(cluster: Cluster, ends: Mapping[str, int]) -> float:
    """Wait until logs end there or later at a site; the moment at which that was seen. Looks at a few at a time, so
    that looking takes next to nothing from the brokers."""
    logs = list(ends)
    latest = time.monotonic() + PATIENCE + PER_LOG * len(logs)
    for start in range(0, len(logs), WATCHED_AT_ONCE):
        left = logs[start : start + WATCHED_AT_ONCE]
        while left := await _short(cluster, left, ends):
            if time.monotonic() > latest:
                raise SystemExit(f"{len(left)} logs do not get to their ends, for example {left[0]}")
            await asyncio.sleep(LOOK_SECONDS)
    return time.monotonic()


async def _short(cluster: Cluster, logs: list[str], ends: Mapping[str, int]) -> list[str]:
    here = await cluster.topics(logs)
    if len(here) < len(logs):
        here = await cluster.topics(logs, refresh=True)
    found = await cluster.end_offsets([TP(log) for log in here])
    there = {tp.topic: end for tp, end in found.items() if isinstance(end, int)}
    return [log for log in logs if there.get(log, 0) < ends[log]]


_AT_ONCE = 500
Content = tuple[list[tuple[int, int, int]], list[tuple[int, int]], list[int]]
"""Batches (offset, term, CRC), markers (offset, term), sequences of readings."""


async def check(port: Cluster, ship: Cluster, numbers: Sequence[str], *, before: int, after: int) -> None:
    """Compare the copies of every log with each other and with what was published.

    A reading from on board may be in the first term: as a stray it may come to the port before the LOAD does.

    Raises:
        SystemExit: a log is not as it must be.
    """
    for start in range(0, len(numbers), _AT_ONCE):
        logs = [f"containers.{number}" for number in numbers[start : start + _AT_ONCE]]
        ashore, aboard = await _read(port, logs), await _read(ship, logs)
        for log in logs:
            batches, markers, sequences = aboard[log]
            wrong = ashore[log] != aboard[log]
            wrong |= sequences != list(range(before + after))
            wrong |= [term for _, term in markers] != [1, 2] or not before < markers[-1][0] <= before + after + 1
            wrong |= any(term != (1 if offset < markers[-1][0] else 2) for offset, term, _ in batches)
            if wrong:
                raise SystemExit(f"{log} is not as it must be: on board {aboard[log]}, ashore {ashore[log]}")


async def _read(cluster: Cluster, logs: Sequence[str]) -> dict[str, Content]:
    found: dict[str, Content] = defaultdict(lambda: ([], [], []))
    ends = await cluster.end_offsets([TP(log) for log in logs])
    positions = {tp: 0 for tp, end in ends.items() if isinstance(end, int) and end > 0}
    while positions:
        for tp, part in (await cluster.fetch(positions, max_wait_ms=0)).items():
            for batch in split(part.records):
                header = batch.header
                batches, markers, sequences = found[tp.topic]
                batches.append((header.base_offset, header.producer_epoch, header.crc))
                for record in decode_batch(part.records, batch.start, batch.stop):
                    if is_marker(record):
                        markers.append((record.offset, header.producer_epoch))
                    elif is_data(record):
                        sequences.append(msgspec.json.decode(record.value or b"")["device"]["sequence"])
                positions[tp] = header.next_offset
        positions = {tp: at for tp, at in positions.items() if at < ends[tp]}  # type: ignore[operator]
    return found


BEFORE: Final = 3  # readings of each box at the port
SETTLE: Final = 2.0
MOMENTS: Final = ("published", "readings_published", "granted", "ledger_copied", "copied", "taken", "appended")


async def measure_call(count: int, say: Callable[[str], None], *, brokers: int = 1) -> dict[str, Any]:
    """One port call on fresh sites; seconds are counted from the first LOAD on."""
    numbers = boxes(count)
    logs = [f"containers.{number}" for number in numbers]
    async with Harbour.fresh(brokers) as harbour:
        await _prepare(harbour, numbers, say)
        ledger = await _end(harbour.port, f"custody.{PORT}")
        loads = [event("LOAD", number) for number in numbers]
        cpu, began = harbour.cpu(), time.monotonic()
        watched: dict[str, asyncio.Task[float]] = {
            "granted": asyncio.create_task(reached(harbour.port, {f"custody.{PORT}": ledger + count})),
            "ledger_copied": asyncio.create_task(reached(harbour.ship, {f"custody.{PORT}": ledger + count})),
            "copied": asyncio.create_task(reached(harbour.ship, dict.fromkeys(logs, BEFORE + 2))),
            "taken": asyncio.create_task(
                harbour.ship_bridge.until("custody of every box", lambda told: told["held"] >= count)
            ),
            "appended": asyncio.create_task(reached(harbour.ship, dict.fromkeys(logs, BEFORE + 3))),
        }
        await harbour.devices[PORT].publish(loads)
        moments = {"published": time.monotonic()}
        await harbour.devices[SHIP].publish([reading(number, BEFORE) for number in numbers])
        moments["readings_published"] = time.monotonic()
        for name, task in watched.items():
            moments[name] = await task
            say(f"{name} {moments[name] - began:.1f} s")
        used = {name: round(now - cpu[name], 2) for name, now in harbour.cpu().items()}
        strays = harbour.ship_bridge.told["strays"]
        peak = harbour.peak_mb()
        await reached(harbour.port, dict.fromkeys(logs, BEFORE + 3))
        await asyncio.sleep(SETTLE)
        await check(harbour.port, harbour.ship, numbers, before=BEFORE, after=1)
        say("checked")
    seconds = moments["appended"] - began
    return {
        "containers": count,
        "seconds": round(seconds, 2),
        "ms_per_container": round(seconds / count * 1000, 3),
        "seconds_until": {name: round(moments[name] - began, 2) for name in MOMENTS},
        "strays": strays,
        "cpu_seconds": used,
        "cpu_ms_per_container": round(sum(used.values()) / count * 1000, 3),
        "peak_rss_mb": peak,
    }


async def _prepare(harbour: Harbour, numbers: list[str], say: Callable[[str], None]) -> None:
    """Every box comes into the port and has some readings there."""
    for start in range(0, len(numbers), _AT_ONCE):
        some = numbers[start : start + _AT_ONCE]
        await harbour.devices[PORT].publish([event("GTIN", number) for number in some])
        stop = start + len(some)
        await _in_port(harbour, stop)
        say(f"{stop} of {len(numbers)} boxes are in the port")
    for sequence in range(BEFORE):
        await harbour.devices[PORT].publish([reading(number, sequence) for number in numbers])
    wanted = BEFORE * len(numbers)
    await harbour.port_bridge.until("their readings", lambda told: told["readings"] >= wanted and not told["unacked"])
    await reached(harbour.ship, {f"custody.{PORT}": await _end(harbour.port, f"custody.{PORT}")})
    await asyncio.sleep(SETTLE)


async def _in_port(harbour: Harbour, count: int) -> None:
    await harbour.port_bridge.until("the boxes in the port", lambda told: bool(told["held"] >= count))


async def _end(cluster: Cluster, log: str) -> int:
    end = (await cluster.end_offsets([TP(log)]))[TP(log)]
    if not isinstance(end, int):
        raise end
    return end


TARGET: Final = {"containers": 5000, "seconds": 20.0, "ms_per_container_ratio": 1.0}


def measure_calls(options: argparse.Namespace, say: Say) -> Figures:
    rows = []
    for count in (int(size) for size in options.sizes.split(",")):
        say(f"a port call of {count:,} boxes")
        rows.append(asyncio.run(measure_call(count, say, brokers=options.brokers)))
        say(f"{rows[-1]}")
    ratio = rows[-1]["ms_per_container"] / rows[0]["ms_per_container"]
    return {"brokers": options.brokers, "rows": rows, "ms_per_container_ratio": round(ratio, 2), "target": TARGET}
