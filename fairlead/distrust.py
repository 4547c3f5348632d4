"""Shut out a ship whose machine somebody else controls: close its links, change its passwords, seize its logs.

``plan_distrust`` asks the sites ashore and returns the plan; ``carry_out`` executes it. After an interruption, a new
plan has the remaining steps.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from edge.custody.operator.execute import WAIT, CustodyRun, LedgerAccess, open_ledgers
from edge.custody.operator.execute import carry_out as carry_out_order
from edge.custody.operator.plan import CustodyRequest, build, look_at_seizure, nobody_answers, sites_ashore
from fairlead.custody.history import Chain, chains
from fairlead.custody.ledger import Ledgers
from fairlead.errors import FairleadError, RefusedError, UnknownNameError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.plan import Tell, silent
from fairlead.records.custody import LedgerEntry
from replication.operations.links.access import open_access
from replication.operations.links.facts import LinkOperation, LinkScope
from replication.operations.links.plan import plan_links
from replication.operations.links.steps import LinkRun
from replication.operations.links.steps import carry_out as carry_out_link
from topologies.context import Context, running_kafka
from topologies.ledger_trust import believed
from topologies.model import Link, SiteKind, Topology
from topologies.users import service_users, upstream_user

MAX_CONCURRENT_SEIZURES = 50


@dataclass(frozen=True, slots=True)
class PlannedSeizure:
    """A log to take from the ship. ``at`` is the site ashore that continues it, None where no site has a copy."""

    log: str
    term: int
    at: str | None


@dataclass(frozen=True, slots=True)
class DistrustPlan:
    """The steps that shut a ship out.

    Args:
        links: Links from the ship; their targets fetch nothing more.
        users: Sites and the users that get another password there; those of the ship itself come last.
        seizures: The logs that the ship holds.
    """

    ship: str
    links: tuple[Link, ...]
    users: tuple[tuple[str, str], ...]
    seizures: tuple[PlannedSeizure, ...]

    @property
    def left_with_ship(self) -> list[str]:
        """The logs that no site ashore can take over."""
        return [each.log for each in self.seizures if each.at is None]

    def lines(self) -> list[str]:
        """Return the plan for a person, a line each."""
        lines = [f"{link.to}: fetch nothing more over {link.name}" for link in self.links]
        lines += [f"{site}: give {user} another password" for site, user in self.users]
        lines += [f"{each.at}: seize {each.log} (term {each.term})" for each in self.seizures if each.at is not None]
        return lines + [f"left with {self.ship}, since no site ashore has had it: {log}" for log in self.left_with_ship]


@dataclass(slots=True)
class DistrustResult:
    """The steps that were done, those that failed with their reasons, and notes for the operator."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_request(topology: Topology, ship: str, at: str | None, reason: str) -> None:
    """Check the request.

    Raises:
        UnknownNameError: the topology has no such ship, or no such site ashore.
        RefusedError: the site is no ship, or the reason is empty.
    """
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
    if at is not None and at not in (ashore := sites_ashore(topology)):
        raise UnknownNameError("site ashore that can hold a log", at, ashore)


async def plan_distrust(context: Context, ship: str, at: str | None = None) -> DistrustPlan:
    """Read the ledgers of all sites ashore, and make the plan.

    Args:
        at: The site that seizes; None means for each log the site ashore that held it last.

    Raises:
        UnavailableError: no site ashore answers.
    """
    topology = context.topology
    held = [each for each in chains(await _entries(context)) if each.holder == ship]
    upstream = upstream_user(ship)
    users = [(site, upstream) for site in topology.sites if site != ship and upstream in service_users(topology, site)]
    own = [(ship, user) for user in ("bridge", "replicator") if user in service_users(topology, ship)]
    return DistrustPlan(
        ship,
        tuple(link for link in topology.directed_links() if link.from_ == ship),
        (*users, *own),
        tuple(
            PlannedSeizure(each.log, each.newest.term, at or _last_holder_ashore(topology, each))
            for each in held
            if each.newest
        ),
    )


def carry_out(
    context: Context,
    plan: DistrustPlan,
    reason: str,
    *,
    wait: float = WAIT,
    tell: Tell = silent,
    on_progress: Callable[[str, str], None] = lambda _site, _text: None,
) -> DistrustResult:
    """Carry out the plan; an error ends one step but not the others. Blocking: do not call it in an event loop.

    Args:
        reason: Kept in the ledgers and with the links' orders.
        wait: Seconds to wait for the answer to each order.
        on_progress: Receives a site and the result of a password change there.
    """
    result = DistrustResult()
    asyncio.run(_close_links(context, plan, reason, wait, tell, result))
    _change_passwords(context, plan, on_progress, result)
    asyncio.run(_seize(context, plan, reason, wait, tell, result))
    return result


async def _entries(context: Context) -> list[LedgerEntry]:
    """Return the trusted entries of all sites ashore that answer; any site may know boxes that the others do not."""
    topology, told = context.topology, list[Ledgers]()
    away: tuple[str, FairleadError] | None = None
    async with _open_ledgers(context) as access:
        for site in (ashore := sites_ashore(topology)):
            try:
                told.append(await access.ledgers(site))
            except FairleadError as error:
                away = away or (site, error)
    if not any(each.told for each in told) and away is not None:
        raise nobody_answers(ashore, away)
    return believed(topology, told)


def _open_ledgers(context: Context) -> AbstractAsyncContextManager[LedgerAccess]:
    return open_ledgers(context.topology, running_kafka(context, started=False))


def _last_holder_ashore(topology: Topology, chain: Chain) -> str | None:
    """Return the site ashore that held a log last, which therefore has a copy."""
    ashore = sites_ashore(topology)
    return next((site for site in chain.past_sites if site in ashore), None)


async def _close_links(
    context: Context, plan: DistrustPlan, reason: str, wait: float, tell: Tell, result: DistrustResult
) -> None:
    async with open_access(running_kafka(context), context.folder) as access:
        for link in plan.links:
            try:
                pause, _ = await plan_links(
                    context.topology, access, LinkOperation.PAUSE, [link], LinkScope(), reason=reason, patience=wait
                )
                if not pause.is_empty:
                    result.notes += (await carry_out_link(pause, LinkRun(access, wait, tell))).pending
            except FairleadError as error:
                result.failed.append(f"{link.to}: {link.name} is not closed: {error.what}")
            else:
                result.done.append(f"{link.to}: {link.name} is closed; fairlead link resume opens it")


def _change_passwords(
    context: Context, plan: DistrustPlan, on_progress: Callable[[str, str], None], result: DistrustResult
) -> None:
    from acl.rotate import rotate  # imported here because only this step needs to start sites
    from fairlead.local.sites import LocalSites

    local = LocalSites(context.folder)
    for site, user in plan.users:
        for rotated in rotate(context.topology, context.resolver, local, user, [site], on_progress):
            if rotated.error is None:
                result.done.append(f"{site}: {user} has another password, in {rotated.password_in}")
            elif site == plan.ship:  # the ship may not answer: no site ashore fetches from it any more
                result.notes.append(f"{site}: {user} has the old password: {rotated.error.what}")
            else:
                result.failed.append(f"{site}: {user} has the old password: {rotated.error.what}")


async def _seize(
    context: Context, plan: DistrustPlan, reason: str, wait: float, tell: Tell, result: DistrustResult
) -> None:
    slots = asyncio.Semaphore(MAX_CONCURRENT_SEIZURES)
    async with _open_ledgers(context) as access:
        read_once = _ReadOnce(access)

        async def seize_one(each: PlannedSeizure, site: str) -> None:
            async with slots:
                tell(f"seizing {each.log} at {site}")
                try:
                    request = CustodyRequest(each.log, site, getpass.getuser(), reason)
                    order = build(await look_at_seizure(context.topology, read_once, request))
                    entry = await carry_out_order(order, CustodyRun(access, wait))
                except FairleadError as error:
                    result.failed.append(f"{site}: {each.log} is not seized: {error.what}")
                else:
                    result.done.append(f"{site}: holds {entry.log} in term {entry.term}")

        await asyncio.gather(*(seize_one(each, each.at) for each in plan.seizures if each.at is not None))


class _ReadOnce:
    """Ledger access that reads each site's ledgers once, instead of once for each of very many logs."""

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
