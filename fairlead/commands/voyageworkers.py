"""What runs beside a voyage: bridges, replicators, and the lines under them that have weather."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.commands.context import Context
from fairlead.console import errors
from fairlead.errors import ConfigurationError, UnavailableError
from fairlead.local.workers import Workers
from fairlead.readiness import why_not_ready
from topologies.model import SiteKind

if TYPE_CHECKING:
    from simulators.links.leader import Leader
    from simulators.voyage import Course


PATIENCE = 120.0  # seconds for bridges and replicators that others start
FRESH = 15.0  # seconds; they write their files each second


@contextmanager
def weather(context: Context, trip: Course, *, calm: bool, elsewhere: bool = False) -> Iterator[Leader | None]:
    """What leads the lines under the replicators; None without weather.

    The lines are in this process, with their detours written where ``workers`` finds them; or in one of their own,
    where replicators that run ``elsewhere`` go over them.
    """
    from fairlead.clusters import Clusters
    from simulators.links.leader import Leader
    from simulators.links.network import Network, brokers_of
    from simulators.links.remote import RemoteLines
    from simulators.weather import link_weather
    from topologies.detours import LINES, write_detours
    from topologies.users import ADMIN

    if calm:
        yield None
        return
    sky = link_weather(trip.plan)
    if elsewhere and (there := context.folder / "run" / LINES).exists():
        with RemoteLines(there) as lines:
            yield Leader(context.topology, sky, lines.give)
        return
    if elsewhere or _running(context, "replicate"):
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
def workers(context: Context, phases: dict[str, float], *, weather: bool, elsewhere: bool = False) -> Iterator[None]:
    """One bridge and one replicator process for all sites, unless somebody runs them already; stopped at the end.

    ``elsewhere``: others run them, in containers say, and write what they do into this state folder.

    Raises:
        UnavailableError: they run elsewhere, and one of them is not ready within ``PATIENCE`` seconds.
    """
    if elsewhere:
        with phase(phases, "waiting for bridges and replicators"):
            _await_ready(context)
        yield
        return
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
                    ready=lambda wanted=wanted: not any(map(why_not_ready, wanted)),  # type: ignore[misc]
                )
        yield
    finally:
        background.stop(mine)


def _await_ready(context: Context, patience: float | None = None) -> None:
    end = time.monotonic() + (PATIENCE if patience is None else patience)
    files = [
        context.folder / "run" / name.format(site)
        for command, name in _STATUS_FILES.items()
        for site in _sites_of(context, command)
    ]
    while late := [file for file in files if why_not_ready(file, fresh=FRESH)]:
        if time.monotonic() > end:
            raise UnavailableError(
                f"{len(late)} of {len(files)} bridges and replicators are not ready, for example {late[0].stem}",
                hint="--no-workers uses those that run elsewhere with this state folder; are they up?",
                late=[file.stem for file in late],
            )
        time.sleep(0.2)  # files of other machines tell of no events


def _running(context: Context, command: str) -> bool:
    return any(w.running and w.name.startswith(f"{command}.") for w in Workers(context.folder).all())


_STATUS_FILES = {"bridge": "bridge.{}.json", "replicate": "replicator.{}.json"}


def _sites_of(context: Context, command: str) -> list[str]:
    topology = context.topology
    if command == "bridge":
        return [name for name, site in topology.sites.items() if site.kind is not SiteKind.CUSTOMER]
    return [name for name in topology.sites if topology.links_to(name)]
