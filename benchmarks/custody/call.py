"""A port call: N boxes go on board, and their logs with them.

    LOAD events at the port -> grants in its ledger -> logs copied on board -> custody taken -> first new readings

The readings on board are published as soon as the LOADs are out: those that come before custody does are kept as strays
and drained, as it happens with real devices.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.custody.devices import boxes, event, reading
from benchmarks.custody.harbour import Harbour, reached
from benchmarks.custody.logbook import check
from benchmarks.custody.names import PORT, SHIP
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.types import TP

BEFORE: Final = 3  # readings of each box at the port
SETTLE: Final = 2.0
MOMENTS: Final = ("published", "readings_published", "granted", "ledger_copied", "copied", "taken", "appended")
_AT_ONCE: Final = 2_000


async def measure(count: int, say: Callable[[str], None], *, brokers: int = 1) -> dict[str, Any]:
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
