"""``fairlead replicate``: pull over a site's links until Ctrl-C."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer
import uvloop
from pydantic import ByteSize, TypeAdapter, ValidationError
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fairlead.cli.commands.context import (
    MetricsHostOption,
    MetricsPortOption,
    TopologyOption,
    metrics_page,
    site_option,
)
from fairlead.cli.console import errors
from fairlead.errors import ConfigurationError, OptionError
from fairlead.kafka.endpoint import Address
from fairlead.scrape import ADDRESS, MetricsServer, Watched, serve
from fairlead.waiting import in_background, stopped_by_signals
from replication.operations.links.access import member_status_file, status_file
from replication.replicator import MEMORY, Replicator
from replication.states import LogState
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology
from topologies.endpoints import read_address_overrides
from topologies.model import check_sites
from topologies.users import upstream_user

REFRESH_SECONDS = 1.0
LEAST_MEMORY = 32_000_000
_SIZE = TypeAdapter(ByteSize)
_STYLES = {"mirroring": "green", "closed": "dim", "paused": "yellow", "unavailable": "bold red"}


def replicate(
    at: Annotated[list[str] | None, site_option("Mirror to this site; may be repeated.")] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Run for every site that needs a replicator.")] = False,
    memory: Annotated[
        str,
        typer.Option(help="Memory per site for batches that wait to be appended; at least 32 MB.", metavar="SIZE"),
    ] = "256 MB",
    group: Annotated[
        str | None,
        typer.Option(
            help="Share the site's logs with all replicators of the site that have the same group, on any machine.",
            metavar="NAME",
        ),
    ] = None,
    metrics_port: MetricsPortOption = None,
    metrics_host: MetricsHostOption = ADDRESS,
    address_overrides: Annotated[
        Path | None,
        typer.Option("--address-overrides", help="File with other addresses for the sources' brokers.", metavar="FILE"),
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
) -> None:
    """Copy other sites' logs to a site, until Ctrl-C.

    Copies over the topology's links to identical offsets. Stop, kill or start it at any time, even twice. It acts on
    the orders of "fairlead link" at once. With --group, several replicators divide the site's logs and each link's
    rate, and replace one that is gone within 10 s.

    Example: fairlead replicate --site singapore --site tokyo --memory 64MB --metrics-port 9404
    """
    context = open_topology(topology)
    sites = _sites(context, at or [], everywhere)
    size = parse_memory(memory)
    around = read_address_overrides(address_overrides) if address_overrides else {}
    check_group(group)
    replicators = [
        replicator_for(context, site, memory=size, group=group, address_overrides=around.get(site, {}))
        for site in sites
    ]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(context, replicators, metrics_host, metrics_port))


def parse_memory(text: str) -> int:
    """Parse ``256 MB``, ``64MiB`` or ``1gb`` into bytes.

    Raises:
        ConfigurationError: it is no size, or less than a replicator can work with.
    """
    try:
        size = int(_SIZE.validate_python(text))
    except ValidationError:
        size = 0
    if size < LEAST_MEMORY:
        raise OptionError(
            f"--memory {text}: expected a size of at least {LEAST_MEMORY // 10**6} MB",
            hint="with its unit, such as 256MB; 32MB is enough for a thin link",
            memory=text,
        )
    return size


def check_group(name: str | None) -> None:
    """Check the name of a group.

    Raises:
        ConfigurationError: it is no name that Kafka and file names allow.
    """
    if name is not None and not re.fullmatch(r"[a-zA-Z0-9._-]{1,100}", name):
        raise OptionError(f"--group {name}: expected letters, digits, '.', '_' and '-', at most 100", group=name)


def replicator_for(
    context: Context,
    site: str,
    *,
    memory: int = MEMORY,
    group: str | None = None,
    address_overrides: Mapping[str, tuple[tuple[Address, Address], ...]] = MappingProxyType({}),
) -> Replicator:
    """Create the replicator of one site of a topology, with its usual users and status file.

    Args:
        memory: Bytes of fetched batches that may wait for the site.
        group: Of replicators that share the site's logs.
        address_overrides: By source, see ``KafkaEndpoint.address_overrides``.

    Raises:
        FairleadError: the site was never started, or its password is not known.
    """
    user = upstream_user(site)
    context.resolver.kafka(site, "replicator")  # report wrong settings of the target at once
    return Replicator(
        context.topology,
        site,
        lambda: context.resolver.kafka(site, "replicator"),
        lambda source: replace(
            context.resolver.kafka(source, user), address_overrides=address_overrides.get(source, ())
        ),
        status_file=(status_file if group is None else member_status_file)(context.folder, site),
        memory=memory,
        group=group,
    )


def _sites(context: Context, at: Sequence[str], everywhere: bool) -> list[str]:
    targets = [name for name in context.topology.sites if context.topology.has_replicator(name)]
    if everywhere:
        return targets
    if not at:
        raise OptionError("which site?", hint=f"--site SITE, or --all; sites with a replicator: {', '.join(targets)}")
    check_sites(context.topology, at)
    for site in at:
        if site not in targets:
            raise ConfigurationError(
                f"no link leads to {site}, and it keeps every stream for ever: a replicator has nothing to do there",
                hint=f"sites with a replicator: {', '.join(targets)}",
                site=site,
            )
    return list(dict.fromkeys(at))


async def _run(
    context: Context, replicators: Sequence[Replicator], metrics_host: str, metrics_port: int | None
) -> None:
    def start(port: int, host: str) -> MetricsServer:
        from fairlead.kafka.admin import admin_client
        from replication.metrics import (
            BrokersCollector,
            replication_metrics,  # imports an HTTP server, which few replicators need
        )

        endpoints = {each.site: partial(context.resolver.kafka, each.site, "replicator") for each in replicators}
        return serve(replication_metrics, replicators, port, host, [BrokersCollector(endpoints, admin_client)])

    async with metrics_page(start, metrics_port, metrics_host):
        await _replicate(replicators)


async def _replicate(replicators: Sequence[Replicator]) -> None:
    stop = stopped_by_signals()
    async with in_background(_show(replicators)), asyncio.TaskGroup() as group:
        for each in replicators:
            group.create_task(each.run(stop))
    errors.print("stopped")


async def _show(replicators: Sequence[Replicator]) -> None:
    """Show a table that refreshes itself on a terminal; print one line elsewhere."""
    if not errors.is_terminal:
        errors.print(f"replicating to {', '.join(each.site for each in replicators)}")
        return
    with Live(live_table(replicators), console=errors, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            live.update(live_table(replicators), refresh=True)


def live_table(replicators: Sequence[Watched]) -> Table:
    """Make a table with the current state of every link of some replicators."""
    table = Table("link", "state", "logs", "records", "MB", "lag", "paused", "in trouble", box=None, pad_edge=False)
    for each in replicators:
        now = each.snapshot()
        paused, troubled = Counter[str](), Counter[str]()
        for log in now["logs"].values():
            (paused if log["state"] == LogState.PAUSED else troubled)[log["link"] or ""] += 1
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
                str(paused[link["name"]] or ""),
                str(troubled[link["name"]] or ""),
            )
        if troubled[""]:  # troubles that belong to no single link
            table.add_row(f"(logs of {now['site']})", *[""] * 6, str(troubled[""]))
    return table
