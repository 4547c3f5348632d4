"""``fairlead custody``: show who may append to a container's log, and move it by hand."""

from __future__ import annotations

import asyncio
import datetime as dt
import getpass
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final, Literal, TypeVar

import typer
from rich.markup import escape

from edge.custody.operator.execute import (
    WAIT,
    CustodyRun,
    LedgerAccess,
    OrderStandsError,
    carry_out,
    open_ledgers,
)
from edge.custody.operator.plan import (
    CustodyPlan,
    CustodyRequest,
    build,
    check_names,
    look_at_grant,
    look_at_seizure,
    named_log,
    nobody_answers,
)
from edge.custody.operator.takeover import (
    TakeoverPlan,
    TakeoverRequest,
    TakeoverRun,
    build_takeover,
    carry_out_takeover,
    check_takeover,
    describe_unanswered,
    look_at_takeover,
)
from edge.strays.report import WaitingLog
from fairlead.cli.commands.context import (
    DryRunOption,
    JsonOption,
    SiteOption,
    TopologyOption,
    WaitOption,
    YesOption,
    parse_span,
    site_option,
)
from fairlead.cli.commands.custody import render as custodyshow
from fairlead.cli.commands.custody.render import (
    chain_body,
    holders_of,
    list_body,
    plan_body,
    strays_body,
    takeover_body,
)
from fairlead.cli.console import Consent, console, emit, print_notes, print_plan, telling
from fairlead.custody.history import Chain, chain
from fairlead.custody.ledger import Ledgers
from fairlead.errors import ExitCode, FairleadError, OptionError, UnknownNameError
from fairlead.records.custody import CustodyEntry
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology, running_kafka
from topologies.model import SiteKind, Topology, check_sites

T = TypeVar("T")

_LIKELY: Final = (SiteKind.HQ, SiteKind.PORT, SiteKind.DATACENTRE, SiteKind.SHIP)
"""Kinds of sites to ask after the site where shore runs; most customers' sites do not get the ledger."""


def likely_sites(topology: Topology, at: str | None) -> list[str]:
    """Return the sites to ask, in order: ``at`` alone, or all that have a ledger, those ashore first.

    Raises:
        UnknownNameError: the topology has no site ``at``.
    """
    if at is not None:
        return list(check_sites(topology, [at]))
    by_kind = [name for kind in _LIKELY for name, site in topology.sites.items() if site.kind is kind]
    shore = [topology.shore.at] if topology.shore is not None else []
    return list(dict.fromkeys([*shore, *by_kind]))


async def ask_first(topology: Topology, at: str | None, question: Callable[[str], Awaitable[T]]) -> T:
    """Return the answer of the site ``at``, or of the first likely site that answers.

    Args:
        question: Asks one site. It raises ``FairleadError`` only if the site does not answer.

    Raises:
        UnavailableError: no site answers. FairleadError: ``at`` does not answer.
    """
    sites = likely_sites(topology, at)
    away: tuple[str, FairleadError] | None = None
    for site in sites:
        try:
            return await question(site)
        except FairleadError as error:
            if at is not None:
                raise
            away = away or (site, error)
    raise nobody_answers(sites, away)


def access_of(context: Context) -> AbstractAsyncContextManager[LedgerAccess]:
    """Open access to a topology's ledgers as the sites' administrators."""
    return open_ledgers(context.topology, running_kafka(context, started=False))


def run_order(
    context: Context,
    kind: Literal["grant", "seize"],
    log: str,
    to_site: str,
    *,
    reason: str,
    consent: Consent,
    wait: float,
    as_json: bool,
) -> None:
    """Make the plan of an order, or refuse it; carry the plan out with consent."""
    log = named_log(context.topology, log)
    check_names(context.topology, kind, log, to_site)
    plan = asyncio.run(_plan(context, kind, CustodyRequest(log, to_site, getpass.getuser(), reason)))
    wanted = consent.given(lambda on: print_plan(plan.lines(), on))
    entry = asyncio.run(_execute(context, plan, wait, quiet=as_json)) if wanted else None
    emit(
        plan_body(plan, entry, applied=wanted),
        as_json=as_json,
        render=lambda: _render(plan, entry, consent),
    )


async def _plan(context: Context, kind: Literal["grant", "seize"], request: CustodyRequest) -> CustodyPlan:
    async with access_of(context) as access:
        if kind == "grant":
            ask = likely_sites(context.topology, None)
            return build(await look_at_grant(context.topology, access, request, ask))
        return build(await look_at_seizure(context.topology, access, request))


async def _execute(context: Context, plan: CustodyPlan, wait: float, *, quiet: bool) -> CustodyEntry:
    async with access_of(context) as access:
        with telling(quiet=quiet) as tell:
            return await carry_out(plan, CustodyRun(access, wait, tell))


def _render(plan: CustodyPlan, entry: CustodyEntry | None, consent: Consent) -> None:
    if entry is None:
        consent.unchanged(lambda on: print_plan(plan.lines(), on))
        return
    console.print(
        f"[green]done[/]: {escape(str(entry.to_site))} holds {escape(entry.log)} in term {entry.term}, from offset "
        f"{entry.marker_offset + 1:,} (before: {escape(str(plan.holder))} in term {plan.term})",
        soft_wrap=True,
    )
    print_notes(plan.notes)


app = typer.Typer(
    help="Show who may append to a container's log; grant and seize by hand; list strays.",
    epilog="LOG is a log's name (containers.BIGU0000013) or a container's number. Without --site the site of shore is "
    "asked, or headquarters, or any that answers.\n\nExample: fairlead custody show BIGU3375567",
    no_args_is_help=True,
)

LogArgument = Annotated[str, typer.Argument(help="A log, or a container's number.", metavar="LOG")]


@app.command()
def show(
    log: LogArgument, at: SiteOption = None, topology: TopologyOption = DEFAULT_TOPOLOGY, as_json: JsonOption = False
) -> None:
    """Show a log's chain of custody: who held it, at which offsets, by which event.

    Also shows copies that returned after a seizure, refused orders, and a term that was granted twice (then it ends
    with 1).

    Example: fairlead custody show BIGU0000013
    """
    context = open_topology(topology)
    name = named_log(context.topology, log)

    async def look() -> tuple[Ledgers, Chain]:
        async with access_of(context) as access:
            ledgers = await ask_first(context.topology, at, lambda site: access.ledgers(site, about=name))
            return ledgers, chain(name, ledgers.entries, known=ledgers.logs, at=ledgers.site)

    ledgers, found = asyncio.run(look())
    body = chain_body(found, ledgers)
    emit(body, as_json=as_json, render=lambda: custodyshow.show_chain(body, console))
    if found.splits:
        raise typer.Exit(ExitCode.FAILED)


@app.command("list")
def list_(
    held_by: Annotated[
        str | None, typer.Option("--held-by", help="Only logs that this site holds.", metavar="SITE")
    ] = None,
    at: SiteOption = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """List every log with its holder.

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
    at: SiteOption = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Only those that have waited longer: 24h, 7d.", metavar="TIME")
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """List readings and events that wait for custody: their log, since when, and which site keeps them.

    Example: fairlead custody strays --older-than 24h
    """
    context = open_topology(topology)
    span = dt.timedelta.min if older_than is None else parse_span("--older-than", older_than)

    async def look() -> tuple[Ledgers, tuple[WaitingLog, ...]]:
        async with access_of(context) as access:
            ledgers = await ask_first(context.topology, at, access.ledgers)
            return ledgers, await access.waiting(ledgers.site, ledgers)

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
    yes: YesOption = False,
    wait: WaitOption = WAIT,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Order the holder of a log to give it to another site.

    The holder's bridge carries the order out. Ends with 5 when the bridge refuses it, and with 4 when the bridge does
    not answer in time; it then carries the order out later.

    Example: fairlead custody grant BIGU0000013 --to sydney --reason 'loaded without an event' --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    run_order(open_topology(topology), "grant", log, to, reason=reason, consent=consent, wait=wait, as_json=as_json)


@app.command()
def seize(
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the order and in the ledger.")],
    log: Annotated[str | None, typer.Argument(help="A log, or a container's number.", metavar="[LOG]")] = None,
    holder: Annotated[
        str | None, typer.Option("--holder", help="Take over all logs of this lost site instead.", metavar="SITE")
    ] = None,
    at: Annotated[
        str | None,
        site_option(
            "The site that takes over. With --holder, the default is for each log the site ashore with the "
            "longest copy."
        ),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    wait: WaitOption = WAIT,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Let a site take over a log whose holder is lost, or all logs of a lost ship.

    Readings that the lost holder appended after the end of this site's copy become strays when it returns. With
    --holder, run the same command again after an interruption: it continues, and says how many logs are taken over
    already. --wait is then the time without any new answer. Ends with 5 when a log was refused or cannot be taken
    over, and with 4 when orders stand without an answer.

    Example: fairlead custody seize --holder duck-star --site sydney --reason 'MV Duck Star sank' --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    if (log is None) == (holder is None):
        raise OptionError(
            "give either one log or --holder",
            hint="one log: fairlead custody seize LOG --site SITE --reason TEXT; all logs of a lost ship: fairlead "
            "custody seize --holder SHIP --reason TEXT",
        )
    if holder is not None:
        request = TakeoverRequest(holder, at, getpass.getuser(), reason)
        run_takeover(context, request, consent=consent, wait=wait, as_json=as_json)
        return
    if log is None or at is None:
        raise OptionError(
            "a seizure of one log needs the site that takes it over",
            hint=f"--site SITE, one of: {', '.join(sorted(context.topology.sites))}",
        )
    run_order(context, "seize", log, at, reason=reason, consent=consent, wait=wait, as_json=as_json)


def run_takeover(context: Context, request: TakeoverRequest, *, consent: Consent, wait: float, as_json: bool) -> None:
    """Make the plan of a takeover; carry it out with consent.

    Raises:
        typer.Exit: with 5 when a log was refused or is left, with 4 when orders stand without an answer.
    """
    check_takeover(context.topology, request)
    plan = asyncio.run(_takeover_plan(context, request))
    wanted = not plan.is_empty and consent.given(lambda on: print_plan(plan.lines(), on))
    run = asyncio.run(_take_over(context, plan, wait, quiet=as_json)) if wanted else None

    def render() -> None:
        if run is not None:
            custodyshow.show_takeover(plan, run, console)
        elif plan.is_empty:
            print_plan(plan.lines(), console)
        else:
            consent.unchanged(lambda on: print_plan(plan.lines(), on))

    emit(takeover_body(plan, request, run), as_json=as_json, render=render)
    if run is not None and run.unanswered:
        raise OrderStandsError(
            describe_unanswered(run),
            hint="fairlead status; the bridge carries them out when it runs; the same command continues",
            sites=sorted(run.trouble),
        )
    declined = run is None and not plan.is_empty
    if not declined and not consent.dry_run and (plan.left or (run is not None and run.refused)):
        raise typer.Exit(ExitCode.REFUSED)


async def _takeover_plan(context: Context, request: TakeoverRequest) -> TakeoverPlan:
    async with access_of(context) as access:
        return build_takeover(await look_at_takeover(context.topology, access, request))


async def _take_over(context: Context, plan: TakeoverPlan, wait: float, *, quiet: bool) -> TakeoverRun:
    async with access_of(context) as access:
        with telling(quiet=quiet) as tell:
            run = TakeoverRun(access, wait, tell)
            await carry_out_takeover(plan, run)
            return run


async def _ledgers(context: Context, at: str | None) -> Ledgers:
    async with access_of(context) as access:
        return await ask_first(context.topology, at, access.ledgers)
