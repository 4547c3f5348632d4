"""Plans of pause and resume. A pause is ended by a resume of the same scope: link, stream or log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from replication.orders import Order, OrderKind
from replication.verbs import checks
from replication.verbs.checks import Reason, refuse
from replication.verbs.facts import Facts
from replication.verbs.parts import order_for, plan_for, said, scope_of, written
from replication.verbs.plan import Plan, Step, Verb


def pause(facts: Facts) -> Plan:
    _check_carried(Verb.PAUSE, facts)
    held = _scope_paused(facts)
    if held is not None:
        return plan_for(Verb.PAUSE, facts, (), f"{facts.scope} is paused already, {said(held)}")
    order = order_for(facts, OrderKind.PAUSE, link=facts.link.name, stream=facts.scope.stream, log=facts.scope.log)
    return plan_for(
        Verb.PAUSE,
        facts,
        written(facts.link.to, (order,)),
        f"what {facts.link.from_} deletes by its retention meanwhile cannot be brought later: behind-retention",
    )


def resume(facts: Facts) -> Plan:
    _check_carried(Verb.RESUME, facts)
    link = facts.link.name
    if facts.every:
        return plan_for(Verb.RESUME, facts, _end_pauses(facts, _every_pause(facts)))
    held = _scope_paused(facts)
    wider = _wider_pause(facts)
    if held is None and wider is not None:
        raise refuse(Verb.RESUME, [Reason(facts.scope.log or "", *_why_wider(facts, wider))])
    if held is None:
        return plan_for(Verb.RESUME, facts, (), f"{facts.scope} is not paused on {link}")
    notes = [f"{scope_of(each)} stays paused: {said(each)}" for each in _narrower(facts)]
    if wider is not None:
        notes.append(f"{facts.scope} stays paused as part of {scope_of(wider)}, {said(wider)}")
    return plan_for(Verb.RESUME, facts, _end_pauses(facts, [held]), *notes)


def _end_pauses(facts: Facts, pauses: Iterable[Order]) -> tuple[Step, ...]:
    orders = [order_for(facts, OrderKind.RESUME, link=each.link, stream=each.stream, log=each.log) for each in pauses]
    return written(facts.link.to, tuple(orders)) if orders else ()


def _every_pause(facts: Facts) -> list[Order]:
    return [each for each in facts.orders.pauses() if each.link in (None, facts.link.name)]


def _scope_paused(facts: Facts) -> Order | None:
    wanted = (facts.link.name, facts.scope.stream, facts.scope.log)
    return next((each for each in facts.orders.pauses() if (each.link, each.stream, each.log) == wanted), None)


def _wider_pause(facts: Facts) -> Order | None:
    """A pause of more than what is meant, which covers it."""
    scope, own = facts.scope, _scope_paused(facts)
    stream = scope.stream or (scope.log.partition(".")[0] if scope.log else None)
    for each in facts.orders.pauses():
        here = each.link in (None, facts.link.name)
        covers = (
            each.stream is each.log is None or each.stream == stream is not None or each.log == scope.log is not None
        )
        if here and covers and each != own:
            return each
    return None


def _narrower(facts: Facts) -> Iterator[Order]:
    for each in facts.orders.pauses():
        in_stream = each.log is not None and each.log.partition(".")[0] == facts.scope.stream
        if each.link in (None, facts.link.name) and (
            (facts.scope.is_whole and (each.stream or each.log)) or (facts.scope.stream and in_stream)
        ):
            yield each


def _why_wider(facts: Facts, wider: Order) -> tuple[str, str]:
    options = f" --stream {wider.stream}" if wider.stream else f" --log {wider.log}" if wider.log else ""
    command = f"fairlead link resume '{facts.link.name}'{options}"
    if wider.link is None:
        command = "fairlead link resume --all"
    return f"{facts.scope} is paused only as part of {scope_of(wider)}, {said(wider)}", command


def _check_carried(verb: Verb, facts: Facts) -> None:
    log = facts.scope.log
    if log is not None and not facts.catalog.takes(facts.link, log):
        raise refuse(verb, list(checks.may_be_released(facts, log)))
