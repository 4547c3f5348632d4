"""Planning and applying access rules at several sites at once, each on its own: one that is away holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from acl.binding import Binding
from acl.entries import QuotaChange, UserChange, noting, rules_intent, stamp
from acl.guard import SHARE, check_removals
from acl.heldout import HeldOut, hint, refuse, tell, without
from acl.kafka import Client, RuleStore
from acl.lockout import check_lockout, foresee_lockout
from acl.plan import (
    AddRules,
    Confirm,
    LeaveAlone,
    Lockout,
    Plan,
    RemoveRules,
    SetQuotas,
    SitePlan,
    Skip,
    Step,
    Unread,
    site_steps,
)
from acl.planning import left_to_do, plan_site
from acl.quotas import together
from acl.stale import Remaining, State
from acl.store import AdminStore
from fairlead.errors import FairleadError, RefusedError, UnavailableError, UnknownNameError
from topologies.model import Topology
from topologies.users import ADMIN, is_reserved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topologies.directory import Directory

R = TypeVar("R")
CONFIRM_TIMEOUT = 20.0  # seconds
_PATIENCE = 3.0  # seconds for noting a failure: most often the site is gone
Progress = Callable[[str, str], None]
OpenStore = Callable[[str], AbstractContextManager[RuleStore]]


class AccessIncomplete(UnavailableError):
    """Rules could not be read or changed at some sites; the others are done. Applying again finishes."""


class AccessRefused(RefusedError):
    """Rules were not changed at some sites, because it would be unsafe or is not permitted; the others are done."""


class NotPlanned(UnavailableError):
    """A site that could not be read when a saved plan was made: the plan has nothing for it."""

    retriable = False


@dataclass(frozen=True, slots=True)
class SiteResult:
    """What was done at one site; ``error`` is None when all of its plan was. ``state`` is how far a saved plan was
    there already, ``held_out`` are users who were given no rules because their old sessions may still be open."""

    site: str
    added: int
    removed: int
    kept: int
    left_alone: int
    error: FairleadError | None = None
    state: State = State.NEW
    held_out: tuple[str, ...] = ()


class Executor:
    """Carries out the steps of one site's plan on its store; the counterpart of ``acl.show``, which only tells them."""

    def __init__(self, store: RuleStore) -> None:
        self._store = store
        self.added = 0
        self.removed = 0

    def run(self, steps: Iterable[Step]) -> None:
        """Carry out the steps in order; the first error ends it."""
        for step in steps:
            match step:
                case AddRules(_, bindings):
                    self._store.add(bindings)
                    self.added += len(bindings)
                case RemoveRules(_, bindings):
                    self._store.remove(bindings)
                    self.removed += len(bindings)
                case Confirm(site, added, removed):
                    self._confirm(site, frozenset(added), frozenset(removed))
                case SetQuotas(_, quotas):
                    self._store.set_quotas(quotas)
                case LeaveAlone() | Skip():
                    pass

    def _confirm(self, site: str, added: frozenset[Binding], removed: frozenset[Binding]) -> None:
        deadline, pause = time.monotonic() + CONFIRM_TIMEOUT, 0.01
        while not (added <= (held := self._store.read()) and removed.isdisjoint(held)):
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"site {site} accepted new access rules and does not show them after {CONFIRM_TIMEOUT:.0f} s",
                    hint="its brokers may not follow their controller; see their logs, then fairlead acl apply again",
                    site=site,
                )
            time.sleep(pause)  # there is no event for it
            pause = min(2 * pause, 0.5)


def admin_stores(directory: Directory) -> OpenStore:
    """Stores of real clusters, as their super user."""

    @contextmanager
    def open_store(site: str) -> Iterator[RuleStore]:
        with Client(directory.kafka(site, ADMIN)) as client:
            yield AdminStore(client, local=directory.is_local(site))

    return open_store


def plan_topology(topology: Topology, open_store: OpenStore, sites: Collection[str] | None = None) -> Plan:
    """What every site would change. A site that cannot be read is in ``Plan.unread``; nothing is changed anywhere."""
    named = _check_sites(topology, sites)

    def plan_one(site: str) -> tuple[SitePlan, Lockout | None] | Unread:
        try:
            with open_store(site) as store:
                held = store.read()
                made = plan_site(topology, site, store, held)
                changes = made.add or made.remove
                return made, foresee_lockout(site, held, made, store.standing(held)) if changes else None
        except FairleadError as error:
            return Unread(site, error.what, error.hint)

    results = at_once(plan_one, named)
    read = [r for r in results if not isinstance(r, Unread)]
    return Plan(
        topology.name,
        tuple(made for made, _ in read),
        tuple(r for r in results if isinstance(r, Unread)),
        tuple(lockout for _, lockout in read if lockout),
    )


def apply_sites(
    topology: Topology,
    open_store: OpenStore,
    sites: Collection[str] | None = None,
    on_progress: Progress | None = None,
    *,
    saved: Plan | None = None,
    max_removals: float = SHARE,
    readmit: Collection[str] = (),
) -> tuple[SiteResult, ...]:
    """Make the rules of each site what the topology says: read, compare, add, then remove. Errors are in the results.

    Idempotent: doing it again changes nothing; after an error, doing it again does the rest. Each change is noted in
    the site's audit log, before and after.

    Args:
        saved: Do this plan, at its sites, as long as it is still true there (``acl.stale``); without one, plan now.
        max_removals: The share of a site's rules beyond which removing is refused (``acl.guard``).
        readmit: Users whose old sessions are known to be over, though they are held out (``acl.heldout``). Others who
            are held out get no rules; a saved plan that would give them some is refused.
    """
    named = _check_sites(topology, sites)
    planned = {site.site: site for site in saved.sites} if saved else {}
    unread = {site.site: site for site in saved.unread} if saved else {}
    lock = threading.Lock()

    def say(site: str, text: str) -> None:
        if on_progress:
            with lock:
                on_progress(site, f"access rules: {text}")

    def apply_one(site: str) -> SiteResult:
        executor: Executor | None = None
        try:
            if site in unread:
                raise _not_planned(unread[site])
            with open_store(site) as store:
                held = store.read()
                todo = left_to_do(topology, site, store, held, planned.get(site))
                todo, left_out = _without_held_out(topology, site, store, todo, saved is not None, readmit)
                for user, until in left_out.items():
                    say(site, f"{tell(user, until)}, and gets no rules: {hint([user])}")
                removals = len(planned[site].remove) if saved else None
                check_removals(todo.plan, todo.before, max_removals, removals)
                executor = Executor(store)
                if not todo.plan.is_empty:
                    if todo.plan.add or todo.plan.remove:
                        check_lockout(site, held, todo.plan, store.standing(held))
                    identity = saved.identity if saved else Plan(topology.name, (todo.plan,)).identity
                    carry_out(store, executor, topology.name, identity, todo.plan)
        except FairleadError as error:
            say(site, error.what)
            return SiteResult(site, *((executor.added, executor.removed) if executor else (0, 0)), 0, 0, error)
        before = {State.NEW: "", State.BEGUN: "the rest of the plan: ", State.DONE: "the plan is done already: "}
        say(site, f"{before[todo.state]}{executor.added} added, {executor.removed} removed, {todo.plan.keep} kept")
        numbers = (executor.added, executor.removed, todo.plan.keep, len(todo.plan.alone))
        return SiteResult(site, *numbers, state=todo.state, held_out=tuple(left_out))

    return tuple(at_once(apply_one, [site for site in named if not saved or site in planned or site in unread]))


def apply_topology(
    topology: Topology,
    directory: Directory,
    sites: Collection[str] | None = None,
    on_progress: Progress | None = None,
) -> tuple[SiteResult, ...]:
    """``apply_sites`` on the topology's clusters, all sites unless some are named.

    Raises:
        AccessIncomplete: some site could not be done; the others are.
    """
    results = apply_sites(topology, admin_stores(directory), sites, on_progress)
    check_complete(results)
    return results


def check_complete(results: Iterable[SiteResult]) -> None:
    """Raise unless every site is done: a site's own error where it is the only one, ``AccessRefused`` where trying
    again would help at none of them, else ``AccessIncomplete``."""
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


def carry_out(store: RuleStore, executor: Executor, topology: str, identity: str, plan: SitePlan) -> None:
    """Do one site's plan, each change noted in the audit log before and after.

    Args:
        identity: The plan's, for the log.
    """
    if plan.add or plan.remove:
        _change_rules(store, executor, topology, identity, replace(plan, quotas=()))
    for user, quotas in together(plan.quotas).items():
        intent = QuotaChange(**stamp(topology, plan.site), user=user, quotas=quotas)
        with noting(store.note, intent):
            executor.run([SetQuotas(plan.site, tuple(q for q in plan.quotas if q.user == user))])


def _change_rules(store: RuleStore, executor: Executor, topology: str, identity: str, plan: SitePlan) -> None:
    with noting(
        store.note,
        *rules_intent(topology, plan.site, identity, plan.add, plan.remove),
        facts=lambda: {"added": executor.added, "removed": executor.removed},
        failed=partial(store.note, patience=_PATIENCE),
    ):
        executor.run(site_steps(plan))


def _without_held_out(
    topology: Topology, site: str, store: RuleStore, todo: Remaining, saved: bool, readmit: Collection[str]
) -> tuple[Remaining, HeldOut]:
    """What is left to do without the rules of those who are held out, and who they are.

    Raises:
        UserHeldOut: a saved plan would give them rules.
    """
    people = {rule.user for rule in todo.plan.add if not is_reserved(rule.user)}
    users = store.held_out() if people else {}
    for user in sorted(set(readmit) & set(users)):
        intent = UserChange(**stamp(topology.name, site), user=user, action="readmit", detail={"because": "asked for"})
        with noting(store.note, intent):
            pass  # the rules are given by the plan
    users = {user: until for user, until in users.items() if user not in readmit and user in people}
    if saved and users:
        raise refuse(site, users)
    return replace(todo, plan=without(todo.plan, users)), users


def _not_planned(site: Unread) -> NotPlanned:
    return NotPlanned(
        f"site {site.site} could not be read when the plan was made, so the plan has nothing for it",
        hint=f"make another plan when it is back: fairlead acl plan --site {site.site} --out",
        site=site.site,
    )


def _check_sites(topology: Topology, sites: Collection[str] | None) -> tuple[str, ...]:
    for site in sites or ():
        if site not in topology.sites:
            raise UnknownNameError("site", site, topology.sites)
    return tuple(site for site in topology.sites if sites is None or site in sites)


def at_once(work: Callable[[str], R], sites: Collection[str]) -> list[R]:
    """The same work for several sites side by side, results in their order: one that is away holds up no other."""
    if not sites:
        return []
    with ThreadPoolExecutor(max_workers=min(16, len(sites)), thread_name_prefix="acl") as pool:
        return list(pool.map(work, sites))
