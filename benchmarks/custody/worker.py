"""A measured process: one site's bridge or replicator, as ``fairlead bridge`` and ``fairlead replicate`` run them.

    python -m benchmarks.custody.worker bridge|replicator FOLDER SITE

Prints its state as a line of JSON at every change, at most ten times a second; ends at SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import uvloop

from fairlead.local.registry import LocalSiteRegistry
from topologies.model import Topology

PORT: Final = "harbour"
SHIP: Final = "vessel"
USER: Final = "admin"
IMO: Final = "9074729"
CODE: Final = "JPTYO"
_EVERYWHERE: Final = ("custody", "alerts", "events", "ships", "strays", "deadletters")


def topology() -> Topology:
    """A port and a ship that lies there: everything to the port, on board only what is aboard."""
    ashore = {**dict.fromkeys(_EVERYWHERE, "all"), "containers": "all"}
    on_board = {**dict.fromkeys(_EVERYWHERE, "all"), "containers": "aboard"}
    return Topology.model_validate(
        {
            "name": "bench",
            "sites": {PORT: {"kind": "port", "unlocode": CODE}, SHIP: {"kind": "ship", "imo": IMO}},
            "streams": {
                "ships": {"insert_point": "ship"},
                "events": {},
                "alerts": {"priority": "urgent"},
                "custody": {"priority": "control"},
                "strays": {"priority": "bulk"},
                "deadletters": {"priority": "bulk"},
                "bookings": {},
                "containers": {"insert_point": "moves", "owners": ["BIGU"]},
            },
            "links": [
                {"from": SHIP, "to": PORT, "streams": ashore},
                {"from": PORT, "to": SHIP, "streams": on_board},
            ],
        }
    )


EVERY = 0.1
TOLD = ("ready", "received", "unacked", "grants", "opened", "readings", "strays", "drained", "strays_waiting")


async def bridge(folder: Path, site: str, stop: asyncio.Event) -> None:
    from edge.bridge import Bridge, BridgeSettings  # each process loads only what it runs

    sites = LocalSiteRegistry(folder)
    running = Bridge(
        topology(),
        site,
        sites.kafka(site, USER),
        sites.mqtt(site, "bridge"),
        BridgeSettings(folder / f"bridge.{site}.json"),
    )

    def now() -> dict[str, Any]:
        shown = running.snapshot()
        return {**{key: shown[key] for key in TOLD}, "held": shown["custody"]["held"]}

    await _told(asyncio.ensure_future(running.run(stop)), now)


async def replicator(folder: Path, site: str, stop: asyncio.Event) -> None:
    from replication.replicator import Replicator

    sites = LocalSiteRegistry(folder)
    running = Replicator(
        topology(),
        site,
        sites.kafka(site, USER),
        lambda source: sites.kafka(source, USER),
        status_file=folder / f"replicator.{site}.json",
    )

    def now() -> dict[str, Any]:
        shown = running.snapshot()
        return {"ready": all(link["state"] == "mirroring" for link in shown["links"]), "troubled": len(shown["logs"])}

    await _told(asyncio.ensure_future(running.run(stop)), now)


async def _told(work: asyncio.Future[None], now: Callable[[], dict[str, Any]]) -> None:
    before: dict[str, Any] = {}
    while not work.done():
        shown = now()
        if shown != before:
            print(json.dumps(shown), flush=True)
            before = shown
        await asyncio.wait({work}, timeout=EVERY)
    await work


async def main(what: str, folder: str, site: str) -> None:
    stop = asyncio.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the harness, which stops its processes
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await {"bridge": bridge, "replicator": replicator}[what](Path(folder), site, stop)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:4]))
