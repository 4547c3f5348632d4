"""A voyage on real sites, from the first message to the report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fairlead.commands.context import Context
from fairlead.commands.voyagekeys import keys
from fairlead.commands.voyageshow import sailing, telling
from fairlead.commands.voyageworkers import phase
from fairlead.console import errors
from fairlead.local.workers import Workers

if TYPE_CHECKING:
    from simulators.helm import Helm
    from simulators.links.leader import Leader
    from simulators.report.model import Report
    from simulators.run import Sailed
    from simulators.voyage import Course


@dataclass(frozen=True, slots=True)
class How:
    """How a voyage is sailed: its speed (None: as fast as it goes), the seconds that a barrier may stand still, and
    what is shown meanwhile."""

    speed: float | None
    patience: float
    live: bool
    quiet: bool


def sail_and_report(
    context: Context, trip: Course, how: How, phases: dict[str, float], network: Leader | None
) -> tuple[Report, str]:
    """The voyage, its tables and feeds, and its report with the page.

    Raises:
        KeyboardInterrupt: whoever sails it has had enough.
    """
    import shore
    from simulators.report.assemble import assemble
    from simulators.report.drawing import page_data
    from simulators.report.page import render
    from simulators.settle import settle

    topology, directory, folder = context.topology, context.directory, context.folder
    with phase(phases, "voyage"):
        sailed = asyncio.run(_voyage(context, trip, how, network))
    if sailed is None:
        raise KeyboardInterrupt
    with telling(quiet=how.quiet) as tell:
        with phase(phases, "last replication"):
            tell("waiting for the last records to reach every site")
            asyncio.run(settle(topology, directory, folder, patience=how.patience))
        if topology.shore:
            with phase(phases, "tables and feeds"):
                tell("filling the Delta tables and the customers' feeds")
                shore.run(topology, directory.kafka(topology.shore.at, "shore"), folder, once=True)
                asyncio.run(settle(topology, directory, folder, patience=how.patience))
        made = asyncio.run(assemble(sailed, topology, directory, folder, seconds=phases, tell=tell))
    return made, render(made, page_data(sailed, topology, folder))


async def _voyage(context: Context, trip: Course, how: How, network: Leader | None) -> Sailed | None:
    """The voyage itself, steered and watched; None when it was told to end."""
    from simulators.helm import Helm
    from simulators.live.gather import Gathering
    from simulators.live.screen import shown
    from simulators.run import sail

    helm = Helm(context.folder, trip.plan.scenario.name)
    hooks: dict[str, Any] = {
        "speed": how.speed,
        "barrier_timeout": how.patience,
        "check": Workers(context.folder).check,
        "network": network,
        "on_player": helm.take,
    }
    with _steered(helm, how) as steerable:
        if how.live and errors.is_terminal and not how.quiet:
            gathering = Gathering(trip, speed=how.speed, keys=steerable)
            hooks |= {"on_published": gathering.published, "on_alert": gathering.alerted}
            progressed = [helm.progressed, gathering.progressed]
            async with shown(gathering, context.topology, context.folder, errors, lambda: helm.player):
                return await helm.run(
                    sail(trip, context.topology, context.directory, on_progress=_all(progressed), **hooks)
                )
        with sailing(trip, quiet=how.quiet, steerable=steerable) as on_progress:
            both = _all([helm.progressed, on_progress])
            return await helm.run(sail(trip, context.topology, context.directory, on_progress=both, **hooks))


@contextmanager
def _steered(helm: Helm, how: How) -> Iterator[bool]:
    """Keys, where somebody watches."""
    if how.quiet or not errors.is_terminal:
        yield False
        return
    with keys(helm) as steerable:
        yield steerable


def _all(listeners: list[Any]) -> Any:
    def tell(now: Any) -> None:
        for listener in listeners:
            listener(now)

    return tell
