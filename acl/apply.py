"""Planning and applying access rules at several sites at once, each on its own: one that is away holds up no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from acl.binding import Binding
from acl.compile import compile_site
from acl.kafka import Client, KafkaRules, RuleStore
from acl.plan import (
    AddRules,
    Confirm,
    LeaveAlone,
    Plan,
    RemoveRules,
    SitePlan,
    Skip,
    Step,
    Unread,
    diff,
    managed_by,
    site_steps,
)
from fairlead.errors import FairleadError, UnavailableError, UnknownNameError
from topologies.model import Topology
from topologies.users import ADMIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topologies.directory import Directory

R = TypeVar("R")
CONFIRM_TIMEOUT = 20.0  # seconds
Progress = Callable[[str, str], None]
OpenStore = Callable[[str], AbstractContextManager[RuleStore]]


class AccessIncomplete(UnavailableError):
    """Rules could not be read or changed at some sites; the others are done. Applying again finishes."""


@dataclass(frozen=True, slots=True)
class SiteResult:
    """What was done at one site; ``error`` is None when all of its plan was."""

    site: str
    added: int
    removed: int
    kept: int
    left_alone: int
    error: FairleadError | None = None


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
            yield KafkaRules(client)

    return open_store


def plan_topology(topology: Topology, open_store: OpenStore, sites: Collection[str] | None = None) -> Plan:
    """What every site would change. A site that cannot be read is in ``Plan.unread``; nothing is changed anywhere."""
    named = _check_sites(topology, sites)

    def plan_one(site: str) -> SitePlan | Unread:
        try:
            with open_store(site) as store:
                return _plan_site(topology, site, store)
        except FairleadError as error:
            return Unread(site, error.what, error.hint)

    results = _at_once(plan_one, named)
    return Plan(
        topology.name,
        tuple(r for r in results if isinstance(r, SitePlan)),
        tuple(r for r in results if isinstance(r, Unread)),
    )


def apply_sites(
    topology: Topology,
    open_store: OpenStore,
    sites: Collection[str] | None = None,
    on_progress: Progress | None = None,
) -> tuple[SiteResult, ...]:
    """Make the rules of each site what the topology says: read, compare, add, then remove. Errors are in the results.

    Idempotent: doing it again changes nothing; after an error, doing it again does the rest.
    """
    named = _check_sites(topology, sites)
    lock = threading.Lock()

    def tell(site: str, text: str) -> None:
        if on_progress:
            with lock:
                on_progress(site, text)

    def apply_one(site: str) -> SiteResult:
        executor: Executor | None = None
        try:
            with open_store(site) as store:
                plan = _plan_site(topology, site, store)
                executor = Executor(store)
                executor.run(site_steps(plan))
        except FairleadError as error:
            tell(site, f"access rules: {error.what}")
            return SiteResult(site, *((executor.added, executor.removed) if executor else (0, 0)), 0, 0, error)
        tell(site, f"access rules: {executor.added} added, {executor.removed} removed, {plan.keep} kept")
        return SiteResult(site, executor.added, executor.removed, plan.keep, len(plan.alone))

    return tuple(_at_once(apply_one, named))


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
    """Raise ``AccessIncomplete`` unless every site is done (the site's own error when there is only one)."""
    failed = [result for result in results if result.error is not None]
    errors = [result.error for result in failed if result.error is not None]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise AccessIncomplete(
            "access rules are not complete at "
            + ", ".join(f"{r.site} ({e.what})" for r, e in zip(failed, errors, strict=True)),
            hint="see fairlead status; when the sites are back, fairlead acl apply does the rest",
            sites=[result.site for result in failed],
        )


def _plan_site(topology: Topology, site: str, store: RuleStore) -> SitePlan:
    return diff(site, store.read(), compile_site(topology, site), managed_by(topology, site))


def _check_sites(topology: Topology, sites: Collection[str] | None) -> tuple[str, ...]:
    for site in sites or ():
        if site not in topology.sites:
            raise UnknownNameError("site", site, topology.sites)
    return tuple(site for site in topology.sites if sites is None or site in sites)


def _at_once(work: Callable[[str], R], sites: Collection[str]) -> list[R]:
    if not sites:
        return []
    with ThreadPoolExecutor(max_workers=min(16, len(sites)), thread_name_prefix="acl") as pool:
        return list(pool.map(work, sites))
