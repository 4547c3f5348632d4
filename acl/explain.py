"""Explain why a user may or may not use a topic, site by site, from the topology alone. Pure.

The answer is the chain from the access expression, feed or link to the Kafka rule. For a refusal it lists every place
in the topology that could have allowed the operation, and why it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from acl.compile import (
    PERMITTED,
    all_left_out_of,
    clauses,
    exists_at,
    grants,
    log_exists_at,
    one_log,
    public_grants,
    smallest,
    subject_of,
)
from acl.rules import Operation, Resource, allowing
from fairlead.errors import UnknownNameError
from fairlead.names import parse_log
from topologies.expression import Nobody, evaluate, format_expression, names
from topologies.model import Topology, check_sites
from topologies.users import ADMIN, Role, ServiceUser, service_users


@dataclass(frozen=True, slots=True)
class AccessAnswer:
    """The answer for one operation at one site. ``because`` has the reasons, in order."""

    site: str
    operation: str
    allowed: bool
    rules: tuple[str, ...]
    because: tuple[str, ...]


def explain(
    topology: Topology, user: str, topic: str, operation: Operation | None = None, site: str | None = None
) -> tuple[AccessAnswer, ...]:
    """Return one answer per site and operation; without an operation, answers for READ and WRITE.

    Raises:
        UnknownNameError: the topology has no such user or site.
    """
    known = {name for other in topology.sites for name in service_users(topology, other)}
    everyone = known | set(topology.customers) | set(topology.users) | {ADMIN}
    if user not in everyone:
        raise UnknownNameError("user", user, everyone)
    sites = check_sites(topology, None if site is None else [site])
    operations = (operation,) if operation else (Operation.READ, Operation.WRITE)
    return tuple(answer for at in sites for answer in _answers(topology, user, topic, operations, at))


def _answers(
    topology: Topology, user: str, topic: str, operations: tuple[Operation, ...], site: str
) -> Iterator[AccessAnswer]:
    here = service_users(topology, site).get(user)
    given = [*grants(topology, here), *public_grants(topology, site)] if here is not None else []
    kept = smallest(given)
    for operation in operations:
        rules = allowing(kept, user, operation, Resource.TOPIC, topic)
        because: Iterable[str]
        if user == ADMIN:
            because = ("admin is the super user of a cluster; no rule binds it",)
        elif here is None:
            because = (f"user {user} does not exist at site {site}",)
        elif rules:
            # Take the reasons of the grants: those of the merged rules may be about other logs.
            because = dict.fromkeys(g.because for g in given if g.rule.allows(user, operation, Resource.TOPIC, topic))
        else:
            because = _refusal(topology, here, topic, operation)
        yield AccessAnswer(site, operation.value, bool(rules) or user == ADMIN, tuple(map(str, rules)), tuple(because))


def _refusal(topology: Topology, user: ServiceUser, topic: str, operation: Operation) -> Iterator[str]:
    log = parse_log(topic)
    if log is None or log.stream not in topology.streams:
        yield f"{topic} is no log of any stream of this topology ({', '.join(topology.streams)})"
        return
    if not exists_at(topology, log.stream, user.site):
        yield f"no link brings stream {log.stream} to site {user.site}"
    if user.role in (Role.CUSTOMER, Role.USER):
        yield from _person_refused(topology, user, log.stream, log.key, operation)
    else:
        yield f"{user.name} is a service of Fairlead; at {user.site} it needs no {operation} on {topic}"


def _person_refused(
    topology: Topology, user: ServiceUser, stream: str, key: str, operation: Operation
) -> Iterator[str]:
    subject = subject_of(user)
    missing = {item.where: item.why for item in all_left_out_of(topology, user) if item.stream == stream}
    for clause in clauses(topology, stream):
        if not any(given is operation or _implied(given, operation) for given in PERMITTED[clause.permission]):
            continue
        if not clause.extent.covers(one_log(stream, key)):
            continue
        expression = clause.expression
        if isinstance(expression, Nobody):
            yield f"{clause.where} is empty: nobody"
        elif evaluate(expression, subject):
            why = missing.get(clause.where, f"site {user.site} does not hold this log")
            yield f"{clause.where} includes {user.name}, but {why}"
        else:
            asked = dict.fromkeys(names(expression))
            answers = ", ".join(f"{format_expression(n)} {'yes' if evaluate(n, subject) else 'no'}" for n in asked)
            shown = format_expression(expression)
            yield f"{clause.where} is {shown!r} and does not include {user.name} ({answers})"
    if stream == "feeds" and operation in (Operation.READ, Operation.DESCRIBE):
        yield _feed_refused(topology, user, key)


def _feed_refused(topology: Topology, user: ServiceUser, key: str) -> str:
    customer = topology.customers.get(user.name)
    if key != user.name:
        return f"a customer reads feeds.{user.name} only" if customer else f"{user.name} is no customer and has no feed"
    if customer is None or customer.feed_at is None:
        return f"customers.{user.name}.feed_at is not set: there is no such feed"
    if not log_exists_at(topology, "feeds", key, user.site):
        return f"no link brings feeds.{key} to site {user.site}; it is read at {customer.feed_at}"
    return f"feeds.{key} is read at {customer.feed_at}"


def _implied(given: Operation, wanted: Operation) -> bool:
    return wanted is Operation.DESCRIBE and given in (Operation.READ, Operation.WRITE, Operation.DELETE)
