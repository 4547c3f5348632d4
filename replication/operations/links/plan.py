"""Build the plan of an operation from facts, or refuse it: one reason per log, each with the alternative.

``plan_links`` asks the sites; the rest is pure.

A log may be written at one site only. So an operation never releases a log whose writer follows from its name or moves
by custody. A promotion must not lose records, so anything that could hide records makes the plan refuse it. A resume
ends the pause of the same scope: link, stream or log.
"""

from __future__ import annotations

import datetime as dt
import getpass
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple

from fairlead.errors import FairleadError, RefusedError
from fairlead.plan import Plan, PlanStep
from replication.operations.links.access import ClusterAccess, Status
from replication.operations.links.facts import PATIENCE, LinkEnd, LinkFacts, LinkOperation, LinkScope, gather_facts
from replication.operations.links.steps import (
    AwaitActed,
    AwaitFollowing,
    EndOffset,
    Fence,
    LinkRun,
    Settle,
    StillEqual,
    TellMissing,
    WriteLinkOrders,
)
from replication.overrides import Override, OverrideKind
from topologies.model import Link, Topology

SETTLE: Final = 2.0  # seconds for which both ends must be equal and unchanged
_COMPARE: Final = "compare the two with fairlead audit; fairlead link resolve keeps both versions"

Steps = tuple[PlanStep[LinkRun], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan(Plan[LinkRun]):
    """The plan of an operation. A plan without steps has nothing to do."""

    shows_identity: ClassVar[bool] = True
    verb: LinkOperation
    links: tuple[str, ...]
    logs: tuple[str, ...] = ()  # names of single logs; empty for the whole link


class RefusalReason(NamedTuple):
    """A reason to refuse, and the alternative. ``log`` is empty if the reason concerns no single log."""

    log: str
    why: str
    hint: str


def _refuse(verb: LinkOperation, reasons: Sequence[RefusalReason]) -> RefusedError:
    """Return one error for all reasons: its text is the first reason, ``fields["refused"]`` has all of them."""
    first = reasons[0]
    what = f"cannot {verb} {first.log}: {first.why}" if first.log else f"cannot {verb}: {first.why}"
    others = len({reason.log for reason in reasons[1:] if reason.log} - {first.log})
    more = f" (and {others} more logs)" if others else ""
    listed: list[dict[str, Any]] = [reason._asdict() for reason in reasons]
    return RefusedError(what + more, hint=first.hint, verb=str(verb), refused=listed)


async def plan_links(
    topology: Topology,
    access: ClusterAccess,
    verb: LinkOperation,
    links: Sequence[Link],
    scope: LinkScope,
    *,
    reason: str = "",
    every: bool = False,
    patience: float = PATIENCE,
) -> tuple[LinkPlan, list[tuple[str, FairleadError]]]:
    """Ask both ends of each link and make one plan for all, as the operating system's user.

    Args:
        every: A resume ends every pause of the links, not only that of ``scope``.
        patience: Seconds to wait for records that are still being copied.

    Returns:
        The plan, and the links that could not be asked, by name with the error.

    Raises:
        RefusedError: a link refuses the verb.
        FairleadError: the only link cannot be asked now, or any link for good.
    """
    user = getpass.getuser()
    away: list[tuple[str, FairleadError]] = []
    plans: list[LinkPlan] = []
    for link in links:
        try:
            facts = await gather_facts(
                verb, topology, link, scope, access, by=user, reason=reason, every=every, patience=patience
            )
        except FairleadError as error:
            if len(links) == 1 or not error.retriable:
                raise
            away.append((link.name, error))
            continue
        plans.append(build_plan(verb, facts))
    if not plans:
        return LinkPlan(verb=verb, links=tuple(link.name for link in links), steps=()), away
    return merge_plans(plans) if len(plans) > 1 else plans[0], away


def build_plan(verb: LinkOperation, facts: LinkFacts, *, settle: float = SETTLE) -> LinkPlan:
    """Build the plan of an operation.

    Raises:
        RefusedError: the operation is unsafe, or would not have the wanted effect; the hint names the alternative.
    """
    if verb in (LinkOperation.PAUSE, LinkOperation.RESUME):
        return _pause(facts) if verb is LinkOperation.PAUSE else _resume(facts)
    if not facts.topics:
        log = facts.scope.log
        wrong = list(_may_be_released(facts, log)) if log is not None else []
        raise _refuse(
            verb, wrong or [RefusalReason(log or "", "there is no such log at either end", "fairlead link describe")]
        )
    reasons = list(chain.from_iterable(_may_be_released(facts, topic) for topic in facts.topics))
    if reasons:
        raise _refuse(verb, reasons)
    match verb:
        case LinkOperation.PROMOTE:
            return _promote(facts, settle)
        case LinkOperation.FAILOVER:
            return _failover(facts)
        case LinkOperation.REVERSE:
            return _reverse(facts, settle)
        case _:
            return _restore(facts)


def merge_plans(plans: Iterable[LinkPlan]) -> LinkPlan:
    """Merge plans of several links that only write orders (pause, resume): one step per site, each order once."""
    all_ = list(plans)
    by_site: dict[str, dict[Override, None]] = {}
    for step in chain.from_iterable(plan.steps for plan in all_):
        if isinstance(step, WriteLinkOrders):
            by_site.setdefault(step.site, {}).update(dict.fromkeys(step.orders))
    steps = chain.from_iterable(_written(site, tuple(orders)) for site, orders in by_site.items())
    notes = dict.fromkeys(chain.from_iterable(plan.notes for plan in all_))
    links = tuple(chain.from_iterable(plan.links for plan in all_))
    return LinkPlan(verb=all_[0].verb, links=links, steps=tuple(steps), notes=tuple(notes))


def _pause(facts: LinkFacts) -> LinkPlan:
    _check_carried(LinkOperation.PAUSE, facts)
    held = _scope_paused(facts)
    if held is not None:
        return _plan_for(LinkOperation.PAUSE, facts, (), f"{facts.scope} is paused already, {_said(held)}")
    order = _order_for(facts, OverrideKind.PAUSE, link=facts.link.name, stream=facts.scope.stream, log=facts.scope.log)
    return _plan_for(
        LinkOperation.PAUSE,
        facts,
        _written(facts.link.to, (order,)),
        f"records that {facts.link.from_} deletes by retention meanwhile cannot be copied later: behind-retention",
    )


def _resume(facts: LinkFacts) -> LinkPlan:
    _check_carried(LinkOperation.RESUME, facts)
    link = facts.link.name
    if facts.every:
        return _plan_for(LinkOperation.RESUME, facts, _end_pauses(facts, _every_pause(facts)))
    held = _scope_paused(facts)
    wider = _wider_pause(facts)
    if held is None and wider is not None:
        raise _refuse(LinkOperation.RESUME, [RefusalReason(facts.scope.log or "", *_why_wider(facts, wider))])
    if held is None:
        return _plan_for(LinkOperation.RESUME, facts, (), f"{facts.scope} is not paused on {link}")
    notes = [f"{_scope_of(each)} stays paused: {_said(each)}" for each in _narrower(facts)]
    if wider is not None:
        notes.append(f"{facts.scope} stays paused as part of {_scope_of(wider)}, {_said(wider)}")
    return _plan_for(LinkOperation.RESUME, facts, _end_pauses(facts, [held]), *notes)


def _end_pauses(facts: LinkFacts, pauses: Iterable[Override]) -> Steps:
    orders = [
        _order_for(facts, OverrideKind.RESUME, link=each.link, stream=each.stream, log=each.log) for each in pauses
    ]
    return _written(facts.link.to, tuple(orders)) if orders else ()


def _every_pause(facts: LinkFacts) -> list[Override]:
    return [each for each in facts.orders.pauses() if each.link in (None, facts.link.name)]


def _scope_paused(facts: LinkFacts) -> Override | None:
    wanted = (facts.link.name, facts.scope.stream, facts.scope.log)
    return next((each for each in facts.orders.pauses() if (each.link, each.stream, each.log) == wanted), None)


def _wider_pause(facts: LinkFacts) -> Override | None:
    """Return a pause of a wider scope that covers this one; None if there is none."""
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


def _narrower(facts: LinkFacts) -> Iterator[Override]:
    for each in facts.orders.pauses():
        in_stream = each.log is not None and each.log.partition(".")[0] == facts.scope.stream
        if each.link in (None, facts.link.name) and (
            (facts.scope.is_whole and (each.stream or each.log)) or (facts.scope.stream and in_stream)
        ):
            yield each


def _why_wider(facts: LinkFacts, wider: Override) -> tuple[str, str]:
    options = f" --stream {wider.stream}" if wider.stream else f" --topic {wider.log}" if wider.log else ""
    command = f"fairlead link resume '{facts.link.name}'{options}"
    if wider.link is None:
        command = "fairlead link resume --all"
    return f"{facts.scope} is paused only as part of {_scope_of(wider)}, {_said(wider)}", command


def _check_carried(verb: LinkOperation, facts: LinkFacts) -> None:
    log = facts.scope.log
    if log is not None and not facts.catalog.may_carry(facts.link, log):
        raise _refuse(verb, list(_may_be_released(facts, log)))


def _promote(facts: LinkFacts, settle: float) -> LinkPlan:
    topics = _still_followed(facts)
    if not topics:
        return _plan_for(LinkOperation.PROMOTE, facts, (), *_released_already(facts))
    _refuse_any(LinkOperation.PROMOTE, _level(LinkOperation.PROMOTE, facts, topics))
    steps = _release(facts, topics, settle)
    return _plan_for(
        LinkOperation.PROMOTE,
        facts,
        steps,
        *_released_already(facts),
        *_about_writers(facts, topics),
        *_upstream(facts, topics),
    )


def _failover(facts: LinkFacts) -> LinkPlan:
    topics = _still_followed(facts)
    if not topics:
        return _plan_for(LinkOperation.FAILOVER, facts, (), *_released_already(facts))
    missing = [topic for topic in topics if not facts.target.partitions(topic)]
    gone = f"{facts.target.site} has no copy of it"
    _refuse_any(LinkOperation.FAILOVER, (RefusalReason(topic, gone, "create the topic there") for topic in missing))
    ends = _ends_of(facts.target, topics)
    orders = tuple(_order_for(facts, OverrideKind.FAILOVER, log=each.log, stop=each.end) for each in ends)
    steps: Steps = (
        *_written(facts.link.to, orders),
        Fence(facts.link.to, ends, _time_ms(facts)),
        TellMissing(facts.link.from_, facts.link.to, ends),
    )
    troubles = [each for topic in topics for each in _in_order(facts.status, topic)]
    notes = [f"{each.log}: {each.why}; this copy stays as it is" for each in troubles]
    return _plan_for(
        LinkOperation.FAILOVER, facts, steps, *_released_already(facts), *notes, *_about_writers(facts, topics)
    )


def _reverse(facts: LinkFacts, settle: float) -> LinkPlan:
    link, topics = facts.link, facts.topics
    fresh = _still_followed(facts)  # the others are promoted already
    no_way = [
        RefusalReason(
            topic,
            f"no link from {link.to} to {link.from_} carries it",
            f"add one to the topology (both: true on {link.name}), or promote; then {link.from_} gets no new records",
        )
        for topic in topics
        if facts.way_back(topic) is None
    ]
    _refuse_any(LinkOperation.REVERSE, no_way)
    _refuse_any(
        LinkOperation.REVERSE,
        chain(
            _level(LinkOperation.REVERSE, facts, fresh),
            (each for topic in topics if topic not in fresh for each in _not_ahead(facts, topic)),
            _running(facts.source_status, link.from_, LinkOperation.REVERSE),
            _paused_back(facts, topics),
        ),
    )
    restore = tuple(_order_for(facts, OverrideKind.RESTORE, log=topic) for topic in topics)
    steps = (*(_release(facts, fresh, settle) if fresh else ()), *_written(link.from_, restore))
    backs = {topic: back.name for topic in topics if (back := facts.way_back(topic)) is not None}
    steps += tuple(
        AwaitFollowing(link.from_, name, tuple(topic for topic in topics if backs[topic] == name))
        for name in dict.fromkeys(backs.values())
    )
    notes = (
        f"from then on nobody may write to it at {link.from_}: stop its producers, or revoke their rights",
        *_about_writers(facts, topics),
    )
    return _plan_for(LinkOperation.REVERSE, facts, steps, *notes)


def _restore(facts: LinkFacts) -> LinkPlan:
    topics = [topic for topic in facts.topics if facts.orders.released(topic) is not None]
    if not topics:
        return _plan_for(
            LinkOperation.RESTORE, facts, (), f"{facts.link.to} follows it already: nothing was promoted or failed over"
        )
    more = [
        RefusalReason(
            topic,
            f"{facts.target.site} has records that {facts.source.site} lacks ({tp} ends at {end}, there at {there})",
            f"fairlead link reverse copies them to {facts.source.site} if it is only behind; "
            "else fairlead link resolve keeps both versions",
        )
        for topic in topics
        for tp, end in facts.target.partitions(topic).items()
        if end > (there := facts.source.ends.get(tp, 0))
    ]
    _refuse_any(LinkOperation.RESTORE, chain(_reachable(facts.source, LinkOperation.RESTORE), more))
    orders = tuple(_order_for(facts, OverrideKind.RESTORE, log=topic) for topic in topics)
    steps = _written(facts.link.to, orders)
    note = f"nobody may write to it at {facts.link.to} any more: stop its producers first"
    return _plan_for(LinkOperation.RESTORE, facts, steps, note)


def _level(verb: LinkOperation, facts: LinkFacts, topics: Iterable[str]) -> Iterator[RefusalReason]:
    """Yield the reasons why logs cannot be released without losing records."""
    yield from _reachable(facts.source, verb)
    yield from _running(facts.status, facts.link.to, verb)
    if facts.source.error is None:
        for topic in topics:
            yield from _in_order(facts.status, topic)
            yield from _nothing_lost(facts, topic)


def _release(facts: LinkFacts, topics: list[str], settle: float) -> Steps:
    link = facts.link
    ends = _ends_of(facts.target, topics)
    orders = tuple(_order_for(facts, OverrideKind.PROMOTE, log=each.log, stop=each.end) for each in ends)
    undo = tuple(
        _order_for(facts, OverrideKind.RESTORE, log=topic, reason="records came to the source meanwhile")
        for topic in topics
    )
    # Append the same filler at the source, so that both logs stay equal and the promotion can be undone. If the source
    # is itself a copy, append none there: the filler would make it differ from its own source.
    level = () if any(_upstream(facts, topics)) else (Fence(link.from_, ends, _time_ms(facts), link.to, undo),)
    return (
        _settled(facts, topics, settle),
        *_written(link.to, orders),
        StillEqual(link.from_, link.to, ends, undo),
        *level,
        Fence(link.to, ends, _time_ms(facts)),
    )


def _time_ms(facts: LinkFacts) -> int:
    return int(facts.at.timestamp() * 1000)


def _settled(facts: LinkFacts, topics: list[str], settle: float) -> Settle:
    return Settle(facts.link.from_, facts.link.to, _ends_of(facts.target, topics), settle)


def _still_followed(facts: LinkFacts) -> list[str]:
    return [topic for topic in facts.topics if facts.orders.released(topic) is None]


def _released_already(facts: LinkFacts) -> Iterator[str]:
    for topic in facts.topics:
        order = facts.orders.released(topic)
        if order is not None:
            yield f"{topic} is written at {facts.link.to} already: {order.kind} {_said(order)}"


def _about_writers(facts: LinkFacts, topics: Iterable[str]) -> Iterator[str]:
    back = sorted({link.name for topic in topics if (link := facts.way_back(topic)) is not None})
    for name in back:
        yield f"{name} then copies new records from {facts.link.to} to {facts.link.from_}"


def _upstream(facts: LinkFacts, topics: Iterable[str]) -> Iterator[str]:
    """Yield a note if the source copies these logs itself, because its own sources are not checked."""
    link = facts.link
    above = {
        each.name
        for topic in topics
        for each in facts.topology.links_to(link.from_)
        if each.from_ != link.to and facts.catalog.may_carry(each, topic)
    }
    for name in sorted(above):
        yield f"{link.from_} may itself copy it from another site, over {name}; that site is not checked"


def _paused_back(facts: LinkFacts, topics: Iterable[str]) -> Iterator[RefusalReason]:
    if facts.source_orders is None:
        yield RefusalReason("", f"the orders of {facts.link.from_} cannot be read", "fairlead status")
        return
    for topic in topics:
        back = facts.way_back(topic)
        stream = topic.partition(".")[0]
        pause = facts.source_orders.paused(back.name, stream, topic) if back is not None else None
        if back is not None and pause is not None:
            yield RefusalReason(
                topic, f"{_scope_of(pause)} is paused, {_said(pause)}", f"fairlead link resume '{back.name}'"
            )


def _may_be_released(facts: LinkFacts, topic: str) -> Iterator[RefusalReason]:
    """Yield the reasons why an operator must not move a log to another site."""
    known = facts.catalog.facts(topic)
    link = facts.link
    if known is None or not facts.catalog.may_carry(link, topic):
        carrying = [each.name for each in facts.topology.directed_links() if facts.catalog.may_carry(each, topic)]
        others = ", ".join(carrying) or "none"
        yield RefusalReason(topic, f"link {link.name} does not carry it", f"links that carry it: {others}")
        return
    if known.moves:
        yield RefusalReason(
            topic,
            "it is a container's log, which moves with the container, by custody",
            "fairlead custody grant, or fairlead custody seize if its holder is lost",
        )
    elif known.fixed_holder is not None:
        yield RefusalReason(
            topic,
            f"because of its name only {known.fixed_holder} may ever write to it",
            "write to a log of your own site, or use keys that do not begin with a site or ship",
        )


def _nothing_lost(facts: LinkFacts, topic: str) -> Iterator[RefusalReason]:
    """Yield the reasons why records of a log could be missing at the target."""
    source, target = facts.source.partitions(topic), facts.target.partitions(topic)
    if not source:
        yield RefusalReason(
            topic, f"{facts.source.site} does not have it", f"fairlead link failover, if {facts.target.site} has it"
        )
        return
    lag = {tp: end - target.get(tp, 0) for tp, end in source.items() if end != target.get(tp)}
    if any(tp not in source for tp in target):
        yield RefusalReason(topic, f"{facts.source.site} has fewer partitions of it than {facts.target.site}", _COMPARE)
    elif any(records < 0 for records in lag.values()):
        tp, records = next((tp, records) for tp, records in lag.items() if records < 0)
        yield RefusalReason(
            topic, f"{facts.target.site} has {-records} more records of {tp} than {facts.source.site}", _COMPARE
        )
    elif lag:
        where = ", ".join(f"{tp} by {records}" for tp, records in list(lag.items())[:3])
        yield RefusalReason(
            topic,
            f"{facts.target.site} is behind {facts.source.site}: {where} records",
            "stop its writers, wait for lag 0 (fairlead link list), and try again; or failover, which loses the rest",
        )


def _not_ahead(facts: LinkFacts, topic: str) -> Iterator[RefusalReason]:
    """Yield a reason if the source has records that the target, which writes the log now, lacks."""
    target = facts.target.partitions(topic)
    for tp, end in facts.source.partitions(topic).items():
        if end > target.get(tp, 0):
            more = end - target.get(tp, 0)
            yield RefusalReason(
                topic, f"{facts.source.site} has {more} more records of {tp} than {facts.target.site}", _COMPARE
            )
            return


def _in_order(status: Status | None, topic: str) -> Iterator[RefusalReason]:
    """Yield the trouble of a log at a replicator's site, as a reason."""
    for log, trouble in (status.troubles() if status else {}).items():
        if log.partition("/")[0] == topic:
            yield RefusalReason(
                topic,
                f"it is {trouble['state']} at {status.site if status else ''}: {trouble['cause']}",
                f"fairlead link resolve {log} --site {status.site if status else ''}",
            )


def _reachable(end: LinkEnd, verb: LinkOperation) -> Iterator[RefusalReason]:
    """Yield a reason if the other end could not be asked."""
    if end.error is not None:
        instead = "; fairlead link failover does without it" if verb is LinkOperation.PROMOTE else ""
        yield RefusalReason(
            "", f"{end.site} cannot be reached ({end.error})", f"start it, or repair the network{instead}"
        )


def _running(status: Status | None, site: str, verb: LinkOperation) -> Iterator[RefusalReason]:
    """Yield a reason if a site's replicator does not run."""
    if status is None or not status.running:
        instead = ", or fairlead link failover" if verb is LinkOperation.PROMOTE else ""
        yield RefusalReason(
            "",
            f"no replicator of {site} runs on this machine",
            f"fairlead replicate --site {site}, or give the order where it runs{instead}",
        )


def _plan_for(verb: LinkOperation, facts: LinkFacts, steps: Steps, *notes: str) -> LinkPlan:
    """Return a plan for the link and scope of the facts."""
    return LinkPlan(verb=verb, links=(facts.link.name,), logs=facts.topics, steps=steps, notes=notes)


def _order_for(
    facts: LinkFacts,
    kind: OverrideKind,
    *,
    link: str | None = None,
    stream: str | None = None,
    log: str | None = None,
    stop: int | None = None,
    reason: str | None = None,
) -> Override:
    """Return an order with the time, the user and, by default, the reason of the facts."""
    why = facts.reason if reason is None else reason
    return Override(kind, facts.at, facts.by, why, link=link, stream=stream, log=log, stop=stop)


def _written(site: str, orders: tuple[Override, ...]) -> Steps:
    """Return the steps that append orders at a site and wait for its replicator."""
    return (WriteLinkOrders(site, orders), AwaitActed(site, orders))


def _ends_of(end: LinkEnd, topics: Iterable[str]) -> tuple[EndOffset, ...]:
    """Return every partition's end of some topics."""
    return tuple(EndOffset(str(tp), offset) for topic in topics for tp, offset in end.partitions(topic).items())


def _refuse_any(verb: LinkOperation, reasons: Iterable[RefusalReason]) -> None:
    """Raise ``RefusedError`` if there is any reason."""
    found = list(reasons)
    if found:
        raise _refuse(verb, found)


def _said(order: Override) -> str:
    """Describe who gave an order, when, and why."""
    when = order.at.astimezone(dt.UTC)
    return f"by {order.by} at {when:%Y-%m-%d %H:%M:%S} UTC" + (f": {order.reason}" if order.reason else "")


def _scope_of(order: Override) -> str:
    """Describe a pause's scope: ``stream s on link a->b``."""
    what = f"log {order.log}" if order.log else f"stream {order.stream}" if order.stream else ""
    where = f"link {order.link}" if order.link else "every link"
    return f"{what} on {where}" if what else where
