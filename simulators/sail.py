"""Sail a voyage on real sites that are up, and report what arrived.

Call ``voyage_services`` first, then ``sail_watched``, then ``make_report``, as ``fairlead voyage run`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

from fairlead.local.files import write_file
from fairlead.local.sites import LocalSites
from fairlead.plan import Tell, silent
from simulators.report.assemble import assemble
from simulators.report.model import Report
from simulators.voyage.control import VoyageControl, report_file
from simulators.voyage.player import Progress
from simulators.voyage.run import Sailed, sail
from simulators.voyage.services import SailSettings, VoyageServices, timed
from simulators.voyage.voyage import VoyageSource
from simulators.voyage.waiting import wait_until_settled
from topologies.context import Context

if TYPE_CHECKING:
    from shore.verify import TableCheck


OnProgress = Callable[[Progress], None]
Display = Callable[[VoyageControl], AbstractAsyncContextManager[OnProgress]]
"""Shows a voyage's progress for as long as the block lasts, and may steer it."""


@asynccontextmanager
async def no_display(_control: VoyageControl) -> AsyncIterator[OnProgress]:
    """Show nothing."""
    yield lambda _: None


async def sail_watched(
    context: Context,
    trip: VoyageSource,
    settings: SailSettings,
    services: VoyageServices,
    display: Display = no_display,
) -> Sailed | None:
    """Play the voyage; other processes can pause and resume it. Return None if it was ended early.

    Raises:
        BarrierTimeout: a barrier made no progress for ``settings.patience`` seconds.
    """
    network = services.network
    cuts = network.cuts_until if network is not None else lambda _: ()
    control = VoyageControl(context.folder, trip.plan.scenario.name, cuts)
    async with display(control) as show:

        def progressed(now: Progress) -> None:
            control.on_progress(now)
            show(now)

        with timed(services.phases, "voyage"):
            return await control.run(
                sail(
                    trip,
                    context.topology,
                    context.resolver,
                    speed=settings.speed,
                    barrier_timeout=settings.patience,
                    check=services.check,
                    network=network,
                    on_step=services.headquarters.on_step if services.headquarters else None,
                    left_over=services.headquarters.left_over_now if services.headquarters else None,
                    on_player=control.attach,
                    on_progress=progressed,
                    end_site=None if settings.elsewhere else LocalSites(context.folder).kill_site,
                    source=context.source,
                )
            )


def make_report(
    context: Context, sailed: Sailed, settings: SailSettings, services: VoyageServices, *, tell: Tell = silent
) -> Report:
    """Wait for the last records, fill the tables and feeds, and compare all sites with what was published.

    Keep the report in the topology's state folder, where the board finds it.
    """
    lost = services.headquarters
    topology = lost.left_over if lost is not None else context.topology
    resolver, folder = context.resolver, context.folder

    def settle() -> None:
        asyncio.run(
            wait_until_settled(
                topology, resolver, folder, patience=settings.patience, check=services.check, sunk=sailed.sunk
            )
        )

    with timed(services.phases, "last replication"):
        tell("waiting for the last records to reach every site")
        settle()
    checks: tuple[TableCheck, ...] = ()
    if services.shore is not None:
        with timed(services.phases, "tables and feeds"):
            tell("filling the Delta tables and the customers' feeds")
            services.shore.fill()
            settle()
        with timed(services.phases, "verification"):
            tell("comparing the tables with the logs")
            checks = services.shore.verify().tables
    seconds = services.phases
    report = asyncio.run(
        assemble(sailed, topology, resolver, folder, checks=checks, seconds=seconds, tell=tell, lost=lost)
    )
    write_file(report_file(folder), report.to_json())
    return report
