"""``fairlead custody``: who may append to a container's log, who might before, and moving it by hand."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Annotated

import typer

from edge.orders.build import named_log
from edge.orders.execute import WAIT
from edge.waiting import WaitingLog
from fairlead.commands import custodyshow
from fairlead.commands.context import (
    DEFAULT_TOPOLOGY,
    Context,
    DryRunOption,
    JsonOption,
    TopologyOption,
    YesOption,
    open_topology,
)
from fairlead.commands.custodyask import ask_first, ground_of
from fairlead.commands.custodybody import chain_body, holders_of, list_body, strays_body
from fairlead.commands.custodyrun import run_order
from fairlead.console import console, emit
from fairlead.custody_chain import Chain, chain
from fairlead.errors import ConfigurationError, ExitCode, UnknownNameError
from fairlead.ledgers import Ledgers
from topologies.values import parse_duration

app = typer.Typer(
    help="Custody: who may append to a container's log, grants and seizures by hand, strays.",
    epilog="LOG is a log's name (containers.BIGU0000013) or a container's number. Without --at the site of shore is "
    "asked, or headquarters, or any that answers.",
    no_args_is_help=True,
)

LogArgument = Annotated[str, typer.Argument(help="A log, or a container's number.", metavar="LOG")]
AtOption = Annotated[str | None, typer.Option("--at", help="Look at this site.", metavar="SITE")]
WaitOption = Annotated[float, typer.Option("--wait", help="Seconds to wait for the bridge to answer.", min=0)]


@app.command()
def show(
    log: LogArgument, at: AtOption = None, topology: TopologyOption = DEFAULT_TOPOLOGY, as_json: JsonOption = False
) -> None:
    """One log's chain of custody: who held it, from which offset to which, by which event.

    Also tells what came back after a seizure, orders that were refused, and a term that was granted twice (then it
    ends with 1).

    Example: fairlead custody show BIGU0000013
    """
    context = open_topology(topology)
    name = named_log(context.topology, log)

    async def look() -> tuple[Ledgers, Chain]:
        async with ground_of(context) as ground:
            ledgers = await ask_first(context.topology, at, lambda site: ground.ledgers(site, about=name))
            return ledgers, chain(name, ledgers.entries, known=ledgers.logs, at=ledgers.site)

    ledgers, found = asyncio.run(look())
    body = chain_body(found, ledgers)
    emit(body, as_json=as_json, render=lambda: custodyshow.show_chain(body, console))
    if found.splits:
        raise typer.Exit(ExitCode.FAILED)


@app.command("list")
def list_(
    held_by: Annotated[
        str | None, typer.Option("--held-by", help="Only the logs that this site holds.", metavar="SITE")
    ] = None,
    at: AtOption = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Every log with its holder.

    Ends with 1 when a log is held by a site that the topology does not have (with the command that seizes it), or a
    term was granted twice.

    Example: fairlead custody list --held-by duck-star
    """
    context = open_topology(topology)
    ledgers = asyncio.run(_ledgers(context, at))
    if held_by is not None and held_by not in context.topology.sites and held_by not in (known := holders_of(ledgers)):
        raise UnknownNameError("site", held_by, {*context.topology.sites, *known})
    body = list_body(context.topology, ledgers, held_by)
    emit(body, as_json=as_json, render=lambda: custodyshow.show_list(body, console))
    if body["stranded"] or body["splits"]:
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def strays(
    at: AtOption = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Only those that wait longer: 24h, 7d.", metavar="TIME")
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Readings and events that wait for custody: of which log, since when, kept where.

    Example: fairlead custody strays --older-than 24h
    """
    context = open_topology(topology)
    span = _span(older_than)

    async def look() -> tuple[Ledgers, tuple[WaitingLog, ...]]:
        async with ground_of(context) as ground:
            ledgers = await ask_first(context.topology, at, ground.ledgers)
            return ledgers, await ground.waiting(ledgers.site, ledgers)

    ledgers, waiting = asyncio.run(look())
    now = dt.datetime.now(dt.UTC)
    left = [kept for each in waiting if (kept := each.longer_than(span, now)) is not None]
    body = strays_body(left, ledgers, now)
    emit(body, as_json=as_json, render=lambda: custodyshow.show_strays(body, console))


@app.command()
def grant(
    log: LogArgument,
    to: Annotated[str, typer.Option("--to", help="The site that gets it.", metavar="SITE")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the order and in the ledger.")] = "",
    dry_run: DryRunOption = False,
    wait: WaitOption = WAIT,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Let the holder give a log to another site.

    The order is written at the holder's site and carried out by its bridge. Ends with 5 when it is refused, with 4
    when nobody answers in time: the order stands then.

    Example: fairlead custody grant BIGU0000013 --to sydney --reason 'loaded without an event'
    """
    context = open_topology(topology)
    run_order(context, "grant", log, to, reason=reason, dry_run=dry_run, yes=True, wait=wait, as_json=as_json)


@app.command()
def seize(
    log: LogArgument,
    at: Annotated[str, typer.Option("--at", help="The site that goes on with the log.", metavar="SITE")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the order and in the ledger.")],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    wait: WaitOption = WAIT,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Go on with the log of a holder that is lost, at another site.

    What the lost holder appended beyond this site's copy comes back as strays when it returns. Asks first at a
    terminal; elsewhere --yes does it.

    Example: fairlead custody seize BIGU0000013 --at sydney --reason 'MV Duck Star sank' --yes
    """
    context = open_topology(topology)
    run_order(context, "seize", log, at, reason=reason, dry_run=dry_run, yes=yes, wait=wait, as_json=as_json)


async def _ledgers(context: Context, at: str | None) -> Ledgers:
    async with ground_of(context) as ground:
        return await ask_first(context.topology, at, ground.ledgers)


def _span(text: str | None) -> dt.timedelta:
    if text is None:
        return dt.timedelta.min
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"--older-than {text}: {error}", hint="a time like 90s, 30m, 24h or 7d") from error
