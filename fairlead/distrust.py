"""Shut out a ship whose machine somebody else controls: close its links, change its passwords, seize its logs.

``plan_distrust`` asks the sites ashore and returns the plan; ``carry_out`` executes it. After an interruption, a new
plan has the remaining steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from edge.custody.operator.execute import WAIT, LedgerAccess, open_ledgers
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
from fairlead.errors import FairleadError, RefusedError, UnknownNameError
from fairlead.plan import Tell, silent
from replication.operations.links.access import open_access
from replication.operations.links.facts import LinkOperation, LinkScope
from replication.operations.links.plan import plan_links
from replication.operations.links.steps import LinkRun
from replication.operations.links.steps import carry_out as carry_out_link
from topologies.context import Context, running_kafka
from topologies.model import Link, SiteKind, Topology
from topologies.users import service_users, upstream_user


@dataclass(frozen=True, slots=True)
class DistrustPlan:
    """The steps that shut a ship out.

    Args:
        links: Links from the ship; their targets fetch nothing more.
        users: Sites and the users that get another password there; those of the ship itself come last.
        takeover: The seizure of the logs that the ship holds.
    """

    ship: str
    links: tuple[Link, ...]
    users: tuple[tuple[str, str], ...]
    takeover: TakeoverPlan

    def lines(self) -> list[str]:
        """Return the plan for a person, a line each."""
        lines = [f"{link.to}: fetch nothing more over {link.name}" for link in self.links]
        lines += [f"{site}: give {user} another password" for site, user in self.users]
        lines += [f"{each.at_site}: seize {each.log} (term {each.term})" for each in self.takeover.orders]
        return lines + [f"left with {self.ship}: {each.log}: {each.why}" for each in self.takeover.left]


@dataclass(slots=True)
class DistrustResult:
    """The steps that were done, those that failed with their reasons, and notes for the operator."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_request(topology: Topology, request: TakeoverRequest) -> None:
    """Check the request, without asking any site.

    Raises:
        UnknownNameError: the topology has no such ship, or no such site that seizes.
        RefusedError: the holder is no ship, the site may not seize, or there is no reason.
    """
    ship = request.holder
    ships = [name for name, site in topology.sites.items() if site.kind is SiteKind.SHIP]
    if ship not in topology.sites:
        raise UnknownNameError("ship", ship, ships)
    if ship not in ships:
        raise RefusedError(
            f"{ship} is ashore: every other site believes what it says about custody",
            hint=f"ships: {', '.join(ships) or '(none)'}; for a site ashore: fairlead acl rotate, fairlead link pause",
            site=ship,
        )
    check_takeover(topology, request)


async def plan_distrust(context: Context, request: TakeoverRequest) -> DistrustPlan:
    """Read the ledgers of all sites ashore, and make the plan.

    Args:
        request: The ship as the holder, the site that seizes, and why.

    Raises:
        UnavailableError: no site ashore answers.
    """
    topology, ship = context.topology, request.holder
    upstream = upstream_user(ship)
    users = [(site, upstream) for site in topology.sites if site != ship and upstream in service_users(topology, site)]
    own = [(ship, user) for user in ("bridge", "replicator") if user in service_users(topology, ship)]
    async with _open_ledgers(context) as access:
        takeover = build_takeover(await look_at_takeover(topology, access, request))
    links = tuple(link for link in topology.directed_links() if link.from_ == ship)
    return DistrustPlan(ship, links, (*users, *own), takeover)


def carry_out(
    context: Context,
    plan: DistrustPlan,
    request: TakeoverRequest,
    *,
    wait: float = WAIT,
    tell: Tell = silent,
    on_progress: Callable[[str, str], None] = lambda _site, _text: None,
) -> DistrustResult:
    """Carry out the plan; an error ends one step but not the others. Blocking: do not call it in an event loop.

    Args:
        request: That of the plan; its reason is kept in the ledgers and with the links' orders.
        wait: Seconds to wait for the answer to each order.
        on_progress: Receives a site and the result of a password change there.
    """
    result = DistrustResult()
    asyncio.run(_close_links(context, plan, request.reason, wait, tell, result))
    _change_passwords(context, plan, on_progress, result)
    asyncio.run(_seize(context, request, wait, tell, result))
    return result


def _open_ledgers(context: Context) -> AbstractAsyncContextManager[LedgerAccess]:
    return open_ledgers(context.topology, running_kafka(context, started=False))


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


async def _seize(context: Context, request: TakeoverRequest, wait: float, tell: Tell, result: DistrustResult) -> None:
    """Seize what the ship holds now that its links are closed."""
    async with _open_ledgers(context) as access:
        run = TakeoverRun(access, wait, tell)
        try:
            plan = build_takeover(await look_at_takeover(context.topology, access, request))
            result.failed += [f"{each.log} stays with {request.holder}: {each.why}" for each in plan.left]
            await carry_out_takeover(plan, run)
        except FairleadError as error:
            result.failed.append(f"the logs of {request.holder} are not seized: {error.what}")
    result.done += [f"{entry.to_site}: holds {entry.log} in term {entry.term}" for entry in run.seized]
    result.failed += [f"{entry.refused_by}: {entry.log} is not seized: {entry.reason}" for entry in run.refused]
    if run.unanswered:
        result.failed.append(describe_unanswered(run))
