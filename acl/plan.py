"""Compare a site's rules with those of the topology; make a frozen plan of steps, and refuse unsafe plans.

``plan_topology`` asks the sites. The rest is pure, except the steps' ``carry_out``.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from acl.compile import SetQuota, compile_quotas, compile_site, diff_quotas, managed_users, quota_lines
from acl.history import TOPIC as HISTORY
from acl.kafka import NotAuthorised, OpenStore, RuleStore, at_once
from acl.rules import EVERYBODY, Binding, Operation, Resource, Right, Rule, Standing, authorize, covers, hosts
from fairlead.errors import FairleadError, OptionError, RefusedError, UnavailableError
from fairlead.plan import LineStyle, PlanLine, PlanStep, Tell, execute, explain, silent
from fairlead.records.alert import ALERT_ORDERS
from fairlead.records.custody import CUSTODY_ORDERS
from topologies.model import Topology, check_sites
from topologies.users import ADMIN, is_reserved, service_users

BATCH: Final = 1000  # bindings per request; a controller takes at most 10,000 in one
CONFIRM_TIMEOUT = 20.0  # seconds
FEW: Final = 10
"""A plan may remove this many rules, whatever share of the site's rules they are."""
SHARE: Final = 0.3
"""The share of a site's rules that a plan may remove without --max-removals."""
Managed = Callable[[Binding], bool]


@dataclass(frozen=True, slots=True)
class SitePlan:
    """The changes at one site.

    Args:
        keep: Number of rules that are right already.
        alone: Rules of users that Fairlead does not know; it never changes them.
        held: Digest of the rules that the cluster held when the plan was made.
        wanted: Digest of the rules that the topology required then.
    """

    site: str
    add: tuple[Binding, ...]
    remove: tuple[Binding, ...]
    keep: int
    alone: tuple[Binding, ...] = ()
    held: str = ""
    wanted: str = ""
    quotas: tuple[SetQuota, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not self.add and not self.remove and not self.quotas

    @property
    def steps(self) -> tuple[PlanStep[AccessRun], ...]:
        """Additions, then removals, in requests of at most ``BATCH`` rules; then wait until the cluster shows them."""
        out: list[PlanStep[AccessRun]] = [AddRules(self.site, part) for part in _batches(self.add)]
        out += [RemoveRules(self.site, part) for part in _batches(self.remove)]
        if self.add or self.remove:
            out.append(Confirm(self.site, self.add, self.remove))
        if self.quotas:
            out.append(SetQuotas(self.site, self.quotas))
        if self.alone:
            out.append(LeaveAlone(self.site, self.alone))
        return tuple(out)


@dataclass(frozen=True, slots=True)
class Unread:
    """A site without a plan, because its rules could not be read."""

    site: str
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Lockout:
    """A refused change at a site: ``admin`` would lose the rights in ``lost`` (``losses``)."""

    site: str
    lost: tuple[str, ...]
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class OpenToEverybody:
    """Rules of a site that Fairlead leaves alone, and by which everybody may use topics of the topology's streams."""

    site: str
    rules: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """The plans of several sites. ``identity`` is a digest of the whole plan: equal plans have equal identities.

    ``lockouts`` are the changes that would be refused now. Applying the plan checks them again. ``everybody`` is drift
    that the plan does not change.
    """

    topology: str
    sites: tuple[SitePlan, ...]
    unread: tuple[Unread, ...] = ()
    lockouts: tuple[Lockout, ...] = field(default=(), compare=False)
    everybody: tuple[OpenToEverybody, ...] = field(default=(), compare=False)

    @property
    def identity(self) -> str:
        body = msgspec.json.encode(
            {"topology": self.topology, "sites": self.sites, "unread": [u.site for u in self.unread]}
        )
        return hashlib.sha256(body).hexdigest()[:16]

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change at the sites that could be read."""
        return all(site.is_empty for site in self.sites)

    @property
    def drifts(self) -> bool:
        """Whether a site that could be read differs from the topology."""
        return not self.is_empty or bool(self.everybody)

    def to_builtins(self) -> dict[str, Any]:
        """Return the plan as JSON-ready data, with its ``identity``."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        return {"plan": self.identity, **body}

    @property
    def steps(self) -> tuple[PlanStep[AccessRun], ...]:
        """The steps, site by site; the sites that could not be read come last."""
        steps: list[PlanStep[AccessRun]] = [step for site in self.sites for step in site.steps]
        return (*steps, *(Skip(unread.site, unread.why, unread.hint) for unread in self.unread))

    def lines(self) -> Iterator[PlanLine]:
        """Yield the plan for a person, step by step, with the rules of the same user and topics on one line."""
        for site in self.sites:
            if site.is_empty:
                yield PlanLine(f"{site.site}: {site.keep} rules, nothing to change")
        yield from explain(self.steps, numbered=False)

    def drift_lines(self) -> Iterator[PlanLine]:
        """Yield the drift for a person: missing rules, rules that somebody else made, and rules of unknown users."""
        everybody = {one.site: one.rules for one in self.everybody}
        for each in self.sites:
            at, wide = each.site, everybody.get(each.site, ())
            if each.is_empty and not wide:
                yield PlanLine(f"{at}: as the topology says ({each.keep} rules)")
            yield from (PlanLine(f"{at}: missing: {text}", LineStyle.ADD) for text in in_words(each.add))
            extra = in_words(each.remove)
            yield from (PlanLine(f"{at}: not from the topology: {text}", LineStyle.REMOVE) for text in extra)
            yield from (PlanLine(f"{at}: differs: {text}", style) for text, style in quota_lines(each.quotas))
            for text in in_words(wide):
                yield PlanLine(f"{at}: not from the topology, left alone: {text}", LineStyle.ERROR)
            unknown = in_words(rule for rule in each.alone if rule not in wide)
            yield from (PlanLine(f"{at}: of an unknown user: {text}", LineStyle.UNTOUCHED) for text in unknown)
        for unread in self.unread:
            yield PlanLine(f"{unread.site}: not checked, {unread.why}", LineStyle.ERROR)

    def totals(self) -> str:
        """Return the totals of the plan as one line."""
        quotas = sum(len(site.quotas) for site in self.sites)
        limits = f", {quotas} quotas to set" if quotas else ""
        add, remove = sum(len(site.add) for site in self.sites), sum(len(site.remove) for site in self.sites)
        keep = sum(site.keep for site in self.sites)
        sites = "site" if len(self.unread) == 1 else "sites"
        away = f", {len(self.unread)} {sites} could not be read" if self.unread else ""
        return f"plan {self.identity}: {add} to add, {remove} to remove, {keep} kept{limits}{away}"


@dataclass(slots=True)
class AccessRun:
    """The store that the steps of one site work on, and how many rules they have added and removed."""

    store: RuleStore
    tell: Tell = silent
    added: int = 0
    removed: int = 0


def carry_out(steps: Iterable[PlanStep[AccessRun]], run: AccessRun) -> AccessRun:
    """Carry out steps at one site. Blocking; not for an event loop."""
    asyncio.run(execute(steps, run))
    return run


@dataclass(frozen=True, slots=True)
class AddRules(PlanStep[AccessRun]):
    """Create these rules. Additions precede removals, so that nobody loses a right whose rule is only replaced."""

    site: str
    bindings: tuple[Binding, ...]
    style = LineStyle.PLAIN

    def describe(self) -> str:
        return f"{self.site}: add {len(self.bindings)} rules"

    def details(self) -> Iterator[PlanLine]:
        return (PlanLine(f"+ {text}", LineStyle.ADD) for text in in_words(self.bindings))

    async def carry_out(self, context: AccessRun) -> None:
        await asyncio.to_thread(context.store.add, self.bindings)
        context.added += len(self.bindings)


@dataclass(frozen=True, slots=True)
class RemoveRules(PlanStep[AccessRun]):
    """Remove exactly these rules."""

    site: str
    bindings: tuple[Binding, ...]
    style = LineStyle.PLAIN

    def describe(self) -> str:
        return f"{self.site}: remove {len(self.bindings)} rules"

    def details(self) -> Iterator[PlanLine]:
        return (PlanLine(f"- {text}", LineStyle.REMOVE) for text in in_words(self.bindings))

    async def carry_out(self, context: AccessRun) -> None:
        await asyncio.to_thread(context.store.remove, self.bindings)
        context.removed += len(self.bindings)


@dataclass(frozen=True, slots=True)
class Confirm(PlanStep[AccessRun]):
    """Wait until the cluster shows the added rules and no longer shows the removed ones.

    The controller answers some milliseconds before the brokers apply a change; until then they may still refuse.
    """

    site: str
    added: tuple[Binding, ...]
    removed: tuple[Binding, ...]
    style = LineStyle.PLAIN

    def describe(self) -> str:
        return f"{self.site}: wait until its brokers show it"

    async def carry_out(self, context: AccessRun) -> None:
        added, removed = frozenset(self.added), frozenset(self.removed)

        def shown() -> bool:
            held = context.store.read()
            return added <= held and removed.isdisjoint(held)

        await _wait_until(shown, self.site, "access rules")


@dataclass(frozen=True, slots=True)
class SetQuotas(PlanStep[AccessRun]):
    """Set or remove these client quotas, and wait until the cluster shows them."""

    site: str
    quotas: tuple[SetQuota, ...]
    style = LineStyle.PLAIN

    def describe(self) -> str:
        return f"{self.site}: set {len(self.quotas)} client quotas"

    def details(self) -> Iterator[PlanLine]:
        return quota_lines(self.quotas)

    async def carry_out(self, context: AccessRun) -> None:
        await asyncio.to_thread(context.store.set_quotas, self.quotas)

        def shown() -> bool:
            held = context.store.read_quotas()
            return all(held.get(each.user, {}).get(each.key) == each.new for each in self.quotas)

        await _wait_until(shown, self.site, "client quotas")


async def _wait_until(shown: Callable[[], bool], site: str, what: str) -> None:
    """Ask until ``shown`` (which blocks) says that a cluster shows a change.

    Raises:
        UnavailableError: it does not within ``CONFIRM_TIMEOUT``.
    """
    deadline, pause = time.monotonic() + CONFIRM_TIMEOUT, 0.01
    while not await asyncio.to_thread(shown):
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"site {site} accepted new {what} and does not show them after {CONFIRM_TIMEOUT:.0f} s",
                hint="its brokers may not follow their controller; see their logs, then fairlead acl apply again",
                site=site,
            )
        await asyncio.sleep(pause)  # Kafka has no event for it
        pause = min(2 * pause, 0.5)


@dataclass(frozen=True, slots=True)
class LeaveAlone(PlanStep[AccessRun]):
    """Report these rules, and leave them as they are."""

    site: str
    bindings: tuple[Binding, ...]
    style = LineStyle.PLAIN

    def describe(self) -> str:
        return f"{self.site}: leave {len(self.bindings)} rules of users that Fairlead does not know alone"

    def details(self) -> Iterator[PlanLine]:
        return (PlanLine(text, LineStyle.UNTOUCHED) for text in in_words(self.bindings))

    async def carry_out(self, context: AccessRun) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Skip(PlanStep[AccessRun]):
    """Report that this site is skipped, because its rules could not be read."""

    site: str
    why: str
    hint: str
    style = LineStyle.ERROR

    def describe(self) -> str:
        return f"{self.site}: skipped, {self.why}" + (f" ({self.hint})" if self.hint else "")

    async def carry_out(self, context: AccessRun) -> None:
        pass


def plan_site(topology: Topology, site: str, store: RuleStore, held: frozenset[Binding]) -> SitePlan:
    """Make the plan of one site. ``held`` are the rules that the cluster holds."""
    rules = diff(site, held, compile_site(topology, site), managed_by(topology, site))
    return replace(rules, quotas=plan_quotas(topology, site, store))


def plan_quotas(topology: Topology, site: str, store: RuleStore) -> tuple[SetQuota, ...]:
    """Return the quotas to set at a site. If the user may not read quotas, raise only if the topology has quotas."""
    desired = compile_quotas(topology, site)
    try:
        actual = store.read_quotas()
    except NotAuthorised:
        if desired:
            raise
        actual = {}
    return diff_quotas(actual, desired, managed_users(topology, site))


def diff(site: str, actual: Collection[Binding], desired: Collection[Rule], managed: Managed) -> SitePlan:
    """Return the plan that makes ``actual`` equal ``desired`` for the rules that are ``managed``."""
    have, want = frozenset(actual), frozenset(map(Binding.of, desired))
    unwanted = have - want
    return SitePlan(
        site,
        add=tuple(sorted(want - have)),
        remove=tuple(sorted(b for b in unwanted if managed(b))),
        keep=len(have & want),
        alone=tuple(sorted(b for b in unwanted if not managed(b))),
        held=digest(have),
        wanted=digest(want),
    )


def digest(bindings: Iterable[Binding]) -> str:
    """Return a digest of a set of rules; their order does not matter."""
    return hashlib.sha256(msgspec.json.encode(sorted(set(bindings)))).hexdigest()[:32]


def managed_by(topology: Topology, site: str) -> Managed:
    """Return a predicate that selects the rules of a site that Fairlead may change.

    On a cluster that Fairlead started these are all rules except the super user's. On other clusters these are the
    rules of Fairlead's services and of users in the topology, and the rules for everybody about the topology's streams.
    """
    if topology.sites[site].is_local:
        return lambda binding: binding.user != ADMIN
    known = {name for other in topology.sites for name in service_users(topology, other)}
    known |= set(topology.customers) | set(topology.users)

    def managed(binding: Binding) -> bool:
        if not binding.principal.startswith("User:") or binding.user == ADMIN:
            return False
        if binding.user == EVERYBODY:
            return binding.resource == "TOPIC" and binding.name.partition(".")[0] in topology.streams
        return binding.user in known or is_reserved(binding.user)

    return managed


def plan_topology(topology: Topology, open_store: OpenStore, sites: Collection[str] | None = None) -> AccessPlan:
    """Plan every site; change nothing. Sites that cannot be read are in ``unread``."""
    named = check_sites(topology, sites)

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
    wide = ((made.site, _open_to_everybody(topology, made.alone)) for made, _ in read)
    return AccessPlan(
        topology.name,
        tuple(made for made, _ in read),
        tuple(r for r in results if isinstance(r, Unread)),
        tuple(lockout for _, lockout in read if lockout),
        tuple(OpenToEverybody(site, rules) for site, rules in wide if rules),
    )


def _open_to_everybody(topology: Topology, alone: Iterable[Binding]) -> tuple[Binding, ...]:
    """Return the rules that allow everybody something with topics of a stream; ``alone`` has none about one stream."""

    def is_wide(rule: Binding) -> bool:
        if (rule.user, rule.resource, rule.permission) != (EVERYBODY, "TOPIC", "ALLOW"):
            return False
        return any(covers(rule, Resource.TOPIC, f"{stream}.") for stream in topology.streams)

    return tuple(filter(is_wide, alone))


CurrentAcls = frozenset[Binding] | Unread
"""All rules of a site's cluster, or the error with which reading them failed."""


def read_current_acls(open_store: OpenStore, sites: Collection[str]) -> dict[str, CurrentAcls]:
    """Read all rules of each site's cluster."""

    def read(site: str) -> CurrentAcls:
        try:
            with open_store(site) as store:
                return store.read()
        except FairleadError as error:
            return Unread(site, error.what, error.hint)

    return dict(zip(sites, at_once(read, sites), strict=True))


class TooManyRemovals(RefusedError):
    """A plan removes more of a site's rules than is allowed; nothing was changed at this site."""


def check_removals(plan: SitePlan, before: int, share: float = SHARE, removals: int | None = None) -> None:
    """Refuse a plan that removes more than ``FEW`` rules and more than a share of the rules that Fairlead manages.

    Args:
        before: Number of rules that Fairlead manages at the site before the change.
        removals: Number of rules that the whole plan removes, if ``plan`` is only the rest of it.

    Raises:
        TooManyRemovals: the plan removes too many; the error has the numbers.
    """
    count = len(plan.remove) if removals is None else removals
    if plan.remove and count > FEW and count > share * before:
        raise TooManyRemovals(
            f"the plan removes {count} of the {before} rules of site {plan.site} ({count / before:.0%}), "
            f"more than the {share:.0%} that is allowed; nothing was changed there",
            hint="see fairlead acl plan; if it is meant: fairlead acl apply --allow-removals, or --max-removals SHARE",
            site=plan.site,
            removals=count,
            rules=before,
        )


def parse_share(text: str) -> float:
    """Parse a share: ``30%`` or ``0.3``.

    Raises:
        ConfigurationError: the text has another format.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise OptionError(f"{text!r} is no share of rules", hint="from 0% to 100%, or 0.0 to 1.0")
    return share


CLUSTER_RIGHTS: tuple[Right, ...] = tuple(
    (operation, Resource.CLUSTER, "kafka-cluster") for operation in (Operation.DESCRIBE, Operation.ALTER)
)
"""The rights without which nobody can read or change rules."""

TOPIC_RIGHTS: tuple[Right, ...] = tuple(
    (operation, Resource.TOPIC, topic)
    for topic in (HISTORY, "fairlead.orders", CUSTODY_ORDERS, ALERT_ORDERS)
    for operation in (Operation.CREATE, Operation.WRITE, Operation.READ)
)
"""The administrator's other rights at a site."""


class LockedOut(RefusedError):
    """The change would take rights from the administrator that it needs; nothing was changed at that site."""


def foresee_lockout(site: str, held: frozenset[Binding], plan: SitePlan, standing: Standing) -> Lockout | None:
    """Return the refusal that ``check_lockout`` would raise for this change; None if it would not raise."""
    lost = losses(held, plan.add, plan.remove, standing)
    if not lost:
        return None
    rights = ", ".join(dict.fromkeys(_told(right) for right in lost))
    hint = (
        f"give {ADMIN} these rights by rules of its own first, or make it a super user of that cluster; and check that "
        "no DENY is about it"
    )
    return Lockout(site, tuple(" ".join(right) for right in lost), f"{ADMIN} could no longer {rights}", hint)


def check_lockout(site: str, held: frozenset[Binding], plan: SitePlan, standing: Standing) -> None:
    """Refuse a change by which the administrator loses rights that it needs.

    Raises:
        LockedOut: rights would be lost; the error lists them.
    """
    found = foresee_lockout(site, held, plan, standing)
    if found is not None:
        raise LockedOut(
            f"after this plan {found.why} at site {site}; nothing was changed there",
            hint=found.hint,
            site=site,
            lost=list(found.lost),
        )


def losses(
    held: frozenset[Binding], add: Iterable[Binding], remove: Iterable[Binding], standing: Standing
) -> tuple[Right, ...]:
    """Return the rights that the administrator has now and would lose during or after the change, at any host.

    If its standing is unknown, rights on topics are not checked. Rights on the cluster are checked for either default
    of the cluster, and with them the administrator can restore the others.
    """
    if standing is Standing.SUPER:
        return ()
    between = held | frozenset(add)
    after = between - frozenset(remove)
    defaults = {Standing.CLOSED: (False,), Standing.OPEN: (True,), Standing.UNKNOWN: (False, True)}[standing]
    rights = CLUSTER_RIGHTS if standing is Standing.UNKNOWN else CLUSTER_RIGHTS + TOPIC_RIGHTS

    def lost(right: Right, host: str, default: bool) -> bool:
        before, *later = (
            authorize(rules, ADMIN, right, host, open_by_default=default) for rules in (held, between, after)
        )
        return before and not all(later)

    return tuple(
        right for right in rights if any(lost(right, host, default) for host in hosts(between) for default in defaults)
    )


def _told(right: Right) -> str:
    operation, resource, name = right
    return f"{operation} the cluster" if resource is Resource.CLUSTER else f"{operation} topic {name}"


def in_words(bindings: Iterable[Binding]) -> Iterator[str]:
    """Yield one line for bindings that differ only in their operation: ``ducks may READ topic feeds.ducks``."""
    groups: dict[tuple[str, ...], list[Binding]] = {}
    for b in bindings:
        groups.setdefault((b.principal, b.permission, b.resource, b.pattern, b.name, b.host), []).append(b)
    for group in groups.values():
        first = group[0]
        star = "*" if first.pattern == "PREFIXED" else ""
        verb = "may" if first.permission == "ALLOW" else "may not"
        where = "" if first.host == "*" else f" from {first.host}"
        operations = ", ".join(b.operation for b in group)
        resource = first.resource.lower().replace("_", " ")
        user = "everybody" if first.user == "*" else first.user
        yield f"{user} {verb} {operations} {resource} {first.name}{star}{where}"


def _batches(bindings: tuple[Binding, ...]) -> Iterable[tuple[Binding, ...]]:
    return (bindings[start : start + BATCH] for start in range(0, len(bindings), BATCH))
