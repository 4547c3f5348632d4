"""What runs beside a voyage: bridges, replicators, and the lines under them that have weather."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.commands.context import Context
from fairlead.console import errors
from fairlead.errors import ConfigurationError
from fairlead.local.workers import Workers
from topologies.model import SiteKind

if TYPE_CHECKING:
    from simulators.links.network import Network
    from simulators.voyage import Course


@contextmanager
def weather(context: Context, trip: Course, *, calm: bool) -> Iterator[Network | None]:
    """The lines under the replicators, with their detours written where ``workers`` finds them; None without."""
    from fairlead.clusters import Clusters
    from simulators.links.network import Network, brokers_of
    from simulators.weather import link_weather
    from topologies.detours import write_detours
    from topologies.users import ADMIN

    if calm:
        yield None
        return
    sky = link_weather(trip.plan)
    if _running(context, "replicate"):
        cut = next(sky.outages(), None)
        if cut is not None:
            raise ConfigurationError(
                f"scenario {trip.plan.scenario.name} cuts the link between {' and '.join(cut[0])}, and the replicators "
                "that run already do not go over links that can be cut",
                hint="stop them, so that the voyage starts its own; --calm sails it with every link up",
            )
        errors.print("links have no weather: it takes replicators that the voyage starts")
        yield None
        return

    async def brokers() -> dict[str, tuple[tuple[str, int], ...]]:
        async with Clusters(lambda site: context.directory.kafka(site, ADMIN), client_id="fairlead-voyage") as clusters:
            return await brokers_of(clusters, context.topology.sites)

    with Network(context.topology, sky, asyncio.run(brokers()), seed=trip.plan.seed) as network:
        write_detours(_detours(context), network.detours)
        yield network


def _detours(context: Context) -> Path:
    return context.folder / "run" / "detours.json"


@contextmanager
def phase(phases: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    phases[name] = round(time.monotonic() - began, 1)


@contextmanager
def workers(context: Context, phases: dict[str, float], *, weather: bool) -> Iterator[None]:
    """One bridge and one replicator process for all sites, unless somebody runs them already; stopped at the end."""
    background = Workers(context.folder)
    options = {"bridge": [], "replicate": ["--detours", str(_detours(context))] if weather else []}
    mine = []
    try:
        with phase(phases, "starting bridges and replicators"):
            for command, files in _STATUS_FILES.items():
                if _running(context, command):
                    errors.print(f"{command}: using the workers that run")
                    continue
                wanted = [context.folder / "run" / files.format(site) for site in _sites_of(context, command)]
                for file in wanted:
                    file.unlink(missing_ok=True)  # of an earlier run, whose "ready" says nothing
                mine.append(f"{command}.all")
                background.start(
                    f"{command}.all",
                    [command, "--all", "--topology", context.source, *options[command]],
                    ready=lambda wanted=wanted: all(map(_is_ready, wanted)),  # type: ignore[misc]
                )
        yield
    finally:
        background.stop(mine)


def _running(context: Context, command: str) -> bool:
    return any(w.running and w.name.startswith(f"{command}.") for w in Workers(context.folder).all())


_STATUS_FILES = {"bridge": "bridge.{}.json", "replicate": "replicator.{}.json"}


def _sites_of(context: Context, command: str) -> list[str]:
    topology = context.topology
    if command == "bridge":
        return [name for name, site in topology.sites.items() if site.kind is not SiteKind.CUSTOMER]
    return [name for name in topology.sites if topology.links_to(name)]


def _is_ready(file: Path) -> bool:
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    ready = body["ready"] if "ready" in body else body["target"]["state"] == "up"
    return bool(ready)
