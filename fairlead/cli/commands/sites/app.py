"""``fairlead site distrust``: shut out a ship whose machine is in somebody else's hands."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import typer
from rich.markup import escape

from edge.custody.operator.execute import WAIT, CustodyRun, LedgerAccess, carry_out
from edge.custody.operator.plan import CustodyRequest, build, look_at_seizure, nobody_answers
from fairlead.cli.commands.context import (
    DEFAULT_TOPOLOGY,
    Context,
    DryRunOption,
    JsonOption,
    TopologyOption,
    WaitOption,
    YesOption,
    complete_site,
    open_topology,
)
from fairlead.cli.commands.custody.app import access_of
from fairlead.cli.commands.link import execute_plan, plan_verb
from fairlead.cli.console import Consent, console, emit, lines, site_progress, telling
from fairlead.custody.history import Chain, chains
from fairlead.custody.ledger import Ledgers, Told
from fairlead.errors import ExitCode, FairleadError, RefusedError, UnknownNameError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.records.custody import LedgerEntry
from replication.operations.links.facts import LinkScope, Verb
from topologies.model import Link, SiteKind, Topology
from topologies.trust import Rules, sift
from topologies.users import service_users, upstream_user

AT_ONCE = 50
"""Logs that are seized at the same time."""

app = typer.Typer(help="Shut out a ship that is no longer trusted.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Typer makes a group of an application with one command only if it has this."""


@dataclass(frozen=True, slots=True)
class PlannedSeizure:
    """A log to be taken from the ship: ``at`` is the site ashore that goes on with it; None where none has a copy."""

    log: str
    term: int
    at: str | None


@dataclass(frozen=True, slots=True)
class Distrust:
    """All that shuts a ship out.

    Args:
        links: From the ship: their targets fetch nothing more.
        users: Sites and the users that get another password there; those of the ship itself come last.
        seizures: Of the logs that the ship holds.
    """

    ship: str
    links: tuple[Link, ...]
    users: tuple[tuple[str, str], ...]
    seizures: tuple[PlannedSeizure, ...]

    def lines(self) -> list[str]:
        """The plan for a person."""
        told = [f"{link.to}: fetch nothing more over {link.name}" for link in self.links]
        told += [f"{site}: give {user} another password" for site, user in self.users]
        told += [f"{each.at}: seize {each.log} (term {each.term})" for each in self.seizures if each.at is not None]
        left = [each.log for each in self.seizures if each.at is None]
        return told + [f"left with {self.ship}, since no site ashore has had it: {log}" for log in left]


@dataclass(slots=True)
class Outcome:
    """What was done, and what was not and why."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@app.command()
def distrust(
    ship: Annotated[str, typer.Argument(help="The ship's site.", metavar="SHIP")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the ledgers and with the links' orders.")],
    at: Annotated[
        str | None,
        typer.Option(
            "--site",
            "-s",
            help="The site that seizes. Default: for each log, the site ashore that held it last.",
            metavar="SITE",
            autocompletion=complete_site,
        ),
    ] = None,
    wait: WaitOption = WAIT,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Shut out a ship: close its links, change its passwords, seize the logs that it holds.

    The other sites fetch nothing more from it, its old passwords open nothing ashore, and each log that it holds goes
    on at a site ashore. What the ship still writes is no part of any log; when it is trusted again, 'link resume'
    brings it in as strays. Cut off at any point, the same command finishes. Ends with 1 when something was not done.

    Example: fairlead site distrust duck-star --reason 'stolen in Sydney' --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    _check(context.topology, ship, at, reason)
    plan = asyncio.run(_plan(context, ship, at))
    outcome = Outcome()
    applied = consent.given(lines(plan.lines()))
    if applied:
        outcome = _carry_out(context, plan, reason, wait, quiet=as_json)
    emit(
        {
            "ship": ship,
            "plan": plan.lines(),
            "applied": applied,
            "done": outcome.done,
            "failed": outcome.failed,
            "notes": outcome.notes,
        },
        as_json=as_json,
        render=lambda: _render(plan, outcome, consent, applied=applied),
    )
    if outcome.failed or any(each.at is None for each in plan.seizures):
        raise typer.Exit(ExitCode.FAILED)


def _check(topology: Topology, ship: str, at: str | None, reason: str) -> None:
    ships = [name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP]
    if ship not in topology.sites:
        raise UnknownNameError("ship", ship, ships)
    if ship not in ships:
        raise RefusedError(
            f"{ship} is ashore: every other site believes what it says about custody",
            hint=f"ships: {', '.join(ships) or '(none)'}; for a site ashore: fairlead acl rotate, fairlead link pause",
            site=ship,
        )
    if not reason.strip():
        raise RefusedError("a seizure needs a reason", hint="--reason 'stolen in Sydney', for example", site=ship)
    if at is not None and at not in (ashore := _ashore(topology)):
        raise UnknownNameError("site ashore that can hold a log", at, ashore)


def _ashore(topology: Topology) -> list[str]:
    other = (SiteKind.SHIP, SiteKind.CUSTOMER)
    return [name for name, site in topology.sites.items() if site.kind not in other]


async def _plan(context: Context, ship: str, at: str | None) -> Distrust:
    topology = context.topology
    held = [each for each in chains(await _entries(context)) if each.holder == ship]
    upstream = upstream_user(ship)
    users = [(site, upstream) for site in topology.sites if site != ship and upstream in service_users(topology, site)]
    own = [(ship, user) for user in ("bridge", "replicator") if user in service_users(topology, ship)]
    return Distrust(
        ship,
        tuple(link for link in topology.directed_links() if link.from_ == ship),
        (*users, *own),
        tuple(
            PlannedSeizure(each.log, each.newest.term, at or _seizing(topology, each)) for each in held if each.newest
        ),
    )


async def _entries(context: Context) -> list[LedgerEntry]:
    """What the ledgers say at all sites ashore that answer: any of them may know of a box that the others do not."""
    topology, told = context.topology, dict[tuple[str, int], Told]()
    away: tuple[str, FairleadError] | None = None
    async with access_of(context) as access:
        for site in (ashore := _ashore(topology)):
            try:
                found = await access.ledgers(site)
            except FairleadError as error:
                away = away or (site, error)
                continue
            told |= {(each.ledger, each.offset): each for each in found.told}
    if not told and away is not None:
        raise nobody_answers(ashore, away)
    return [each.entry for each in sift(Rules.of(topology), told.values())[0]]


def _seizing(topology: Topology, chain: Chain) -> str | None:
    """The site ashore that held a log last: it has a copy."""
    ashore = _ashore(topology)
    before = (site for each in reversed(chain.standing) for site in (each.holder, each.from_site))
    return next((site for site in before if site in ashore), None)


def _carry_out(context: Context, plan: Distrust, reason: str, wait: float, *, quiet: bool) -> Outcome:
    outcome = Outcome()
    asyncio.run(_close_links(context, plan, reason, wait, outcome, quiet=quiet))
    _change_passwords(context, plan, outcome, quiet=quiet)
    asyncio.run(_seize(context, plan, reason, wait, outcome, quiet=quiet))
    return outcome


async def _close_links(
    context: Context, plan: Distrust, reason: str, wait: float, outcome: Outcome, *, quiet: bool
) -> None:
    for link in plan.links:
        try:
            pause, away = await plan_verb(context, Verb.PAUSE, [link], LinkScope(None, None), reason, patience=wait)
            if away:
                raise away[0][1]
            if not pause.is_empty:
                told = await execute_plan(context, pause, wait, quiet=quiet)
                outcome.notes += told.pending
        except FairleadError as error:
            outcome.failed.append(f"{link.to}: {link.name} is not closed: {error.what}")
        else:
            outcome.done.append(f"{link.to}: {link.name} is closed; fairlead link resume opens it")


def _change_passwords(context: Context, plan: Distrust, outcome: Outcome, *, quiet: bool) -> None:
    from acl import rotate as rotation  # what starts sites is loaded where it is needed
    from fairlead.local.sites import LocalSites

    local = LocalSites(context.folder)
    for site, user in plan.users:
        told = site_progress(quiet=quiet)
        for result in rotation.rotate(context.topology, context.resolver, local, user, [site], told):
            if result.error is None:
                outcome.done.append(f"{site}: {user} has another password, in {result.password_in}")
            elif site == plan.ship:  # it need not answer: nobody ashore takes anything from it
                outcome.notes.append(f"{site}: {user} has the old password: {result.error.what}")
            else:
                outcome.failed.append(f"{site}: {user} has the old password: {result.error.what}")


async def _seize(context: Context, plan: Distrust, reason: str, wait: float, outcome: Outcome, *, quiet: bool) -> None:
    slots = asyncio.Semaphore(AT_ONCE)
    async with access_of(context) as access:
        read_once = _ReadOnce(access)
        with telling(quiet=quiet) as tell:

            async def one(each: PlannedSeizure, site: str) -> None:
                async with slots:
                    tell(f"seizing {each.log} at {site}")
                    try:
                        request = CustodyRequest(each.log, site, getpass.getuser(), reason)
                        order = build(await look_at_seizure(context.topology, read_once, request))
                        entry = await carry_out(order, CustodyRun(access, wait))
                    except FairleadError as error:
                        outcome.failed.append(f"{site}: {each.log} is not seized: {error.what}")
                    else:
                        outcome.done.append(f"{site}: holds {entry.log} in term {entry.term}")

            await asyncio.gather(*(one(each, each.at) for each in plan.seizures if each.at is not None))


class _ReadOnce:
    """Access whose ledgers are read once for each site, and not once for each of very many logs."""

    def __init__(self, access: LedgerAccess) -> None:
        self._access = access
        self._ledgers: dict[str, asyncio.Task[Ledgers]] = {}
        self._answers: dict[str, asyncio.Task[bool]] = {}

    async def ledgers(self, site: str, *, about: str | None = None) -> Ledgers:
        if site not in self._ledgers:
            self._ledgers[site] = asyncio.ensure_future(self._access.ledgers(site))
        found = await self._ledgers[site]
        told = tuple(each for each in found.told if about is None or each.entry.log == about)
        return replace(found, entries=tuple(each.entry for each in told), told=told)

    async def answers(self, site: str) -> bool:
        if site not in self._answers:
            self._answers[site] = asyncio.ensure_future(self._access.answers(site))
        return await self._answers[site]

    async def copy(self, site: str, log: str) -> OffsetRange | None:
        return await self._access.copy(site, log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._access, name)


def _render(plan: Distrust, outcome: Outcome, consent: Consent, *, applied: bool) -> None:
    if not applied:
        consent.unchanged(lines(plan.lines()))
        return
    _print("[green]done[/]", outcome.done)
    _print("[yellow]note:[/]", outcome.notes)
    _print("[bold red]not done:[/]", outcome.failed)
    if outcome.failed:
        console.print("The same command does what is left.")


def _print(mark: str, texts: Sequence[str]) -> None:
    for text in texts:
        console.print(f"{mark} {escape(text)}", soft_wrap=True)
