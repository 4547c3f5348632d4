"""What the builders of plans have in common. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from replication.orders import Order, OrderKind
from replication.verbs.checks import Reason, refuse
from replication.verbs.facts import End, Facts
from replication.verbs.plan import AwaitActed, LogEnd, Plan, Step, Verb, WriteOrders


def plan_for(verb: Verb, facts: Facts, steps: tuple[Step, ...], *notes: str) -> Plan:
    """A plan about what the facts are about."""
    return Plan(verb, (facts.link.name,), facts.topics, steps, notes)


def order_for(
    facts: Facts,
    kind: OrderKind,
    *,
    link: str | None = None,
    stream: str | None = None,
    log: str | None = None,
    stop: int | None = None,
    reason: str | None = None,
) -> Order:
    """An order with the time, the user and, unless told otherwise, the reason of the facts."""
    why = facts.reason if reason is None else reason
    return Order(kind, facts.at, facts.by, why, link=link, stream=stream, log=log, stop=stop)


def written(site: str, orders: tuple[Order, ...]) -> tuple[Step, ...]:
    """The steps that give orders to a site."""
    return (WriteOrders(site, orders), AwaitActed(site, orders))


def ends_of(end: End, topics: Iterable[str]) -> tuple[LogEnd, ...]:
    """Every partition's end of some topics."""
    return tuple(LogEnd(str(tp), offset) for topic in topics for tp, offset in end.partitions(topic).items())


def refuse_any(verb: Verb, reasons: Iterable[Reason]) -> None:
    """Raise ``RefusedError`` when there is any reason."""
    found = list(reasons)
    if found:
        raise refuse(verb, found)


def said(order: Order) -> str:
    """Who gave an order, when, and why."""
    when = order.at.astimezone(dt.UTC)
    return f"by {order.by} at {when:%Y-%m-%d %H:%M:%S} UTC" + (f": {order.reason}" if order.reason else "")


def scope_of(order: Order) -> str:
    """What a pause is about: ``stream s on link a->b``."""
    what = f"log {order.log}" if order.log else f"stream {order.stream}" if order.stream else ""
    where = f"link {order.link}" if order.link else "every link"
    return f"{what} on {where}" if what else where
