"""Taking a user off the clusters when the topology names it no more: rules, quotas, and the password, in this order.

``acl apply`` takes the rules away where the cluster is Fairlead's; this is for all that a user leaves behind, also on
clusters of others, where nobody but the operator can tell that the user was Fairlead's. Records are not touched: its
feed stays until its retention ends or somebody deletes the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial

from acl.apply import Executor, at_once, carry_out
from acl.binding import Binding
from acl.entries import UserChange, noting, stamp
from acl.kafka import Client
from acl.plan import Plan, SitePlan
from acl.quotas import SetQuota
from acl.store import AdminStore, rules_of
from acl.users import existing
from fairlead.credentials import take_password
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError
from fairlead.local.sites import LocalSites
from topologies.directory import Directory
from topologies.model import Topology
from topologies.users import ADMIN, is_reserved

Progress = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a site still has of a user.

    Args:
        login: Whether it can still log in there.
        error: Why that could not be found out, or not be taken away; None when it could.
    """

    site: str
    rules: tuple[Binding, ...] = ()
    quotas: tuple[SetQuota, ...] = ()
    login: bool = False
    error: FairleadError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing."""
        return not (self.rules or self.quotas or self.login)


class OffboardingIncomplete(UnavailableError):
    """Some sites could not be done; the others are. The same command finishes."""


def check_leaves(topology: Topology, user: str) -> None:
    """Do nothing when a user may be taken off.

    Raises:
        ConfigurationError: the topology still names it. RefusedError: Fairlead itself works as it.
    """
    if is_reserved(user):
        raise RefusedError(f"{user} is a user of Fairlead's own: no site works without it", user=user)
    for part, people in (("customers", topology.customers), ("users", topology.users)):
        if user in people:
            raise ConfigurationError(
                f"{user} is still in the topology, under {part}",
                hint=f"take {part}.{user} out of it first, with its links and expressions; then fairlead acl apply",
                user=user,
            )


def look(directory: Directory, user: str, sites: Collection[str]) -> tuple[Leftover, ...]:
    """What each of these sites has of a user. Changes nothing; a site's error is in its result."""
    return tuple(at_once(partial(_look, directory, user), sites))


def take_off(
    topology: Topology,
    directory: Directory,
    local: LocalSites,
    user: str,
    found: Iterable[Leftover],
    on_progress: Progress = lambda _site, _text: None,
) -> tuple[Leftover, ...]:
    """Take away what was found, each change noted in the site's audit log. Doing it again does what is left.

    Returns:
        What is left at each site: nothing, or what was there before with the error.
    """

    def one(leftover: Leftover) -> Leftover:
        site = leftover.site
        if leftover.error is not None:
            return leftover
        try:
            if not leftover.is_empty:
                _take_off(topology, directory, user, leftover)
                on_progress(site, f"{user} is off")
            if directory.is_local(site):
                local.forget_user(site, user)
        except FairleadError as error:
            on_progress(site, error.what)
            return Leftover(site, leftover.rules, leftover.quotas, leftover.login, error)
        return Leftover(site)

    return tuple(one(leftover) for leftover in found)


def check_complete(results: Iterable[Leftover]) -> None:
    """Raise ``OffboardingIncomplete`` unless every site is done."""
    failed = [(result.site, result.error) for result in results if result.error is not None]
    if failed:
        raise OffboardingIncomplete(
            "not done at " + ", ".join(f"{site} ({error.what})" for site, error in failed),
            hint="the other sites are done; when these are back, the same command finishes",
            sites=[site for site, _ in failed],
        )


def _look(directory: Directory, user: str, site: str) -> Leftover:
    try:
        with Client(directory.kafka(site, ADMIN)) as client:
            store = AdminStore(client, local=directory.is_local(site))
            rules = rules_of(store, user)
            limits = store.read_quotas().get(user, {})
            login = bool(existing(client, [user]))
    except FairleadError as error:
        return Leftover(site, error=error)
    return Leftover(site, rules, tuple(SetQuota(user, key, value, None) for key, value in limits.items()), login)


def _take_off(topology: Topology, directory: Directory, user: str, leftover: Leftover) -> None:
    site, admin = leftover.site, directory.kafka(leftover.site, ADMIN)
    plan = SitePlan(site, add=(), remove=leftover.rules, keep=0, quotas=leftover.quotas)
    with Client(admin) as client:
        store = AdminStore(client, local=directory.is_local(site))
        carry_out(store, Executor(store), topology.name, Plan(topology.name, (plan,)).identity, plan)
        if leftover.login:
            with noting(store.note, UserChange(**stamp(topology.name, site), user=user, action="delete")):
                take_password(admin, user)
