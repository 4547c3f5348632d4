"""A voyage on real sites, from the first message to the report."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead.commands.context import Context
from fairlead.commands.voyageshow import sailing, telling
from fairlead.commands.voyageworkers import phase
from fairlead.local.workers import Workers

if TYPE_CHECKING:
    from simulators.links.network import Network
    from simulators.report.model import Report
    from simulators.voyage import Course


def sail_and_report(
    context: Context,
    trip: Course,
    speed: float | None,
    patience: float,
    phases: dict[str, float],
    network: Network | None,
    *,
    quiet: bool,
) -> tuple[Report, str]:
    """The voyage, its tables and feeds, and its report with the page."""
    import shore
    from simulators.report.assemble import assemble
    from simulators.report.drawing import page_data
    from simulators.report.page import render
    from simulators.run import sail
    from simulators.settle import settle

    topology, directory, folder = context.topology, context.directory, context.folder
    with phase(phases, "voyage"), sailing(trip, quiet=quiet) as on_progress:
        sailed = asyncio.run(
            sail(
                trip,
                topology,
                directory,
                speed=speed,
                on_progress=on_progress,
                barrier_timeout=patience,
                check=Workers(folder).check,
                network=network,
            )
        )
    with telling(quiet=quiet) as tell:
        with phase(phases, "last replication"):
            tell("waiting for the last records to reach every site")
            asyncio.run(settle(topology, directory, folder, patience=patience))
        if topology.shore:
            with phase(phases, "tables and feeds"):
                tell("filling the Delta tables and the customers' feeds")
                shore.run(topology, directory.kafka(topology.shore.at, "shore"), folder, once=True)
                asyncio.run(settle(topology, directory, folder, patience=patience))
        made = asyncio.run(assemble(sailed, topology, directory, folder, seconds=phases, tell=tell))
    return made, render(made, page_data(sailed, topology, folder))
