"""Whether a saved plan is still true at a site, and what of it is left to do. Pure.

It is true while the cluster holds what the plan was made from, or what an interrupted apply of this very plan leaves: a
part of what it adds, then all of that and without a part of what it removes. The topology must still ask for the same.
Whatever a file says, what is done is never more than what a new plan would do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from acl.binding import Binding
from acl.plan import Managed, SitePlan, diff, digest
from acl.rules import Rule
from acl.show import together
from fairlead.errors import RefusedError

_SHOWN = 5  # differences in a message; all are in its fields


class State(StrEnum):
    """How far a plan is at a site."""

    NEW = "new"
    BEGUN = "begun"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a site's plan; ``before`` counts the managed rules that the site had before it was begun."""

    plan: SitePlan
    state: State
    before: int


class StalePlan(RefusedError):
    """A saved plan that no longer fits; nothing of it was done at this site."""


def remaining(planned: SitePlan, actual: Collection[Binding], desired: Collection[Rule], managed: Managed) -> Remaining:
    """What of a saved plan is left to do at its site.

    Raises:
        StalePlan: the topology, or the cluster in another way than by this plan, has changed since.
    """
    fresh = diff(planned.site, actual, desired, managed)
    have, want = frozenset(actual), frozenset(map(Binding.of, desired))
    add, remove = frozenset(planned.add), frozenset(planned.remove)
    if fresh.wanted != planned.wanted:
        raise _topology_changed(planned.site)
    begun_from = (have - add) | remove
    in_order = add <= have or remove <= have  # nothing is removed before everything is added
    if digest(begun_from) != planned.held or not in_order:
        raise _cluster_changed(planned, have, base=(want - add) | remove | frozenset(planned.alone))
    if frozenset(fresh.add) != add - have or frozenset(fresh.remove) != remove & have:
        raise _topology_changed(planned.site)  # whose rules are Fairlead's to change is part of it
    if fresh.is_empty and not planned.is_empty:
        state = State.DONE
    else:
        state = State.NEW if begun_from == have else State.BEGUN
    return Remaining(fresh, state, before=len(want - add) + len(remove))


def _topology_changed(site: str) -> StalePlan:
    return StalePlan(
        f"the topology asks for other rules at site {site} than when the plan was made",
        hint="look at a new plan: fairlead acl plan --out",
        site=site,
    )


def _cluster_changed(planned: SitePlan, have: frozenset[Binding], base: frozenset[Binding]) -> StalePlan:
    came = [f"+ {line}" for line in together(sorted(have - base - frozenset(planned.add)))]
    gone_at_all = base - have
    gone = gone_at_all if not frozenset(planned.add) <= have else gone_at_all - frozenset(planned.remove)
    differs = [*came, *(f"- {line}" for line in together(sorted(gone)))]
    more = f"; and {len(differs) - _SHOWN} more" if len(differs) > _SHOWN else ""
    what = "; ".join(differs[:_SHOWN]) or "not those that the plan's file says"
    return StalePlan(
        f"site {planned.site} holds other rules than when the plan was made: {what}{more}",
        hint="somebody changed rules there meanwhile; look at a new plan: fairlead acl plan --out",
        site=planned.site,
        differs=differs,
    )
