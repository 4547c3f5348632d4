"""Plans and drift for people, as lines of text: the counterpart of ``acl.apply.Executor`` on the same steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from acl.binding import Binding
from acl.plan import AddRules, Confirm, LeaveAlone, Plan, RemoveRules, SetQuotas, Skip, Step, steps
from acl.quotas import tell as tell_quotas

Line = tuple[str, str]
"""A line and its style: ``add``, ``remove``, ``alone``, ``error`` or ``plain``."""


def tell(plan: Plan) -> Iterator[Line]:
    """What ``acl apply`` would do, step by step, rules of the same user and topics on one line."""
    for site in plan.sites:
        if site.is_empty:
            yield f"{site.site}: {site.keep} rules, nothing to change", "plain"
    for step in steps(plan):
        yield from _step(step)


def tell_drift(plan: Plan) -> Iterator[Line]:
    """What someone else changed since rules were last applied, or what a changed topology asks for now."""
    for site in plan.sites:
        if site.is_empty:
            yield f"{site.site}: as the topology says ({site.keep} rules)", "plain"
        yield from ((f"{site.site}: missing: {line}", "add") for line in together(site.add))
        yield from ((f"{site.site}: not from the topology: {line}", "remove") for line in together(site.remove))
        yield from ((f"{site.site}: differs:{line}", style) for line, style in tell_quotas(site.quotas))
        yield from ((f"{site.site}: of an unknown user: {line}", "alone") for line in together(site.alone))
    yield from ((f"{unread.site}: not checked, {unread.why}", "error") for unread in plan.unread)


def totals(plan: Plan) -> str:
    """One line at the end."""
    quotas = sum(len(s.quotas) for s in plan.sites)
    limits = f", {quotas} quotas to set" if quotas else ""
    add, remove = sum(len(s.add) for s in plan.sites), sum(len(s.remove) for s in plan.sites)
    away = f", {len(plan.unread)} sites could not be read" if plan.unread else ""
    return (
        f"plan {plan.identity}: {add} to add, {remove} to remove, {sum(s.keep for s in plan.sites)} kept{limits}{away}"
    )


def _step(step: Step) -> Iterator[Line]:
    match step:
        case AddRules(site, bindings):
            yield f"{site}: add {len(bindings)} rules", "plain"
            yield from ((f"  + {line}", "add") for line in together(bindings))
        case RemoveRules(site, bindings):
            yield f"{site}: remove {len(bindings)} rules", "plain"
            yield from ((f"  - {line}", "remove") for line in together(bindings))
        case LeaveAlone(site, bindings):
            yield f"{site}: leave {len(bindings)} rules of users that Fairlead does not know alone", "plain"
            yield from ((f"    {line}", "alone") for line in together(bindings))
        case SetQuotas(site, quotas):
            yield f"{site}: set {len(quotas)} client quotas", "plain"
            yield from tell_quotas(quotas)
        case Confirm():
            pass  # changes nothing
        case Skip(site, why, hint):
            yield f"{site}: skipped, {why}" + (f" ({hint})" if hint else ""), "error"


def together(bindings: Iterable[Binding]) -> Iterator[str]:
    """Bindings that differ only in their operation, on one line each: ``ducks may READ topic feeds.ducks``."""
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
