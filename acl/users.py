"""Create missing SCRAM users on clusters that Fairlead did not start, and remove departed users.

New passwords come from the environment only, never from a file, plan or command line. Existing users keep theirs.
Removing a user (``take_off``) deletes its ACLs, quotas and password, in this order. It does so also on clusters that
Fairlead did not start, where only the operator knows that the user was Fairlead's. Records stay: those of its feed
until their retention ends or somebody deletes the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import UserScramCredentialAlteration

from acl.apply import change_site
from acl.compile import SetQuota
from acl.history import UserChange, noting, stamp
from acl.kafka import AdminStore, Client, NotAuthorised, at_once, note, rules_of, translate
from acl.plan import AccessPlan, AccessRun, SitePlan
from acl.rules import Binding
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError
from fairlead.kafka.admin import kafka_error
from fairlead.kafka.credentials import credential, require_scram, take_password
from topologies.endpoints import EndpointResolver
from topologies.model import Topology
from topologies.users import ADMIN, is_reserved, service_users

if TYPE_CHECKING:  # this import takes a second
    from fairlead.local.sites import LocalSites


def create_missing(topology: Topology, resolver: EndpointResolver, site: str) -> tuple[str, ...]:
    """Create the missing SCRAM users of a site outside this machine, and return their names.

    Raises:
        ConfigurationError: the site is local, its users do not log in by SCRAM, or a missing user has no password in
            the environment (none is created).
        NotAuthorised: the administrator may not describe or alter the cluster.
    """
    if topology.sites[site].is_local:
        raise ConfigurationError(f"{site} runs on this machine: fairlead up creates its users", site=site)
    wanted, admin = service_users(topology, site), resolver.kafka(site, ADMIN)
    require_scram(admin)
    with Client(admin) as client:
        if {"DESCRIBE", "ALTER"} - client.cluster_operations():
            # confluent-kafka 2.16.1 crashes the process if a user without DESCRIBE asks for users.
            raise NotAuthorised(
                f"user {ADMIN!r} may not manage users at site {site}",
                hint="it needs DESCRIBE and ALTER on the cluster",
                site=site,
            )
        missing = sorted(set(wanted) - existing(client, list(wanted)))
        passwords = {user: resolver.kafka(site, user).password for user in missing}
        changes: list[UserScramCredentialAlteration] = [
            credential(user, password, admin.login.mechanism)
            for user, password in passwords.items()
            if password is not None
        ]
        if changes:
            common = stamp(topology.name, site)
            intent = [UserChange(**common, user=user, action="create") for user in missing]
            with noting(partial(note, client.endpoint), *intent):
                for user, future in client.admin.alter_user_scram_credentials(changes).items():
                    client.wait(future, f"creating user {user}")
    return tuple(missing)


def existing(client: Client, users: list[str]) -> set[str]:
    """Return the users among these that have SCRAM credentials in the cluster."""
    futures = client.admin.describe_user_scram_credentials(users, request_timeout=client.timeout)
    found = set()
    for user, future in futures.items():
        try:
            cast("Future[Any]", future).result(timeout=client.timeout + 2)
            found.add(user)
        except KafkaException as problem:
            error = kafka_error(problem)
            if error.code() != KafkaError.RESOURCE_NOT_FOUND:
                raise translate(error, client.endpoint, "asking for users") from None
    return found


Progress = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Leftover:
    """The traces of a user at a site: rules, quotas, login.

    Args:
        login: Whether the user can still log in there.
        unread: Why the quotas could not be read; empty if they could. Nothing is done about them.
        error: The error with which reading or removing failed; None if it did not.
    """

    site: str
    rules: tuple[Binding, ...] = ()
    quotas: tuple[SetQuota, ...] = ()
    login: bool = False
    unread: str = ""
    error: FairleadError | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the site has no trace of the user."""
        return not (self.rules or self.quotas or self.login)


class OffboardingIncomplete(UnavailableError):
    """The user could not be removed at some sites; the other sites are done. The same command does the rest."""


def check_leaves(topology: Topology, user: str) -> None:
    """Raise unless a user may be removed.

    Raises:
        ConfigurationError: the topology still names the user. RefusedError: Fairlead itself uses it.
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


def look(resolver: EndpointResolver, user: str, sites: Collection[str]) -> tuple[Leftover, ...]:
    """Read the traces of a user at each of these sites; a site's error is in its result."""
    return tuple(at_once(partial(_look, resolver, user), sites))


def take_off(
    topology: Topology,
    resolver: EndpointResolver,
    local: LocalSites,
    user: str,
    found: Iterable[Leftover],
    on_progress: Progress = lambda _site, _text: None,
) -> tuple[Leftover, ...]:
    """Remove the traces that were found, with each change in the site's audit log. Call again to do the rest.

    Returns:
        The traces left at each site: none, or the ones from before with the error.
    """

    def one(leftover: Leftover) -> Leftover:
        site = leftover.site
        if leftover.error is not None:
            return leftover
        try:
            if not leftover.is_empty:
                _take_off(topology, resolver, user, leftover)
                on_progress(site, f"{user} is removed")
            if resolver.is_local(site):
                local.forget_user(site, user)
        except FairleadError as error:
            on_progress(site, error.what)
            return replace(leftover, error=error)
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


def _look(resolver: EndpointResolver, user: str, site: str) -> Leftover:
    try:
        with Client(resolver.kafka(site, ADMIN)) as client:
            store = AdminStore(client, local=resolver.is_local(site))
            rules = rules_of(store, user)
            unread, limits = "", dict[str, float]()
            try:
                limits = store.read_quotas().get(user, {})
            except NotAuthorised as error:
                unread = error.what
            login = bool(existing(client, [user]))
    except FairleadError as error:
        return Leftover(site, error=error)
    quotas = tuple(SetQuota(user, key, value, None) for key, value in limits.items())
    return Leftover(site, rules, quotas, login, unread)


def _take_off(topology: Topology, resolver: EndpointResolver, user: str, leftover: Leftover) -> None:
    site, admin = leftover.site, resolver.kafka(leftover.site, ADMIN)
    plan = SitePlan(site, add=(), remove=leftover.rules, keep=0, quotas=leftover.quotas)
    with Client(admin) as client:
        store = AdminStore(client, local=resolver.is_local(site))
        change_site(AccessRun(store), topology.name, AccessPlan(topology.name, (plan,)).identity, plan)
        if leftover.login:
            with noting(store.note, UserChange(**stamp(topology.name, site), user=user, action="delete")):
                take_password(admin, user)
