"""List who can read a log at each site: by the topology, and by the rules that the cluster really holds.

``audit_logs`` asks the clusters; the rest is pure.

``acl.compile`` gives the topology's answer, ``acl.rules.reach`` the cluster's, which also covers rules that Fairlead
never writes. The list has every user whom either one names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from acl.compile import reasons
from acl.kafka import OpenStore
from acl.plan import CurrentAcls, Unread, read_current_acls
from acl.rules import EVERYBODY, Binding, Operation, Reach, Resource, allowing, covers, reach
from fairlead.errors import ConfigurationError
from fairlead.names import container_check_digit, is_container_number
from topologies.model import Topology, check_sites
from topologies.users import ADMIN, Role, service_users

_USER = "User:"


class ReaderKind(StrEnum):
    """The kind of a reader."""

    SERVICE = "service"  # one of Fairlead's own services
    CUSTOMER = "customer"
    USER = "user"
    ADMIN = "admin"  # the super user: no rule binds it
    EVERYBODY = "everybody"  # every user who can log in and whom no other rule names
    UNKNOWN = "unknown"  # the topology has no such user at this site


class ReadVerdict(StrEnum):
    """The comparison of the cluster's rules with the topology."""

    AGREED = "agreed"
    EXTRA = "extra"  # the cluster allows it, the topology does not
    MISSING = "missing"  # the topology allows it, the cluster does not
    PARTLY = "partly"  # the cluster allows it from some hosts only
    UNCHECKED = "unchecked"  # the cluster could not be asked


@dataclass(frozen=True, slots=True)
class TopicReader:
    """A user who can read the log at a site by the topology, by the cluster's rules, or by both.

    Args:
        because: The topology's reasons; empty if it does not allow reading.
        rules: The topology's rules that allow reading.
        held: The cluster's rules that allow reading.
        against: The cluster's rules that deny reading.
        anywhere: Whether the cluster allows reading from the hosts that no rule names.
        hosts: The hosts with the opposite answer.
    """

    user: str
    kind: ReaderKind
    verdict: ReadVerdict
    by_topology: bool
    by_cluster: bool | None
    because: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    anywhere: bool = True
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogReaders:
    """The readers of one log at one site."""

    log: str
    site: str
    readers: tuple[TopicReader, ...]


def audit_logs(
    topology: Topology, open_store: OpenStore, logs: Collection[str], sites: Collection[str] | None = None
) -> tuple[tuple[LogReaders, ...], tuple[Unread, ...]]:
    """Return the readers of these logs, log by log and site by site, and the sites whose rules could not be read.

    Args:
        sites: All sites unless some are named.

    Raises:
        UnknownNameError: the topology has no such site.
    """
    acls = read_current_acls(open_store, check_sites(topology, sites))

    def at(site: str, log: str, held: CurrentAcls) -> LogReaders:
        return LogReaders(log, site, readers(topology, site, log, None if isinstance(held, Unread) else held))

    found = tuple(at(site, log, held) for log in logs for site, held in acls.items())
    return found, tuple(held for held in acls.values() if isinstance(held, Unread))


def log_of_container(topology: Topology, container: str) -> str:
    """Return the name of a container's log.

    Raises:
        ConfigurationError: this is not a container number by ISO 6346; the hint has the right check digit.
    """
    if not is_container_number(container):
        right = len(container) == 11 and container[:10].isalnum() and container.isupper() and container.isascii()
        raise ConfigurationError(
            f"{container!r} is no container number (ISO 6346)",
            hint=f"its check digit would be {container_check_digit(container[:10])}"
            if right
            else "four letters and seven digits, upper case: BIGU1000010",
        )
    return f"{topology.stream_of_container(container)}.{container}"


def readers(topology: Topology, site: str, log: str, held: Collection[Binding] | None) -> tuple[TopicReader, ...]:
    """Return everybody who can read ``log`` at ``site``; users of the topology come first.

    Args:
        held: All rules of the cluster; None if they could not be read.

    Raises:
        ConfigurationError, ExpressionError: the topology's expressions or names cannot be compiled.
    """
    known, why = service_users(topology, site), reasons(topology, site)
    about = [binding for binding in held or () if covers(binding, Resource.TOPIC, log)]
    named = [_USER + user for user in (*known, EVERYBODY, ADMIN)]
    strangers = sorted({binding.principal for binding in about} - {*named})
    found: list[TopicReader] = []
    for principal in (*named, *strangers):
        user = principal.removeprefix(_USER)
        kind = _kind(user, known[user].role if user in known else None)
        if kind is ReaderKind.ADMIN:
            text = "admin is the super user of a cluster; no rule binds it"
            verdict = ReadVerdict.UNCHECKED if held is None else ReadVerdict.AGREED
            found.append(TopicReader(user, kind, verdict, True, None if held is None else True, (text,)))
            continue
        rules = allowing(why, user, Operation.READ, Resource.TOPIC, log)
        got = None if held is None else reach(about, principal, Operation.READ, Resource.TOPIC, log)
        if not rules and (got is None or not got.possible):
            continue
        found.append(
            TopicReader(
                user,
                kind,
                _verdict(bool(rules), got),
                by_topology=bool(rules),
                by_cluster=got.possible if got is not None else None,
                because=tuple(dict.fromkeys(text for rule in rules for text in why[rule])),
                rules=tuple(map(str, rules)),
                held=tuple(sorted(map(str, got.allowed_by))) if got else (),
                against=tuple(sorted(map(str, got.denied_by))) if got else (),
                anywhere=got.anywhere if got else True,
                hosts=got.hosts if got else (),
            )
        )
    return tuple(found)


def _kind(user: str, role: Role | None) -> ReaderKind:
    match role:
        case Role.CUSTOMER:
            return ReaderKind.CUSTOMER
        case Role.USER:
            return ReaderKind.USER
        case None:
            return {ADMIN: ReaderKind.ADMIN, EVERYBODY: ReaderKind.EVERYBODY}.get(user, ReaderKind.UNKNOWN)
        case _:
            return ReaderKind.SERVICE


def _verdict(by_topology: bool, got: Reach | None) -> ReadVerdict:
    if got is None:
        return ReadVerdict.UNCHECKED
    if not by_topology:
        return ReadVerdict.EXTRA
    if not got.possible:
        return ReadVerdict.MISSING
    return ReadVerdict.PARTLY if got.hosts else ReadVerdict.AGREED
