"""Compile a topology to the ACLs and client quotas of each site, with the reason for each ACL. Pure.

Access expressions become clauses (``Clause``), then the rules that each user of a site needs, with their reasons
(``RuleGrant``), then the smallest set of rules. The rights of Fairlead's services follow from the links and from the
logs that a site may hold; the right that each operation needs was found by trial on a broker (docs/access.md). The
rights of customers and users follow from the streams' access expressions and feeds.

A Kafka ACL names topics in two ways: one name, or a prefix (``ResourcePattern``). A stream's prefix ends with its dot
(``red.``), so it never covers a stream ``reds``. A pattern that neither way can express is rounded up to the next
prefix within the stream; docs/access.md lists those cases.

Kafka counts a quota per broker: a site of three brokers gives a user up to three times its quota.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from acl.rules import EVERYBODY, Operation, Pattern, Resource, Rule, implies, implying
from fairlead.errors import ConfigurationError
from fairlead.names import SITE_NAME
from fairlead.plan import LineStyle, PlanLine
from fairlead.records.alert import ALERT_ORDERS
from fairlead.records.custody import CUSTODY_ORDERS
from topologies.expression import Expression, Public, Subject, evaluate, parse
from topologies.model import (
    BRIDGE_STREAMS,
    ENDS,
    ONE_LOG_PER_SITE,
    PERMISSIONS,
    SHORE_ALERTS,
    InsertPoint,
    Link,
    Permissions,
    Quota,
    Selection,
    SiteKind,
    Topology,
)
from topologies.retention import KeeperGraph
from topologies.users import NOTIFY_GROUPS, REPLICATOR_GROUPS, Role, ServiceUser, is_reserved, service_users
from topologies.values import format_rate

_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """All topics with this name (``LITERAL``: one), or whose name begins with it (``PREFIXED``)."""

    name: str
    pattern: Pattern = Pattern.PREFIXED

    def covers(self, other: ResourcePattern) -> bool:
        """Return whether every topic of ``other`` is covered."""
        if self.pattern is Pattern.LITERAL:
            return self == other
        return other.name.startswith(self.name)

    def intersect(self, other: ResourcePattern) -> ResourcePattern | None:
        """Return the topics that both patterns match; None if no topic can match both."""
        if self.covers(other):
            return other
        return self if other.covers(self) else None


def whole_stream(stream: str) -> ResourcePattern:
    """Return the pattern of all logs of a stream."""
    return ResourcePattern(f"{stream}.")


def one_log(stream: str, key: str) -> ResourcePattern:
    """Return the pattern of one log."""
    return ResourcePattern(f"{stream}.{key}", Pattern.LITERAL)


def logs_with_key(stream: str, pattern: str) -> ResourcePattern:
    """Return the pattern of the log with this key or, if ``pattern`` ends with ``*``, of all keys with this prefix."""
    return ResourcePattern(f"{stream}.{pattern[:-1]}") if pattern.endswith("*") else one_log(stream, pattern)


def without_covered(extents: Iterable[ResourcePattern]) -> tuple[ResourcePattern, ...]:
    """Return the patterns without those that another one covers, sorted."""
    unique = sorted(set(extents))
    return tuple(e for e in unique if not any(other.covers(e) for other in unique if other != e))


def intersect_all(some: Iterable[ResourcePattern], others: Iterable[ResourcePattern]) -> tuple[ResourcePattern, ...]:
    """Return the topics that both sets of patterns match."""
    others = tuple(others)
    return without_covered(both for a in some for b in others if (both := a.intersect(b)))


def selected_logs(stream: str, selection: Selection) -> tuple[ResourcePattern, ...]:
    """Return the logs of a stream that a link may carry. ``aboard`` is the whole stream, because custody changes at run
    time; a key pattern is rounded up to the text before its first wildcard."""
    if isinstance(selection, str):
        return (whole_stream(stream),)
    return without_covered(_matching(stream, pattern) for pattern in selection)


def _matching(stream: str, pattern: str) -> ResourcePattern:
    wildcard = _WILDCARD.search(pattern)
    if wildcard is None:
        return one_log(stream, pattern)
    return ResourcePattern(f"{stream}.{pattern[: wildcard.start()]}")


def pattern_of_glob(pattern: str) -> ResourcePattern | None:
    """Return the equivalent of a shell-style pattern; None if neither a name nor a prefix matches the same names.
    ``*`` alone gives None, because Kafka accepts no empty prefix."""
    if _WILDCARD.search(pattern) is None:
        return ResourcePattern(pattern, Pattern.LITERAL) if pattern else None
    head = pattern[:-1]
    return ResourcePattern(head) if head and pattern.endswith("*") and _WILDCARD.search(head) is None else None


def takes(selection: Selection, key: str) -> bool:
    """Return whether a link's selection may carry one log; ``aboard`` counts as yes."""
    return isinstance(selection, str) or any(fnmatch.fnmatchcase(key, pattern) for pattern in selection)


_SHORE_ALERTS = ResourcePattern(SHORE_ALERTS, Pattern.LITERAL)


def held_at(topology: Topology, stream: str, site: str) -> tuple[ResourcePattern, ...]:
    """Return the logs that ``site`` may append to: its own, or those whose custody it can get.

    A stream that moves is one pattern, whatever the site holds now, because a rule cannot follow custody. There the
    append convention keeps out sites without custody (docs/append-convention.md).
    """
    here = topology.sites[site]
    match topology.streams[stream].insert_point:
        case InsertPoint.MOVES:
            return (whole_stream(stream),) if can_hold_containers(topology, stream, site) else ()
        case InsertPoint.SHIP:
            return (ResourcePattern(f"{stream}.{here.imo}."),) if here.kind is SiteKind.SHIP and here.imo else ()
        case InsertPoint.SHORE:
            return (whole_stream(stream),) if topology.shore and site in topology.shore.sites else ()
        case InsertPoint.SITE:
            # No records enter at a customer's site except what it confirms; bookings are made at an office ashore.
            none = (here.kind is SiteKind.CUSTOMER and stream != ENDS) or (
                stream == "bookings" and here.kind is SiteKind.SHIP
            )
            own = () if none else _logs_of(stream, site)
            shore = stream == "alerts" and topology.shore is not None and site in topology.shore.sites
            return (*own, _SHORE_ALERTS) if shore else own


def held_elsewhere(topology: Topology, stream: str, site: str) -> tuple[ResourcePattern, ...]:
    """Return the logs of a stream that ``site`` can have as replicas: all but its own, or all if the stream moves. A
    site where shore stands by has replicas of what shore writes."""
    if topology.streams[stream].insert_point is InsertPoint.SHORE and topology.shore is not None:
        return () if topology.shore.at == site else (whole_stream(stream),)
    others = [other for other in topology.sites if other != site]
    own = held_at(topology, stream, site)
    insert_point = topology.streams[stream].insert_point
    if insert_point is InsertPoint.MOVES or (not own and insert_point is not InsertPoint.SITE):
        return (whole_stream(stream),)
    found = without_covered(extent for other in others for extent in held_at(topology, stream, other))
    writes = topology.shore is not None and topology.shore.at == site  # where shore stands by, it does not write yet
    return tuple(extent for extent in found if not (writes and extent == _SHORE_ALERTS))


def can_hold_containers(topology: Topology, stream: str, site: str) -> bool:
    """Return whether this site can have custody of a stream's boxes: a port or headquarters always, a ship if a link
    carries the stream there, a customer's site never."""
    kind = topology.sites[site].kind
    if kind is SiteKind.SHIP:
        return any(stream in link.streams for link in topology.links_to(site))
    return kind is not SiteKind.CUSTOMER


def exists_at(topology: Topology, stream: str, site: str) -> bool:
    """Return whether a site can have logs of a stream: it may hold them, or a link carries them there."""
    return bool(held_at(topology, stream, site)) or any(stream in link.streams for link in topology.links_to(site))


def log_exists_at(topology: Topology, stream: str, key: str, site: str) -> bool:
    """Return whether a site can have one log: it may hold it, or a link carries it there."""
    one = one_log(stream, key)
    return any(extent.covers(one) for extent in held_at(topology, stream, site)) or any(
        stream in link.streams and takes(link.streams[stream], key) for link in topology.links_to(site)
    )


def _logs_of(stream: str, site: str) -> tuple[ResourcePattern, ...]:
    own = one_log(stream, site)
    return (own,) if stream in ONE_LOG_PER_SITE else (own, ResourcePattern(f"{stream}.{site}."))


KEYS = {"consume": "consumer_byte_rate", "produce": "producer_byte_rate", "requests": "request_percentage"}
"""Kafka's quota key for each limit of the topology."""
_WORDS = {kafka: word for word, kafka in KEYS.items()}

Quotas = Mapping[str, Mapping[str, float]]
"""Limits by user and Kafka's quota key."""


@dataclass(frozen=True, slots=True, order=True)
class SetQuota:
    """A change of one quota; None means no quota."""

    user: str
    key: str
    old: float | None
    new: float | None


def compile_quotas(topology: Topology, site: str) -> dict[str, dict[str, float]]:
    """Return the quotas of the users that exist at a site."""
    people: dict[str, Quota] = {name: customer.quota for name, customer in topology.customers.items()}
    people |= {name: user.quota for name, user in topology.users.items()}
    found: dict[str, dict[str, float]] = {}
    for user in service_users(topology, site):
        if user in people:
            limits = {kafka: getattr(people[user], word) for word, kafka in KEYS.items()}
            if wanted := {key: float(value) for key, value in limits.items() if value is not None}:
                found[user] = wanted
    return found


def managed_users(topology: Topology, site: str) -> Callable[[str], bool]:
    """Return a predicate that selects the users whose quotas Fairlead may change.

    On clusters that Fairlead started it may change those of everybody but its services, elsewhere those of the
    topology's customers and users.
    """
    if topology.sites[site].is_local:
        return lambda user: not is_reserved(user)
    return lambda user: user in topology.customers or user in topology.users


def diff_quotas(actual: Quotas, desired: Quotas, managed: Callable[[str], bool]) -> tuple[SetQuota, ...]:
    """Return the changes that make ``actual`` equal ``desired`` for the users that are ``managed``. Other users, and
    keys that the topology does not know, stay."""
    changes = [
        SetQuota(user, key, have, want)
        for user in {*actual, *desired}
        if managed(user)
        for key in KEYS.values()
        if (have := actual.get(user, {}).get(key)) != (want := desired.get(user, {}).get(key))
    ]
    return tuple(sorted(changes, key=lambda change: (change.user, change.key)))


def together(changes: Collection[SetQuota]) -> dict[str, dict[str, float | None]]:
    """Return the changes by user and key, in the form of the request."""
    found: dict[str, dict[str, float | None]] = {}
    for change in changes:
        found.setdefault(change.user, {})[change.key] = change.new
    return found


def quota_lines(changes: Collection[SetQuota]) -> Iterator[PlanLine]:
    """Yield one line for each change."""
    for change in changes:
        word = _WORDS.get(change.key, change.key)
        old, new = _shown(change.key, change.old), _shown(change.key, change.new)
        if change.new is None:
            yield PlanLine(f"- quota of {change.user}: {word} {old}", LineStyle.REMOVE)
        elif change.old is None:
            yield PlanLine(f"+ quota of {change.user}: {word} {new}", LineStyle.ADD)
        else:
            yield PlanLine(f"+ quota of {change.user}: {word} {new} (was {old})", LineStyle.ADD)


def _shown(key: str, value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:g} %" if key == KEYS["requests"] else format_rate(int(value))


def compile_site(topology: Topology, site: str) -> frozenset[Rule]:
    """Return all rules that a site should have: ALLOW only, none implied by another."""
    return frozenset(reasons(topology, site))


def reasons(topology: Topology, site: str) -> dict[Rule, tuple[str, ...]]:
    """Return the same rules with their reasons. A rule that covers others also has their reasons."""
    users = service_users(topology, site).values()
    stated = all_clauses(topology)
    everyone = [grant for user in users for grant in grants(topology, user, stated)]
    return smallest([*everyone, *public_grants(topology, site)])


def all_left_out(topology: Topology, site: str) -> tuple[LeftOut, ...]:
    """Return the permissions at a site that get no rule, or only a part of what they permit."""
    stated, users = all_clauses(topology), service_users(topology, site).values()
    return tuple(item for user in users for item in all_left_out_of(topology, user, stated))


def smallest(given: Iterable[RuleGrant]) -> dict[Rule, tuple[str, ...]]:
    """Merge grants into sorted rules of which none implies another, each with its reasons, without repeats."""
    because: dict[Rule, dict[str, None]] = {}
    for grant in given:
        because.setdefault(grant.rule, {})[grant.because] = None
    index = _Index(because)
    kept: dict[Rule, dict[str, None]] = {}
    for rule, why in because.items():
        wide = _widest(rule, index.wider(rule))
        kept[wide] = {**kept.get(wide, because[wide]), **why}
    return {rule: tuple(kept[rule]) for rule in sorted(kept)}


PERMITTED: dict[str, tuple[Operation, ...]] = {
    "admin": (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    "produce": (Operation.WRITE,),
    "consume": (Operation.READ,),
    "topic": (Operation.CREATE, Operation.DELETE),
    "copy": (Operation.READ, Operation.DESCRIBE_CONFIGS, Operation.WRITE, Operation.CREATE, Operation.DELETE),
}
"""Kafka's operations for each permission; those in ``CHANGES_LOGS`` only on logs that the site holds."""

CHANGES_LOGS = frozenset({Operation.WRITE, Operation.CREATE, Operation.DELETE})


@dataclass(frozen=True, slots=True)
class Clause:
    """One permission of a stream, or of the logs of a stream whose keys match a pattern.

    Args:
        key: The pattern in the topology, or None for the whole stream.
        extent: The logs that the permission covers.
    """

    stream: str
    key: str | None
    permission: str
    text: str
    extent: ResourcePattern

    @property
    def expression(self) -> Expression:
        """The access expression that selects the users of the permission.

        Raises:
            ExpressionError: the text cannot be parsed.
        """
        return parse(self.text)

    @property
    def where(self) -> str:
        """The permission's place in the topology."""
        between = "permissions" if self.key is None else f"keys.{self.key}"
        return f"streams.{self.stream}.{between}.{self.permission}"

    def includes(self, subject: Subject) -> bool:
        """Return whether the expression includes this user."""
        return evaluate(self.expression, subject)


def clauses(topology: Topology, stream: str) -> Iterator[Clause]:
    """Yield every permission of a stream, also empty ones: first those of the whole stream, then those of its keys."""
    spec = topology.streams[stream]
    yield from _five(stream, None, spec.permissions, whole_stream(stream))
    for key, permissions in spec.keys.items():
        yield from _five(stream, key, permissions, logs_with_key(stream, key))


def all_clauses(topology: Topology) -> tuple[Clause, ...]:
    """Return the clauses of all streams, without empty ones."""
    return tuple(clause for stream in topology.streams for clause in clauses(topology, stream) if clause.text)


def _five(stream: str, key: str | None, permissions: Permissions, extent: ResourcePattern) -> Iterator[Clause]:
    for name in PERMISSIONS:
        yield Clause(stream, key, name, permissions.text(name), extent)


_OWN_LOG = (Operation.CREATE, Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
_REPLICA = (*_OWN_LOG, Operation.DELETE, Operation.ALTER_CONFIGS)
_SOURCE = (Operation.READ, Operation.DESCRIBE_CONFIGS)
_ORDERS = ResourcePattern("fairlead.orders", Pattern.LITERAL)  # not in any stream; the site's admin writes it
_CUSTODY_ORDERS = ResourcePattern(CUSTODY_ORDERS, Pattern.LITERAL)
_ALERT_ORDERS = ResourcePattern(ALERT_ORDERS, Pattern.LITERAL)
_SHORE_READS = ("custody", "alerts", "events", "ships", "bookings")


@dataclass(frozen=True, slots=True)
class RuleGrant:
    """A rule and its reason, which begins with its place in the topology."""

    rule: Rule
    because: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A permission of the topology that gets no rule, or only a part of what it permits, and the reason."""

    user: str
    stream: str
    permission: str
    why: str
    where: str  # its place in the topology


def subject_of(user: ServiceUser) -> Subject:
    """Return a site's user as the subject of access expressions."""
    return Subject(user.name, frozenset(user.groups), frozenset(user.roles))


def grants(topology: Topology, user: ServiceUser, stated: Sequence[Clause] | None = None) -> Iterator[RuleGrant]:
    """Yield the rules that one user needs at its site. ``stated`` are the topology's clauses; pass them when compiling
    for many users.

    Raises:
        ConfigurationError: a customer or user has a service's name, or a name whose prefix covers another's groups; or
            a link's pattern of groups is neither a name nor a prefix.
        ExpressionError: a permission cannot be parsed.
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
        case Role.BOARD:
            yield from _board(topology, user)
        case Role.NOTIFY:
            yield from _notify(topology, user)
        case Role.CUSTOMER | Role.USER:
            _check_name(user)
            yield from _feed(topology, user)
            yield from _person(topology, user, all_clauses(topology) if stated is None else stated)


def public_grants(topology: Topology, site: str) -> Iterator[RuleGrant]:
    """Yield the rules for everybody who can log in at a site: the permissions that are ``p``."""
    for clause in all_clauses(topology):
        if isinstance(clause.expression, Public):
            yield from _permitted(topology, EVERYBODY, site, clause)


def all_left_out_of(topology: Topology, user: ServiceUser, stated: Sequence[Clause] | None = None) -> Iterator[LeftOut]:
    """Yield the permissions of a customer or user that no rule can or may express. ``stated``: see ``grants``."""
    if user.role not in (Role.CUSTOMER, Role.USER):
        return
    subject = subject_of(user)
    for clause in all_clauses(topology) if stated is None else stated:
        changes = clause.permission in ("produce", "topic", "copy")
        if changes and topology.written_by_services(clause.stream) and clause.includes(subject):
            yield LeftOut(
                user.name,
                clause.stream,
                clause.permission,
                f"records and logs of stream {clause.stream} come from Fairlead's services only, because another "
                "writer would break the offsets that all sites share; no WRITE, CREATE or DELETE is given",
                clause.where,
            )


def _bridge(topology: Topology, user: ServiceUser) -> Iterator[RuleGrant]:
    site = user.site
    for name, stream in topology.streams.items():
        moves = stream.insert_point is InsertPoint.MOVES
        if not (moves or name in BRIDGE_STREAMS or name == "ships"):
            continue
        # A ship's bridge never creates a container's log, only its replicator does; else two sites could create one.
        makes = not (moves and topology.sites[site].kind is SiteKind.SHIP)
        operations = tuple(o for o in _OWN_LOG if makes or o is not Operation.CREATE)
        held = f"can be given custody of logs of stream {name}" if moves else f"holds this log of stream {name}"
        for extent in held_at(topology, name, site):
            if extent != _SHORE_ALERTS:
                yield from _topics(user.name, extent, operations, f"bridge: site {site} {held}")
    for name, why in (
        ("custody", "bridge: follows every site's ledger of custody"),
        ("strays", "bridge: drains what other sites have kept for a log that is held here"),
        ("bookings", "bridge: watches the cargo by what was booked, and knows which office has which booking"),
    ):
        if name in topology.streams:
            yield from _topics(user.name, whole_stream(name), (Operation.READ,), why)
    if "custody" in topology.streams:
        why = "bridge: follows the orders about custody that are given here"
        yield from _topics(user.name, _CUSTODY_ORDERS, (Operation.READ,), why)
    if "alerts" in topology.streams:
        why = "bridge: follows the orders about alerts that are given here"
        yield from _topics(user.name, _ALERT_ORDERS, (Operation.READ,), why)


def _replicator(topology: Topology, user: ServiceUser) -> Iterator[RuleGrant]:
    yield from _topics(
        user.name, _ORDERS, (Operation.READ,), "replicator: follows the orders that operators give it here"
    )
    for link in user.links:
        for stream, selection in link.streams.items():
            taken = selected_logs(stream, selection)
            for extent in intersect_all(taken, held_elsewhere(topology, stream, user.site)):
                yield from _topics(user.name, extent, _REPLICA, f"link {link.name}: brings stream {stream} here")
            if link.groups:  # a commit needs READ, also on this site's own logs
                for extent in taken:
                    why = f"link {link.name}: brings offsets of groups on stream {stream} here"
                    yield from _topics(user.name, extent, (Operation.READ,), why)
        yield from _follow(user.name, link, Operation.READ, "brings offsets of groups {} here")
    # This site's own events and a ship's positions open and close a berthed link; every ledger shows who holds a
    # container's log.
    moves = bool(topology.moving_streams)
    berths = any(link.when == "berthed" for link in user.links)
    for stream, needed in (("custody", moves), ("events", berths)):
        if needed and stream in topology.streams:
            for extent in held_at(topology, stream, user.site):
                yield from _topics(
                    user.name, extent, (Operation.READ,), f"replicator: follows this site's own {stream}"
                )
    if berths and (imo := topology.sites[user.site].imo) is not None and "ships" in topology.streams:
        own = one_log("ships", f"{imo}.location")
        yield from _topics(user.name, own, (Operation.READ,), "replicator: follows this ship's own positions")
    yield from _retention(topology, user)
    sharing = Rule(user.name, Resource.GROUP, Pattern.PREFIXED, REPLICATOR_GROUPS, Operation.READ)
    yield RuleGrant(sharing, "replicator: shares this site's logs with others of its group (replicate --group)")


def _retention(topology: Topology, user: ServiceUser) -> Iterator[RuleGrant]:
    """Yield what the replicator needs to delete old records of logs that its site holds, and to confirm its ends."""
    confirmed = KeeperGraph(topology).confirmed_streams(user.site)
    for name in topology.streams:
        held = held_at(topology, name, user.site)
        if name == ENDS:
            for extent in held if confirmed else ():
                why = "replicator: confirms which records this site has"
                yield from _topics(user.name, extent, (*_OWN_LOG, Operation.DELETE), why)
            continue
        for extent in held:
            if topology.sites[user.site].own_retention_of(name) != dt.timedelta.max:
                why = f"replicator: deletes old records of stream {name}, which this site holds"
                yield from _topics(user.name, extent, (Operation.READ, Operation.DELETE), why)
            if name in confirmed:
                why = f"replicator: confirms the ends of this site's logs of stream {name}"
                yield from _topics(user.name, extent, (Operation.READ,), why)


def _upstream(user: ServiceUser) -> Iterator[RuleGrant]:
    for link in user.links:
        for stream, selection in link.streams.items():
            for extent in selected_logs(stream, selection):
                yield from _topics(user.name, extent, _SOURCE, f"link {link.name}: takes stream {stream} from here")
        yield from _follow(user.name, link, Operation.DESCRIBE, "takes offsets of groups {} from here")


def _shore(topology: Topology, user: ServiceUser) -> Iterator[RuleGrant]:
    for name, stream in topology.streams.items():
        if stream.insert_point is InsertPoint.MOVES or name in _SHORE_READS:
            yield from _topics(user.name, whole_stream(name), (Operation.READ,), f"shore: reads stream {name}")
        if stream.insert_point is InsertPoint.SHORE:
            why = "the customers' feeds" if name == "feeds" else f"stream {name}"
            for extent in held_at(topology, name, user.site):
                yield from _topics(user.name, extent, _OWN_LOG, f"shore: writes {why}")
    if topology.shore_raises_alerts:
        yield from _topics(user.name, _SHORE_ALERTS, _OWN_LOG, "shore: writes the alerts that it finds")
    yield _group(user.name, "shore: consumer groups of its own")


def _board(topology: Topology, user: ServiceUser) -> Iterator[RuleGrant]:
    for name in ("alerts", "events", "ships"):
        if name in topology.streams:
            yield from _topics(user.name, whole_stream(name), (Operation.READ,), f"board: shows stream {name}")
    if "alerts" in topology.streams:
        why = "board: orders what its users order about alerts that were raised here"
        yield from _topics(user.name, _ALERT_ORDERS, (Operation.CREATE, Operation.WRITE), why)


def _notify(topology: Topology, user: ServiceUser) -> Iterator[RuleGrant]:
    for name, why in (
        ("alerts", "notify: routes every alert that this site has"),
        ("bookings", "notify: knows by what was booked whose container an alert is about"),
    ):
        if name in topology.streams:
            yield from _topics(user.name, whole_stream(name), (Operation.READ,), why)
    rule = Rule(user.name, Resource.GROUP, Pattern.PREFIXED, NOTIFY_GROUPS, Operation.READ)
    yield RuleGrant(rule, "notify: commits how far each route is")


def _feed(topology: Topology, user: ServiceUser) -> Iterator[RuleGrant]:
    customer = topology.customers.get(user.name) if user.role is Role.CUSTOMER else None
    if customer is None or customer.feed_at is None or "feeds" not in topology.streams:
        return
    if user.site == customer.feed_at or log_exists_at(topology, "feeds", user.name, user.site):
        why = f"customers.{user.name}: feed of its own"
        yield from _topics(user.name, one_log("feeds", user.name), (Operation.READ,), why)
        yield _group(user.name, why)


def _person(topology: Topology, user: ServiceUser, stated: Sequence[Clause]) -> Iterator[RuleGrant]:
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
            yield RuleGrant(rule, f"{clause.where}: transactions of its own")


def _permitted(topology: Topology, user: str, site: str, clause: Clause) -> Iterator[RuleGrant]:
    """Yield the rules of a permission: reading and settings on all its logs, changes only on logs of this site."""
    if not exists_at(topology, clause.stream, site):
        return
    why = f"{clause.where}: {clause.text!r}"
    for operation in PERMITTED[clause.permission]:
        if operation not in CHANGES_LOGS:
            yield from _topics(user, clause.extent, (operation,), why)
        elif not topology.written_by_services(clause.stream) and not _is_standby(topology, clause.stream, site):
            for extent in intersect_all((clause.extent,), held_at(topology, clause.stream, site)):
                yield from _topics(user, extent, (operation,), f"{why}, on logs that site {site} holds")


def _is_standby(topology: Topology, stream: str, site: str) -> bool:
    """Return whether a site has a stream that shore writes only until shore moves there."""
    shore = topology.shore
    return topology.streams[stream].insert_point is InsertPoint.SHORE and shore is not None and site != shore.at


def _topics(user: str, extent: ResourcePattern, operations: tuple[Operation, ...], because: str) -> Iterator[RuleGrant]:
    for operation in operations:
        yield RuleGrant(Rule(user, Resource.TOPIC, extent.pattern, extent.name, operation), because)


def _group(user: str, because: str) -> RuleGrant:
    return RuleGrant(Rule(user, Resource.GROUP, Pattern.PREFIXED, f"{user}.", Operation.READ), because)


def _follow(user: str, link: Link, operation: Operation, why: str) -> Iterator[RuleGrant]:
    for pattern in link.groups:
        extent = pattern_of_glob(pattern)
        if extent is None:
            raise ConfigurationError(
                f"link {link.name}: Kafka's ACLs cannot express the groups {pattern!r}",
                hint="use a group's name, or the beginning of names and one * at the end: billing, billing-*",
                link=link.name,
                pattern=pattern,
            )
        rule = Rule(user, Resource.GROUP, extent.pattern, extent.name, operation)
        yield RuleGrant(rule, f"link {link.name}: {why.format(pattern)}")


def _check_name(user: ServiceUser) -> None:
    # A dot would put a user's groups under another user's prefix: ducks.evil begins with "ducks.".
    if is_reserved(user.name) or not SITE_NAME.fullmatch(user.name):
        raise ConfigurationError(
            f"{user.name!r} cannot be the name of a customer or user",
            hint="use lower-case letters, digits and hyphens, beginning with a letter, and no name of a service",
            name=user.name,
        )


class _Index:
    """Find the rules that imply a rule by looking up its name and each prefix of it. Fast with many rules, too."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._named: dict[tuple[str, Resource, Operation], dict[Pattern, dict[str, Rule]]] = {}
        for rule in rules:
            about = self._named.setdefault(
                (rule.user, rule.resource, rule.operation), {Pattern.LITERAL: {}, Pattern.PREFIXED: {}}
            )
            about[rule.pattern][rule.name] = rule

    def wider(self, rule: Rule) -> list[Rule]:
        """Return every other rule that implies this one (``acl.rules.implies``)."""
        names = [rule.name[:length] for length in range(len(rule.name) + 1)]
        found = []
        for user in {rule.user, EVERYBODY}:
            for operation in implying(rule.operation):
                about = self._named.get((user, rule.resource, operation))
                if about is None:
                    continue
                prefixes = about[Pattern.PREFIXED]
                found += [prefixes[name] for name in names if name in prefixes]
                if rule.pattern is Pattern.LITERAL and rule.name in about[Pattern.LITERAL]:
                    found.append(about[Pattern.LITERAL][rule.name])
        return [other for other in found if other != rule]


def _widest(rule: Rule, wider: list[Rule]) -> Rule:
    """Return the rule that implies this one and that no other rule implies; the rule itself if none implies it."""
    if not wider:
        return rule
    return min(other for other in wider if not any(o != other and implies(o, other) for o in wider))
