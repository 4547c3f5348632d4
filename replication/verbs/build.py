"""From facts to a plan, or to a refusal. Pure: the same facts give the same plan."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from replication.orders import Order
from replication.verbs import checks
from replication.verbs.checks import Reason, refuse
from replication.verbs.facts import Facts
from replication.verbs.moving import failover, promote, restore, reverse
from replication.verbs.parts import written
from replication.verbs.pausing import pause, resume
from replication.verbs.plan import Plan, Verb, WriteOrders

SETTLE: Final = 2.0  # seconds for which both ends must be equal and unchanged


def build(verb: Verb, facts: Facts, *, settle: float = SETTLE) -> Plan:
    """The plan of a verb.

    Raises:
        RefusedError: it would be unsafe, or would change nothing of what is wanted; the hint says what does.
    """
    if verb in (Verb.PAUSE, Verb.RESUME):
        return pause(facts) if verb is Verb.PAUSE else resume(facts)
    if not facts.topics:
        log = facts.scope.log
        wrong = list(checks.may_be_released(facts, log)) if log is not None else []
        raise refuse(verb, wrong or [Reason(log or "", "there is no such log at either end", "fairlead link describe")])
    reasons = list(chain.from_iterable(checks.may_be_released(facts, topic) for topic in facts.topics))
    if reasons:
        raise refuse(verb, reasons)
    match verb:
        case Verb.PROMOTE:
            return promote(facts, settle)
        case Verb.FAILOVER:
            return failover(facts)
        case Verb.REVERSE:
            return reverse(facts, settle)
        case _:
            return restore(facts)


def merge(plans: Iterable[Plan]) -> Plan:
    """One plan for several links of what only writes orders (pause, resume): per site one step, each order once."""
    all_ = list(plans)
    by_site: dict[str, dict[Order, None]] = {}
    for step in chain.from_iterable(plan.steps for plan in all_):
        if isinstance(step, WriteOrders):
            by_site.setdefault(step.site, {}).update(dict.fromkeys(step.orders))
    steps = chain.from_iterable(written(site, tuple(orders)) for site, orders in by_site.items())
    notes = dict.fromkeys(chain.from_iterable(plan.notes for plan in all_))
    return Plan(all_[0].verb, tuple(chain.from_iterable(plan.links for plan in all_)), (), tuple(steps), tuple(notes))
