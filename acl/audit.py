"""Who can read a log at each site: by the topology, and by the rules that the cluster really holds. Pure.

The topology's answer is that of ``acl.compile``, the cluster's that of ``acl.rules.reach``, which knows also what
Fairlead never writes. Both are asked for everybody whom either one names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from acl.compile import reasons
from acl.rules import EVERYBODY, Binding, Operation, Reach, Resource, allowing, covers, reach
from topologies.model import Topology
from topologies.users import ADMIN, Role, service_users

_USER = "User:"


class ReaderKind(StrEnum):
    """Who somebody is."""

    SERVICE = "service"  # Fairlead's own
    CUSTOMER = "customer"
    USER = "user"
    ADMIN = "admin"  # the super user: no rule binds it
    EVERYBODY = "everybody"  # whoever can log in and is named by no other rule
    UNKNOWN = "unknown"  # the topology has nobody of this name at this site


class ReadVerdict(StrEnum):
    """Whether the cluster does what the topology says."""

    AGREED = "agreed"
    EXTRA = "extra"  # the cluster lets somebody read whom the topology does not
    MISSING = "missing"  # the topology lets somebody read, the cluster does not
    PARTLY = "partly"  # from some hosts only
    UNCHECKED = "unchecked"  # the cluster could not be asked


@dataclass(frozen=True, slots=True)
class TopicReader:
    """Somebody who can read the log at a site by the topology, by the cluster's rules, or by both.

    Args:
        because: Why, in the topology's words; empty when it does not let this one read.
        rules: The topology's rules. ``held`` are the cluster's rules that allow it, ``against`` those that deny it.
        hosts: Hosts for which the answer differs from that for all others, which is ``anywhere``.
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


def readers(topology: Topology, site: str, log: str, held: Collection[Binding] | None) -> tuple[TopicReader, ...]:
    """Everybody who can read ``log`` at ``site``, those that the topology knows first.

    Args:
        held: All rules of the cluster; None when they could not be read.

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
