"""Apply access rules at several sites at once. A site that does not answer delays no other."""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from acl.compile import SetQuota, compile_site, together
from acl.history import QuotaChange, SuspendedUsers, UserChange, noting, rules_intent, stamp
from acl.kafka import OpenStore, RuleStore, admin_stores, at_once
from acl.plan import (
    SHARE,
    AccessPlan,
    AccessRun,
    SetQuotas,
    SitePlan,
    Unread,
    carry_out,
    check_lockout,
    check_removals,
    managed_by,
    plan_quotas,
    plan_site,
)
from acl.rules import Binding
from acl.saved import PlanState, Remaining, StalePlan, remaining
from fairlead.errors import FairleadError, RefusedError, UnavailableError, nearest
from topologies.endpoints import EndpointResolver
from topologies.model import Topology, check_sites
from topologies.users import is_reserved

ROUND_PAUSE: Final = 5.0  # seconds between two rounds
_PATIENCE = 3.0  # seconds to write a failure to the audit log: usually the site does not answer
Progress = Callable[[str, str], None]


class AccessIncomplete(UnavailableError):
    """Rules could not be read or changed at some sites; the other sites are done. Apply again to finish."""


class AccessRefused(RefusedError):
    """Rules were not changed at some sites, because that is unsafe or not permitted; the other sites are done."""


class NotPlanned(UnavailableError):
    """A saved plan has nothing for this site, because the site could not be read when the plan was made."""

    retriable = False


class UserSuspended(RefusedError):
    """A saved plan gives rules to a suspended user; nothing was changed at this site."""


@dataclass(frozen=True, slots=True)
class SiteResult:
    """The result of applying a plan at one site.

    Args:
        error: The reason why not all of the plan was carried out; None if it was.
        state: How much of a saved plan had been carried out before.
        suspended: Users that got no rules, because their old sessions may still be open.
    """

    site: str
    added: int
    removed: int
    kept: int
    left_alone: int
    error: FairleadError | None = None
    state: PlanState = PlanState.NEW
    suspended: tuple[str, ...] = ()


Work = Callable[[Sequence[str]], Sequence[SiteResult]]
"""Applies rules at these sites; returns their results."""


def apply_sites(
    topology: Topology,
    open_store: OpenStore,
    sites: Collection[str] | None = None,
    on_progress: Progress | None = None,
    *,
    saved: AccessPlan | None = None,
    max_removals: float = SHARE,
    readmit: Collection[str] = (),
) -> tuple[SiteResult, ...]:
    """Change the rules of each site to those of the topology: read, compare, add, then remove. Results have the errors.

    Idempotent: applying again changes nothing; after an error it does the rest. The site's audit log gets an entry
    before and after each change.

    Args:
        saved: The plan to apply at the sites where it is still valid (``acl.saved``); None to plan now.
        max_removals: The share of a site's rules beyond which removing is refused (``check_removals``).
        readmit: Suspended users whose old sessions are known to have ended (``acl.history``). Other suspended users
            get no rules; a saved plan that would give them some is refused.
    """
    named = check_sites(topology, sites)
    planned = {site.site: site for site in saved.sites} if saved else {}
    unread = {site.site: site for site in saved.unread} if saved else {}
    lock = threading.Lock()

    def say(site: str, text: str) -> None:
        if on_progress:
            with lock:
                on_progress(site, f"access rules: {text}")

    def apply_one(site: str) -> SiteResult:
        run: AccessRun | None = None
        try:
            if site in unread:
                raise _not_planned(unread[site])
            with open_store(site) as store:
                held = store.read()
                todo = left_to_do(topology, site, store, held, planned.get(site))
                todo, left_out = _without_suspended(topology, site, store, todo, saved is not None, readmit)
                for user, until in left_out.items():
                    say(site, f"{_suspended_since(user, until)}, and gets no rules: {_suspended_hint([user])}")
                removals = len(planned[site].remove) if saved else None
                check_removals(todo.plan, todo.before, max_removals, removals)
                run = AccessRun(store)
                if not todo.plan.is_empty:
                    if todo.plan.add or todo.plan.remove:
                        check_lockout(site, held, todo.plan, store.standing(held))
                    identity = saved.identity if saved else AccessPlan(topology.name, (todo.plan,)).identity
                    change_site(run, topology.name, identity, todo.plan)
        except FairleadError as error:
            say(site, error.what)
            return SiteResult(site, *((run.added, run.removed) if run else (0, 0)), 0, 0, error)
        before = {
            PlanState.NEW: "",
            PlanState.BEGUN: "the rest of the plan: ",
            PlanState.DONE: "the plan is done already: ",
        }
        say(site, f"{before[todo.state]}{run.added} added, {run.removed} removed, {todo.plan.keep} kept")
        numbers = (run.added, run.removed, todo.plan.keep, len(todo.plan.alone))
        return SiteResult(site, *numbers, state=todo.state, suspended=tuple(left_out))

    return tuple(at_once(apply_one, [site for site in named if not saved or site in planned or site in unread]))


def nothing_to_readmit(open_store: OpenStore, sites: Collection[str], names: Collection[str]) -> str:
    """Return a sentence about those of these users that are suspended at none of the sites that answer; "" for none, or
    where no site answers. Who is no longer suspended gets its rules by applying.
    """

    def ask(site: str) -> SuspendedUsers | None:
        try:
            with open_store(site) as store:
                return store.suspended_users()
        except FairleadError:
            return None  # applying says why

    answers = at_once(ask, sites) if names else []
    suspended = sorted({user for users in answers for user in users or ()})
    strange = sorted(set(names).difference(suspended))
    if not strange or all(users is None for users in answers):
        return ""
    where = " at the sites that answer" if None in answers else ""
    near = next(filter(None, (nearest(name, set(suspended).difference(names)) for name in strange)), None)
    hint = f"did you mean {near!r}? " if near else ""
    return f"nothing to readmit for {', '.join(strange)}{where}; {hint}suspended: {', '.join(suspended) or 'nobody'}"


def apply_topology(
    topology: Topology,
    resolver: EndpointResolver,
    sites: Collection[str] | None = None,
    on_progress: Progress | None = None,
) -> tuple[SiteResult, ...]:
    """Call ``apply_sites`` for the topology's clusters, all sites unless some are named, and check the results.

    Raises:
        FairleadError: the error of the only site that failed.
        AccessIncomplete, AccessRefused: several sites failed (``check_complete``); the other sites are done.
    """
    results = apply_sites(topology, admin_stores(resolver), sites, on_progress)
    check_complete(results)
    return results


def check_complete(results: Iterable[SiteResult]) -> None:
    """Raise unless every site is done.

    Raises:
        FairleadError: the error itself if only one site failed.
        AccessRefused: all the failed sites refused, so a second try would not help.
        AccessIncomplete: in all other cases.
    """
    failed = [result for result in results if result.error is not None]
    errors = [result.error for result in failed if result.error is not None]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        names = [result.site for result in failed]
        what = "access rules are not complete at " + ", ".join(
            f"{site} ({error.what})" for site, error in zip(names, errors, strict=True)
        )
        if all(isinstance(error, RefusedError) for error in errors):
            raise AccessRefused(what, hint=errors[0].hint, sites=names)
        hint = "see fairlead status; when the sites are back, fairlead acl apply does the rest"
        raise AccessIncomplete(what, hint=hint, sites=names)


def change_site(run: AccessRun, topology: str, identity: str, plan: SitePlan) -> None:
    """Carry out one site's plan, with an entry in the audit log before and after each change.

    Args:
        identity: The plan's identity, for the log.
    """
    store = run.store
    if plan.add or plan.remove:
        with noting(
            store.note,
            *rules_intent(topology, plan.site, identity, plan.add, plan.remove),
            facts=lambda: {"added": run.added, "removed": run.removed},
            failed=partial(store.note, patience=_PATIENCE),
        ):
            carry_out(replace(plan, quotas=()).steps, run)
    for user, quotas in together(plan.quotas).items():
        intent = QuotaChange(**stamp(topology, plan.site), user=user, quotas=quotas)
        with noting(store.note, intent):
            carry_out([SetQuotas(plan.site, tuple(q for q in plan.quotas if q.user == user))], run)


def _without_suspended(
    topology: Topology, site: str, store: RuleStore, todo: Remaining, saved: bool, readmit: Collection[str]
) -> tuple[Remaining, SuspendedUsers]:
    """Return the remaining plan without the rules of suspended users, and these users.

    Raises:
        UserSuspended: a saved plan would give them rules.
    """
    people = {rule.user for rule in todo.plan.add if not is_reserved(rule.user)}
    users = store.suspended_users() if people or readmit else {}
    for user in sorted(set(readmit) & set(users)):
        intent = UserChange(**stamp(topology.name, site), user=user, action="readmit", detail={"because": "asked for"})
        with noting(store.note, intent):
            pass  # the plan itself creates the rules
    users = {user: until for user, until in users.items() if user not in readmit and user in people}
    if saved and users:
        raise _refuse_suspended(site, users)
    return replace(todo, plan=_without_rules_of(todo.plan, users)), users


def _not_planned(site: Unread) -> NotPlanned:
    return NotPlanned(
        f"site {site.site} could not be read when the plan was made, so the plan has nothing for it",
        hint=f"make another plan when it is back: fairlead acl plan --site {site.site} --out",
        site=site.site,
    )


def left_to_do(
    topology: Topology, site: str, store: RuleStore, held: frozenset[Binding], planned: SitePlan | None
) -> Remaining:
    """Return the rest of a saved plan, or a new plan if there is none.

    Args:
        held: The rules that the cluster holds.

    Raises:
        StalePlan: the saved plan is no longer valid at this site.
    """
    if planned is None:
        plan = plan_site(topology, site, store, held)
        return Remaining(plan, PlanState.NEW, before=plan.keep + len(plan.remove))
    rules = remaining(planned, held, compile_site(topology, site), managed_by(topology, site))
    return _with_quotas(rules, plan_quotas(topology, site, store), planned)


def _with_quotas(rules: Remaining, fresh: tuple[SetQuota, ...], planned: SitePlan) -> Remaining:
    """Return the rest of a saved plan, with the quotas that are not set yet.

    Raises:
        StalePlan: the site now needs quotas that are not in the plan.
    """
    both = replace(rules, plan=replace(rules.plan, quotas=fresh))
    if not set(fresh) <= set(planned.quotas):
        raise StalePlan(
            f"client quotas at site {planned.site} have changed since the plan was made",
            hint="make another plan and look at it: fairlead acl plan --out",
            site=planned.site,
        )
    if fresh and rules.state is PlanState.DONE:
        begun = planned.add or planned.remove or fresh != planned.quotas
        return replace(both, state=PlanState.BEGUN if begun else PlanState.NEW)
    return both


def _without_rules_of(plan: SitePlan, users: Container[str]) -> SitePlan:
    """Return the plan without the rules that it would give to these users."""
    return replace(plan, add=tuple(rule for rule in plan.add if rule.user not in users))


def _suspended_since(user: str, until: dt.datetime | None) -> str:
    """Describe in one line until when a user is suspended, and why."""
    when = f"until {until:%H:%M:%S} UTC" if until else "until its brokers are restarted"
    return f"{user} is suspended {when}, since its password leaked"


def _refuse_suspended(site: str, users: SuspendedUsers) -> UserSuspended:
    """Return the error for a saved plan that gives rules to suspended users. Such a plan is not applied in part."""
    return UserSuspended(
        f"the plan gives rules at site {site} to users who are suspended there: "
        + "; ".join(_suspended_since(user, until) for user, until in sorted(users.items())),
        hint=_suspended_hint(users),
        site=site,
        users=sorted(users),
    )


def _suspended_hint(users: Iterable[str]) -> str:
    """Return the hint how to end a suspension."""
    options = " ".join(f"--readmit {user}" for user in sorted(users))
    return (
        "wait until fairlead acl rotate --now has ended, or run it again where it was cut off; when all brokers of the "
        f"site were restarted since, no old session is left: fairlead acl apply {options}"
    )


def until_done(
    work: Work,
    first: Sequence[SiteResult],
    *,
    seconds: float | None = None,
    on_waiting: Callable[[tuple[str, ...]], None] | None = None,
    pause: float = ROUND_PAUSE,
) -> tuple[SiteResult, ...]:
    """Apply again at the sites whose error is retriable, until none is left or the time is over.

    Args:
        first: The results of the first round.
        seconds: Maximum time; None for no limit.
        on_waiting: Called before each pause with the sites that are not done.

    Returns:
        All results, in the order of ``first``; added and removed rules are the sums of all rounds.
    """
    results = {result.site: result for result in first}
    deadline = None if seconds is None else time.monotonic() + seconds
    while away := tuple(
        site for site, result in results.items() if result.error is not None and result.error.retriable
    ):
        left = pause if deadline is None else min(pause, deadline - time.monotonic())
        if left <= 0:
            break
        if on_waiting:
            on_waiting(away)
        time.sleep(left)  # nothing signals that a site is back
        for result in work(away):
            before = results[result.site]
            results[result.site] = dataclasses.replace(
                result, added=before.added + result.added, removed=before.removed + result.removed
            )
    return tuple(results.values())
