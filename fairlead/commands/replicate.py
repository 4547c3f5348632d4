"""``fairlead replicate``: pull over a site's links until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Annotated

import typer
import uvloop
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, TopologyOption, open_topology
from fairlead.console import errors
from fairlead.errors import ConfigurationError, UnknownNameError
from replication.replicator import Replicator
from topologies.users import upstream_user

REFRESH_SECONDS = 1.0
_STYLES = {"mirroring": "green", "closed": "dim", "unavailable": "bold red"}


def replicate(
    at: Annotated[
        list[str] | None, typer.Option("--at", help="The site to pull to; may be repeated.", metavar="SITE")
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Every site that a link leads to.")] = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
) -> None:
    """Keep a site's copies of other sites' logs up to date, until Ctrl-C.

    Pulls over the topology's links and appends at identical offsets. It keeps no state of its own: stop, kill or start
    it at any time, also twice.

    Example: fairlead replicate --at singapore --at tokyo
    """
    context = open_topology(topology)
    sites = _sites(context, at or [], everywhere)
    replicators = [replicator_for(context, site) for site in sites]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(replicators))


def replicator_for(context: Context, site: str) -> Replicator:
    """The replicator of one site of a topology, with its usual users and status file.

    Raises:
        FairleadError: the site was never started, or its password is not known.
    """
    user = upstream_user(site)
    return Replicator(
        context.topology,
        site,
        context.directory.kafka(site, "replicator"),
        lambda source: context.directory.kafka(source, user),
        status_file=context.folder / "run" / f"replicator.{site}.json",
    )


def _sites(context: Context, at: Sequence[str], everywhere: bool) -> list[str]:
    targets = [name for name in context.topology.sites if context.topology.links_to(name)]
    if everywhere:
        return targets
    if not at:
        raise ConfigurationError("which site?", hint=f"--at SITE, or --all; links lead to: {', '.join(targets)}")
    for site in at:
        if site not in context.topology.sites:
            raise UnknownNameError("site", site, context.topology.sites)
        if site not in targets:
            raise ConfigurationError(f"no link leads to {site}", hint=f"links lead to: {', '.join(targets)}")
    return list(dict.fromkeys(at))


async def _run(replicators: Sequence[Replicator]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    shown = asyncio.ensure_future(_show(replicators))
    try:
        async with asyncio.TaskGroup() as group:
            for each in replicators:
                group.create_task(each.run(stop))
    finally:
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)
    errors.print("stopped")


async def _show(replicators: Sequence[Replicator]) -> None:
    """A table that keeps itself up to date on a terminal; one line elsewhere."""
    if not errors.is_terminal:
        errors.print(f"replicating to {', '.join(each.site for each in replicators)}")
        return
    with Live(_table(replicators), console=errors, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            live.update(_table(replicators), refresh=True)


def _table(replicators: Sequence[Replicator]) -> Table:
    table = Table("link", "state", "logs", "records", "MB", "lag", "stopped logs", box=None, pad_edge=False)
    for each in replicators:
        now = each.snapshot()
        for link in now["links"]:
            state = now["target"]["state"] if now["target"]["state"] != "up" else link["state"]
            cause = now["target"]["cause"] or link["cause"]
            table.add_row(
                link["name"],
                f"[{_STYLES.get(state, 'yellow')}]{state}[/]" + (f" [dim]{escape(cause[:60])}[/]" if cause else ""),
                str(link["followed"]),
                str(link["records"]),
                f"{link['bytes'] / 1e6:.1f}",
                "-" if link["lag"] is None else str(link["lag"]),
                str(len(now["logs"]) or ""),
            )
    return table
