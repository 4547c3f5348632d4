"""Plans of promote, failover, reverse and restore: which site writes a log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from replication.orders import OrderKind
from replication.verbs import checks
from replication.verbs.checks import Reason
from replication.verbs.facts import Facts
from replication.verbs.parts import ends_of, order_for, plan_for, refuse_any, said, scope_of, written
from replication.verbs.plan import AwaitFollowing, Plan, Settle, Step, StillEqual, TellMissing, Verb


def promote(facts: Facts, settle: float) -> Plan:
    topics = _still_followed(facts)
    if not topics:
        return plan_for(Verb.PROMOTE, facts, (), *_released_already(facts))
    refuse_any(Verb.PROMOTE, _level(Verb.PROMOTE, facts, topics))
    steps = _release(facts, topics, settle)
    return plan_for(
        Verb.PROMOTE, facts, steps, *_released_already(facts), *_about_writers(facts, topics), *_upstream(facts, topics)
    )


def failover(facts: Facts) -> Plan:
    topics = _still_followed(facts)
    if not topics:
        return plan_for(Verb.FAILOVER, facts, (), *_released_already(facts))
    missing = [topic for topic in topics if not facts.target.partitions(topic)]
    gone = f"{facts.target.site} has nothing of it"
    refuse_any(Verb.FAILOVER, (Reason(topic, gone, "make the topic there by hand") for topic in missing))
    ends = ends_of(facts.target, topics)
    orders = tuple(order_for(facts, OrderKind.FAILOVER, log=each.log, stop=each.end) for each in ends)
    steps: tuple[Step, ...] = (
        *written(facts.link.to, orders),
        TellMissing(facts.link.from_, facts.link.to, ends),
    )
    troubles = [each for topic in topics for each in checks.in_order(facts.status, topic)]
    notes = [f"{each.log}: {each.why}; it stays as it is here" for each in troubles]
    return plan_for(Verb.FAILOVER, facts, steps, *_released_already(facts), *notes, *_about_writers(facts, topics))


def reverse(facts: Facts, settle: float) -> Plan:
    link, topics = facts.link, facts.topics
    fresh = _still_followed(facts)  # what was promoted before is so already
    no_way = [
        Reason(
            topic,
            f"no link leads from {link.to} to {link.from_} that carries it",
            f"add one to the topology (both: true on {link.name}), or promote: then {link.from_} stays behind",
        )
        for topic in topics
        if facts.way_back(topic) is None
    ]
    refuse_any(Verb.REVERSE, no_way)
    refuse_any(
        Verb.REVERSE,
        chain(
            _level(Verb.REVERSE, facts, fresh),
            (each for topic in topics if topic not in fresh for each in checks.not_ahead(facts, topic)),
            checks.running(facts.source_status, link.from_, Verb.REVERSE),
            _paused_back(facts, topics),
        ),
    )
    restore = tuple(order_for(facts, OrderKind.RESTORE, log=topic) for topic in topics)
    steps = (*(_release(facts, fresh, settle) if fresh else ()), *written(link.from_, restore))
    backs = {topic: back.name for topic in topics if (back := facts.way_back(topic)) is not None}
    steps += tuple(
        AwaitFollowing(link.from_, name, tuple(topic for topic in topics if backs[topic] == name))
        for name in dict.fromkeys(backs.values())
    )
    notes = (
        f"from then on {link.from_} must not write to it any more: stop its producers, or take away their rights",
        *_about_writers(facts, topics),
    )
    return plan_for(Verb.REVERSE, facts, steps, *notes)


def restore(facts: Facts) -> Plan:
    topics = [topic for topic in facts.topics if facts.orders.released(topic) is not None]
    if not topics:
        return plan_for(
            Verb.RESTORE, facts, (), f"{facts.link.to} follows it already: nothing was promoted or failed over"
        )
    more = [
        Reason(
            topic,
            f"{facts.target.site} has records that {facts.source.site} has not ({tp} ends at {end}, there at {there})",
            f"fairlead link reverse brings them to {facts.source.site} if that is only behind; "
            "else fairlead link resolve keeps both versions",
        )
        for topic in topics
        for tp, end in facts.target.partitions(topic).items()
        if end > (there := facts.source.ends.get(tp, 0))
    ]
    refuse_any(Verb.RESTORE, chain(checks.reachable(facts.source, Verb.RESTORE), more))
    orders = tuple(order_for(facts, OrderKind.RESTORE, log=topic) for topic in topics)
    steps = written(facts.link.to, orders)
    note = f"{facts.link.to} must not write to it any more: stop its producers first"
    return plan_for(Verb.RESTORE, facts, steps, note)


def _level(verb: Verb, facts: Facts, topics: Iterable[str]) -> Iterator[Reason]:
    """Everything that must be so for a log to be released without loss."""
    yield from checks.reachable(facts.source, verb)
    yield from checks.running(facts.status, facts.link.to, verb)
    if facts.source.error is None:
        for topic in topics:
            yield from checks.in_order(facts.status, topic)
            yield from checks.nothing_lost(facts, topic)


def _release(facts: Facts, topics: list[str], settle: float) -> tuple[Step, ...]:
    link = facts.link
    ends = ends_of(facts.target, topics)
    orders = tuple(order_for(facts, OrderKind.PROMOTE, log=each.log, stop=each.end) for each in ends)
    undo = tuple(
        order_for(facts, OrderKind.RESTORE, log=topic, reason="records came to the source meanwhile")
        for topic in topics
    )
    return (
        _settled(facts, topics, settle),
        *written(link.to, orders),
        StillEqual(link.from_, link.to, ends, undo),
    )


def _settled(facts: Facts, topics: list[str], settle: float) -> Settle:
    return Settle(facts.link.from_, facts.link.to, ends_of(facts.target, topics), settle)


def _still_followed(facts: Facts) -> list[str]:
    return [topic for topic in facts.topics if facts.orders.released(topic) is None]


def _released_already(facts: Facts) -> Iterator[str]:
    for topic in facts.topics:
        order = facts.orders.released(topic)
        if order is not None:
            yield f"{topic} is written at {facts.link.to} already: {order.kind} {said(order)}"


def _about_writers(facts: Facts, topics: Iterable[str]) -> Iterator[str]:
    back = sorted({link.name for topic in topics if (link := facts.way_back(topic)) is not None})
    for name in back:
        yield f"what is written at {facts.link.to} then reaches {facts.link.from_} over {name}"


def _upstream(facts: Facts, topics: Iterable[str]) -> Iterator[str]:
    """Where the source has these logs from: what those have beyond is not looked at."""
    link = facts.link
    above = {
        each.name
        for topic in topics
        for each in facts.topology.links_to(link.from_)
        if each.from_ != link.to and facts.catalog.takes(each, topic)
    }
    for name in sorted(above):
        yield f"{link.from_} may itself have it from another site, over {name}: what is beyond that is not looked at"


def _paused_back(facts: Facts, topics: Iterable[str]) -> Iterator[Reason]:
    if facts.source_orders is None:
        yield Reason("", f"the orders of {facts.link.from_} cannot be read", "fairlead status")
        return
    for topic in topics:
        back = facts.way_back(topic)
        stream = topic.partition(".")[0]
        pause = facts.source_orders.paused(back.name, stream, topic) if back is not None else None
        if back is not None and pause is not None:
            yield Reason(topic, f"{scope_of(pause)} is paused, {said(pause)}", f"fairlead link resume '{back.name}'")
