"""What a site's rules are and what they should be, as a frozen plan; and the steps that a plan consists of. Pure.

The model is SQLMesh's: ``diff`` makes a ``SitePlan``, ``steps`` turns it into small steps, and the explainer
(``acl.show``) and the executor (``acl.apply``) walk the same steps, so a plan cannot say one thing and do another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from acl.binding import Binding
from acl.quotas import SetQuota
from acl.rules import EVERYBODY, Rule
from topologies.model import Topology
from topologies.users import ADMIN, is_reserved, service_users

BATCH = 1000  # bindings per request; a controller takes at most 10,000 in one
Managed = Callable[[Binding], bool]


@dataclass(frozen=True, slots=True)
class SitePlan:
    """What would change at one site.

    ``add`` and ``remove`` are Fairlead's to change, ``keep`` counts what is right already, ``alone`` are rules of
    users that Fairlead does not know, which it never touches. ``held`` and ``wanted`` are digests of the rules that the
    cluster held and of those that the topology asked for: what the plan was made from.
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


@dataclass(frozen=True, slots=True)
class Unread:
    """A site whose rules could not be read, so that nothing is planned for it."""

    site: str
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Lockout:
    """A change that is refused at a site, because ``admin`` would lose the rights in ``lost`` (``acl.lockout``)."""

    site: str
    lost: tuple[str, ...]
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plans of several sites. ``identity`` is a digest of all of it: two equal plans have the same.

    ``lockouts`` say what would be refused if it were applied now. They are no part of what is to be done, and are
    judged again when it is.
    """

    topology: str
    sites: tuple[SitePlan, ...]
    unread: tuple[Unread, ...] = ()
    lockouts: tuple[Lockout, ...] = field(default=(), compare=False)

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

    def to_builtins(self) -> dict[str, Any]:
        """The plan for programs: JSON-ready, with its ``identity``."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        return {"plan": self.identity, **body}


@dataclass(frozen=True, slots=True)
class AddRules:
    """Create these; done before anything is removed, so that nobody loses a right that is only being renamed."""

    site: str
    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class RemoveRules:
    """Remove exactly these."""

    site: str
    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class Confirm:
    """Wait until the cluster shows what was added and no longer what was removed. Brokers follow their controller
    within milliseconds, but not before it answers; who goes on at once would now and then be refused."""

    site: str
    added: tuple[Binding, ...]
    removed: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class SetQuotas:
    """Set these client quotas; a limit that is lifted is one as well."""

    site: str
    quotas: tuple[SetQuota, ...]


@dataclass(frozen=True, slots=True)
class LeaveAlone:
    """Do nothing about these, and say so."""

    site: str
    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class Skip:
    """Do nothing at this site, because its rules could not be read."""

    site: str
    why: str
    hint: str


Step = AddRules | RemoveRules | Confirm | SetQuotas | LeaveAlone | Skip


def diff(site: str, actual: Collection[Binding], desired: Collection[Rule], managed: Managed) -> SitePlan:
    """What makes ``actual`` equal ``desired`` for all that is ``managed``; everything else is left alone."""
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
    """What a set of rules is known by, whatever their order."""
    return hashlib.sha256(msgspec.json.encode(sorted(set(bindings)))).hexdigest()[:32]


def steps(plan: Plan) -> tuple[Step, ...]:
    """The plan in order: per site adds, removals, in requests of at most ``BATCH`` rules, and a look at the result."""
    out: list[Step] = []
    for site in plan.sites:
        out += site_steps(site)
    return (*out, *(Skip(unread.site, unread.why, unread.hint) for unread in plan.unread))


def site_steps(site: SitePlan) -> tuple[Step, ...]:
    """The steps of one site."""
    out: list[Step] = [AddRules(site.site, part) for part in _batches(site.add)]
    out += [RemoveRules(site.site, part) for part in _batches(site.remove)]
    if site.add or site.remove:
        out.append(Confirm(site.site, site.add, site.remove))
    if site.quotas:
        out.append(SetQuotas(site.site, site.quotas))
    if site.alone:
        out.append(LeaveAlone(site.site, site.alone))
    return tuple(out)


def managed_by(topology: Topology, site: str) -> Managed:
    """Which rules of a site are Fairlead's to change.

    A cluster that Fairlead started is all Fairlead's, but for the super user's. On another's cluster it is the rules
    of users that the topology or Fairlead's services name, and those for everybody about the topology's own streams.
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


def _batches(bindings: tuple[Binding, ...]) -> Iterable[tuple[Binding, ...]]:
    return (bindings[start : start + BATCH] for start in range(0, len(bindings), BATCH))
