"""What each user of a site needs and why: one ``Grant`` after the other, before anything is merged. Pure.

For Fairlead's services the need follows from the links and from who may hold which log; which operation needs which
Kafka right was tried out one by one on a broker (see ``docs/access.md``). For customers and users it follows from
the streams' access expressions and from feeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from acl import extent as ext
from acl.clauses import CHANGES_LOGS, PERMITTED, Clause, all_clauses
from acl.extent import Extent
from acl.rules import EVERYBODY, Operation, Pattern, Resource, Rule
from fairlead.errors import ConfigurationError
from fairlead.names import SITE_NAME
from fairlead.records.alert import ALERT_ORDERS
from fairlead.records.custody import CUSTODY_ORDERS
from topologies.expression import Public, Subject
from topologies.model import InsertPoint, Link, SiteKind, Topology
from topologies.users import Role, ServiceUser, is_reserved

_OWN_LOG = (Operation.CREATE, Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
_REPLICA = (*_OWN_LOG, Operation.DELETE, Operation.ALTER_CONFIGS)
_SOURCE = (Operation.READ, Operation.DESCRIBE_CONFIGS)
_ORDERS = Extent("fairlead.orders", Pattern.LITERAL)  # no log of any stream: written by the site's admin
_CUSTODY_ORDERS = Extent(CUSTODY_ORDERS, Pattern.LITERAL)
_ALERT_ORDERS = Extent(ALERT_ORDERS, Pattern.LITERAL)
_SHORE_READS = ("custody", "alerts", "events", "ships", "bookings")


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule and the reason for it, a sentence that begins with where the reason stands."""

    rule: Rule
    because: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A permission of the topology that gets no rule, or less than it says, and why."""

    user: str
    stream: str
    permission: str
    why: str
    where: str  # in the topology


def subject_of(user: ServiceUser) -> Subject:
    """A site's user as access expressions see it."""
    return Subject(user.name, frozenset(user.groups), frozenset(user.roles))


def grants(topology: Topology, user: ServiceUser, stated: Sequence[Clause] | None = None) -> Iterator[Grant]:
    """Everything one user needs at its site. ``stated`` are the topology's clauses, for who asks about many users.

    Raises:
        ConfigurationError: a customer's or user's name that would reach into another's groups, or is a service's; a
            link's pattern of groups that is neither a name nor a prefix.
        ExpressionError: a permission that cannot be understood.
    """
    match user.role:
        case Role.BRIDGE:
            yield from _bridge(topology, user)
        case Role.REPLICATOR:
            yield from _replicator(topology, user)
        case Role.UPSTREAM:
            yield from _upstream(user)
        case Role.SHORE:
            yield from _shore(topology, user)
        case Role.CUSTOMER | Role.USER:
            _check_name(user)
            yield from _feed(topology, user)
            yield from _person(topology, user, all_clauses(topology) if stated is None else stated)


def public_grants(topology: Topology, site: str) -> Iterator[Grant]:
    """What everybody who can log in at a site may do: the permissions that are ``p``."""
    for clause in all_clauses(topology):
        if isinstance(clause.expression, Public):
            yield from _permitted(topology, EVERYBODY, site, clause)


def all_left_out_of(topology: Topology, user: ServiceUser, stated: Sequence[Clause] | None = None) -> Iterator[LeftOut]:
    """The permissions that expressions give a customer or user and no rule can or may express; ``stated`` as above."""
    if user.role not in (Role.CUSTOMER, Role.USER):
        return
    subject = subject_of(user)
    for clause in all_clauses(topology) if stated is None else stated:
        changes = clause.permission in ("produce", "topic", "copy")
        if changes and _by_services_only(topology, clause.stream) and clause.includes(subject):
            yield LeftOut(
                user.name,
                clause.stream,
                clause.permission,
                f"records and logs of stream {clause.stream} come from Fairlead's services only, because another "
                "writer would break the offsets that all sites share; no WRITE, CREATE or DELETE is given",
                clause.where,
            )


def _bridge(topology: Topology, user: ServiceUser) -> Iterator[Grant]:
    site = user.site
    for name, stream in topology.streams.items():
        moves = stream.insert_point is InsertPoint.MOVES
        if not (moves or name in ext.ONE_LOG_PER_SITE or name == "ships"):
            continue
        # A ship never opens a container's log: its replicator makes the topic, so two sites cannot open one each.
        makes = not (moves and topology.sites[site].kind is SiteKind.SHIP)
        operations = tuple(o for o in _OWN_LOG if makes or o is not Operation.CREATE)
        held = f"can be given custody of logs of stream {name}" if moves else f"holds this log of stream {name}"
        for extent in ext.held_at(topology, name, site):
            yield from _topics(user.name, extent, operations, f"bridge: site {site} {held}")
    at_sea = topology.sites[site].kind is SiteKind.SHIP
    for name, wanted, why in (
        ("custody", True, "bridge: follows every site's ledger of custody"),
        ("strays", True, "bridge: drains what other sites have kept for a log that is held here"),
        ("bookings", at_sea, "bridge: watches the cargo on board by what was booked"),
    ):
        if wanted and name in topology.streams:
            yield from _topics(user.name, ext.whole(name), (Operation.READ,), why)
    if "custody" in topology.streams:
        why = "bridge: follows the orders about custody that are given here"
        yield from _topics(user.name, _CUSTODY_ORDERS, (Operation.READ,), why)
    if at_sea and "alerts" in topology.streams:
        why = "bridge: follows the orders about alerts that are given here"
        yield from _topics(user.name, _ALERT_ORDERS, (Operation.READ,), why)


def _replicator(topology: Topology, user: ServiceUser) -> Iterator[Grant]:
    yield from _topics(
        user.name, _ORDERS, (Operation.READ,), "replicator: follows the orders that operators give it here"
    )
    for link in user.links:
        for stream, selection in link.streams.items():
            taken = ext.selected(stream, selection)
            for extent in ext.meet(taken, ext.held_elsewhere(topology, stream, user.site)):
                yield from _topics(user.name, extent, _REPLICA, f"link {link.name}: brings stream {stream} here")
            if link.groups:  # to commit takes READ, and a group that comes home has offsets on this site's own logs
                for extent in taken:
                    why = f"link {link.name}: brings offsets of groups on stream {stream} here"
                    yield from _topics(user.name, extent, (Operation.READ,), why)
        yield from _follow(user.name, link, Operation.READ, "brings offsets of groups {} here")
    # A berthed link opens and closes by this site's own events; who holds a container's log follows from every ledger.
    moves = bool(topology.moving_streams)
    berths = any(link.when == "berthed" for link in user.links)
    for stream, needed in (("custody", moves), ("events", berths)):
        if needed and stream in topology.streams:
            for extent in ext.held_at(topology, stream, user.site):
                yield from _topics(
                    user.name, extent, (Operation.READ,), f"replicator: follows this site's own {stream}"
                )


def _upstream(user: ServiceUser) -> Iterator[Grant]:
    for link in user.links:
        for stream, selection in link.streams.items():
            for extent in ext.selected(stream, selection):
                yield from _topics(user.name, extent, _SOURCE, f"link {link.name}: takes stream {stream} from here")
        yield from _follow(user.name, link, Operation.DESCRIBE, "takes offsets of groups {} from here")


def _shore(topology: Topology, user: ServiceUser) -> Iterator[Grant]:
    for name, stream in topology.streams.items():
        if stream.insert_point is InsertPoint.MOVES or name in _SHORE_READS:
            yield from _topics(user.name, ext.whole(name), (Operation.READ,), f"shore: reads stream {name}")
        if stream.insert_point is InsertPoint.SHORE:
            why = "the customers' feeds" if name == "feeds" else f"stream {name}"
            for extent in ext.held_at(topology, name, user.site):
                yield from _topics(user.name, extent, _OWN_LOG, f"shore: writes {why}")
    yield _group(user.name, "shore: consumer groups of its own")


def _feed(topology: Topology, user: ServiceUser) -> Iterator[Grant]:
    customer = topology.customers.get(user.name) if user.role is Role.CUSTOMER else None
    if customer is None or customer.feed_at is None or "feeds" not in topology.streams:
        return
    if user.site == customer.feed_at or ext.log_exists_at(topology, "feeds", user.name, user.site):
        why = f"customers.{user.name}: feed of its own"
        yield from _topics(user.name, ext.log("feeds", user.name), (Operation.READ,), why)
        yield _group(user.name, why)


def _person(topology: Topology, user: ServiceUser, stated: Sequence[Clause]) -> Iterator[Grant]:
    subject = subject_of(user)
    for clause in stated:
        if not clause.includes(subject):
            continue
        given = list(_permitted(topology, user.name, user.site, clause))
        if not isinstance(clause.expression, Public):
            yield from given
        operations = {grant.rule.operation for grant in given}
        if Operation.READ in operations:
            yield _group(user.name, f"{clause.where}: consumer groups of its own")
        if Operation.WRITE in operations:
            rule = Rule(user.name, Resource.TRANSACTIONAL_ID, Pattern.PREFIXED, f"{user.name}.", Operation.WRITE)
            yield Grant(rule, f"{clause.where}: transactions of its own")


def _permitted(topology: Topology, user: str, site: str, clause: Clause) -> Iterator[Grant]:
    """A permission as grants: reading and settings on all its logs, changes only to those that are held here."""
    if not ext.exists_at(topology, clause.stream, site):
        return
    why = f"{clause.where}: {clause.text!r}"
    for operation in PERMITTED[clause.permission]:
        if operation not in CHANGES_LOGS:
            yield from _topics(user, clause.extent, (operation,), why)
        elif not _by_services_only(topology, clause.stream):
            for extent in ext.meet((clause.extent,), ext.held_at(topology, clause.stream, site)):
                yield from _topics(user, extent, (operation,), f"{why}, on logs that site {site} holds")


def _by_services_only(topology: Topology, stream: str) -> bool:
    return ext.written_by_services(stream, topology.streams[stream])


def _topics(user: str, extent: Extent, operations: tuple[Operation, ...], because: str) -> Iterator[Grant]:
    for operation in operations:
        yield Grant(Rule(user, Resource.TOPIC, extent.pattern, extent.name, operation), because)


def _group(user: str, because: str) -> Grant:
    return Grant(Rule(user, Resource.GROUP, Pattern.PREFIXED, f"{user}.", Operation.READ), because)


def _follow(user: str, link: Link, operation: Operation, why: str) -> Iterator[Grant]:
    for pattern in link.groups:
        extent = ext.exactly(pattern)
        if extent is None:
            raise ConfigurationError(
                f"link {link.name}: no Kafka rule can say which groups {pattern!r} means",
                hint="use a group's name, or the beginning of names and one * at the end: billing, billing-*",
                link=link.name,
                pattern=pattern,
            )
        rule = Rule(user, Resource.GROUP, extent.pattern, extent.name, operation)
        yield Grant(rule, f"link {link.name}: {why.format(pattern)}")


def _check_name(user: ServiceUser) -> None:
    # A dot would put one user's groups below another's prefix: ducks.evil begins with "ducks.".
    if is_reserved(user.name) or not SITE_NAME.fullmatch(user.name):
        raise ConfigurationError(
            f"{user.name!r} cannot be the name of a customer or user",
            hint="use lower-case letters, digits and hyphens, beginning with a letter, and no name of a service",
            name=user.name,
        )
