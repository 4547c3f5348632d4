"""A ship is lost: a port takes over the logs of all N boxes that are aboard.

    GTIN and LOAD events at the port -> the plan of ``fairlead custody seize --holder`` -> every log seized

The ship has no brokers: it is lost. The port's bridge runs in a process of its own. The clock runs from the first look
at the ledgers to the last answer, so it has all that an operator waits for. A second plan then finds nothing to do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.brokers import brokers_for, fresh_port
from benchmarks.custody.port_call import MeasuredProcess
from benchmarks.custody.worker import PORT, SHIP, USER, topology
from benchmarks.harbour import SiteDevices, boxes, event
from benchmarks.harness import Figures, Say
from benchmarks.processes import cpu_seconds, peak_rss_mb
from edge.custody.operator.execute import LedgerAccess, open_ledgers
from edge.custody.operator.takeover import (
    TakeoverPlan,
    TakeoverRequest,
    TakeoverRun,
    build_takeover,
    carry_out_takeover,
    look_at_takeover,
)
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.sites import LocalSites

TARGET: Final = {"containers": 20_000, "seconds": 180.0}
_AT_ONCE: Final = 2_000
_WAIT: Final = 120.0  # seconds without an answer after which the measurement is given up


async def measure_seizure(count: int, sites: LocalSites, say: Callable[[str], None]) -> dict[str, Any]:
    """Load ``count`` boxes at the port, then take all over; seconds are counted from the start of the plan."""
    async with contextlib.AsyncExitStack() as stack:
        bridge = await MeasuredProcess.start("bridge", sites.folder, PORT)
        stack.push_async_callback(bridge.stop)
        await bridge.until("its start", lambda told: bool(told["ready"]))
        await _load(count, sites, bridge, say)
        access = await stack.enter_async_context(open_ledgers(topology(), _kafka(sites), answer=60.0))
        cpu, began = cpu_seconds(bridge.gauge), time.monotonic()
        plan = await _plan(access)
        planned = time.monotonic()
        run = TakeoverRun(access, _WAIT)
        await carry_out_takeover(plan, run)
        done = time.monotonic()
        again = await _plan(access)
        if len(run.seized) != count or run.refused or not again.is_empty or dict(again.already) != {PORT: count}:
            raise SystemExit(f"{len(run.seized)} of {count} seized, {len(run.refused)} refused; {again.heading()}")
        return {
            "containers": count,
            "seconds": round(done - began, 2),
            "ms_per_container": round((done - began) / count * 1000, 3),
            "plan_seconds": round(planned - began, 2),
            "second_plan_seconds": round(time.monotonic() - done, 2),
            "bridge_cpu_seconds": round(cpu_seconds(bridge.gauge) - cpu, 2),
            "bridge_peak_rss_mb": peak_rss_mb(bridge.gauge),
        }


def _kafka(sites: LocalSites) -> Callable[[str], KafkaEndpoint]:
    return lambda site: sites.kafka(site, USER)


async def _plan(access: LedgerAccess) -> TakeoverPlan:
    request = TakeoverRequest(SHIP, PORT, "bench", "lost at sea")
    return build_takeover(await look_at_takeover(topology(), access, request))


async def _load(count: int, sites: LocalSites, bridge: MeasuredProcess, say: Callable[[str], None]) -> None:
    """Let every box come in and be loaded; return when the port holds none of them."""
    numbers = boxes(count)
    devices = SiteDevices(sites.mqtt(PORT, "device"))
    try:
        for start in range(0, count, _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            stop = start + len(some)
            await devices.publish([event("GTIN", number) for number in some])
            await bridge.until("the boxes", lambda told, stop=stop: told["opened"] >= stop)  # type: ignore[misc]
            await devices.publish([event("LOAD", number) for number in some])
            await bridge.until("the grants", lambda told, stop=stop: told["grants"] >= stop)  # type: ignore[misc]
            say(f"{stop} of {count} boxes are aboard")
    finally:
        devices.close()


def measure_seizures(options: argparse.Namespace, say: Say) -> Figures:
    rows = []
    for count in (int(size) for size in options.seized.split(",")):
        brokers = brokers_for(count)
        say(f"a ship with {count:,} boxes is lost; the port has {brokers} broker(s)")
        with fresh_port(count) as sites:
            rows.append({**asyncio.run(measure_seizure(count, sites, say)), "brokers": brokers})
        say(f"{rows[-1]}")
    return {"rows": rows, "target": TARGET}
