"""A plan for people, as lines of text: the counterpart of ``execute`` on the same steps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from replication.orders import ORDERS_TOPIC, Order, OrderKind
from replication.verbs.plan import (
    AwaitActed,
    AwaitFollowing,
    LogEnd,
    Plan,
    Settle,
    Step,
    StillEqual,
    TellMissing,
    WriteOrders,
)

Line = tuple[str, str]
"""A line and its style: ``step``, ``detail``, ``note`` or ``plain``."""

SHOWN = 10  # logs that are named; of more only the number


def tell(plan: Plan) -> Iterator[Line]:
    """What a verb would do, step by step, and what to know before."""
    if plan.is_empty:
        yield "nothing to do", "plain"
    for number, step in enumerate(plan.steps, 1):
        for text, style in _step(step):
            yield (f"{number}. {text}" if style == "step" else f"   {text}"), style
    yield from ((f"note: {note}", "note") for note in plan.notes)


def describe(order: Order) -> str:
    """One order in words: ``promote log s.orders, which ends at 120``."""
    match order.log, order.stream:
        case str() as log, _:
            what = f"log {log}"
        case _, str() as stream:
            what = f"stream {stream}"
        case _:
            what = ""
    on = f"link {order.link}" if order.link else "" if what else "everything"
    end = ""
    if order.kind is OrderKind.SKIP:
        end = f", offsets {order.start} to before {order.stop}"
    elif order.stop is not None:
        end = f", which ends at {order.stop}"
    return f"{order.kind} {' on '.join(part for part in (what, on) if part)}{end}"


def _step(step: Step) -> Iterator[Line]:
    match step:
        case Settle(source, target, ends, seconds):
            yield f"make sure that {source} and {target} are equal and quiet for {seconds:g} s", "step"
            yield from _logs(ends)
        case WriteOrders(site, orders):
            yield f"append to {ORDERS_TOPIC} at {site}:", "step"
            yield from _some([describe(order) for order in orders])
        case AwaitActed(site, _):
            yield f"wait until the replicator of {site} has acted on it", "step"
        case StillEqual(source, target, _, undo):
            yield (
                f"make sure that nothing came to {source} meanwhile; else append to {ORDERS_TOPIC} at {target}:",
                "step",
            )
            yield from _some([describe(order) for order in undo])
        case TellMissing(source, target, _):
            yield f"wait until nothing is appended at {target}, and tell what {source} may have beyond that", "step"
        case AwaitFollowing(site, link, logs):
            yield f"wait until the replicator of {site} follows over {link}:", "step"
            yield from _some(list(logs))


def _logs(ends: Iterable[LogEnd]) -> Iterator[Line]:
    yield from _some([f"{each.log} ends at {each.end}" for each in ends])


def _some(texts: list[str]) -> Iterator[Line]:
    yield from ((text, "detail") for text in texts[:SHOWN])
    if len(texts) > SHOWN:
        yield f"and {len(texts) - SHOWN} more", "detail"
