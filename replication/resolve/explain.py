"""A plan in words: the same steps that ``execute`` carries out, in the same order. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, assert_never

import msgspec

from replication.orders import Order, OrderKind
from replication.resolve.facts import Extent
from replication.resolve.plan import Plan
from replication.resolve.steps import (
    DeleteTopic,
    GiveBack,
    KeepBatch,
    KeepCopy,
    PauseLog,
    RestoreGroups,
    Step,
    Verify,
    WaitFor,
    WriteOrder,
)


def explain(step: Step) -> str:
    """One step, as a sentence without a full stop."""
    match step:
        case PauseLog(order, _, wait):
            return f"pause {order.log}" + (" and wait until the replicator has left it alone" if wait else "")
        case KeepCopy(topic, kept, extents):
            return f"copy {_ranges(extents)} of {topic} to {kept}, same offsets"
        case KeepBatch(log, site, _, extent, kept):
            return f"store the bytes of the batch {_range(extent)} of {log}, as {site} has it, in {kept}"
        case Verify(topic, kept, _):
            return f"compare {kept} with {topic} batch by batch; stop here if anything differs"
        case DeleteTopic(topic):
            return f"delete {topic}"
        case GiveBack(topic, kept, _, extents):
            return f"make {topic} anew with {_ranges(extents)}, which no source has any more, from {kept}"
        case WriteOrder(order):
            return _ordered(order)
        case WaitFor(log, ends):
            upto = ", ".join(f"offset {end}" + (f" in partition {number}" if number else "") for number, end in ends)
            return f"wait until {log} is mirrored" + (f" up to {upto}" if upto else "")
        case RestoreGroups(topic, committed):
            groups = sorted({each.group for each in committed})
            return f"commit again how far {', '.join(groups)} had read {topic}"
    assert_never(step)


def as_json(plan: Plan) -> dict[str, Any]:
    """A plan for another program."""
    return {
        "site": plan.site,
        "log": plan.log,
        "state": str(plan.state),
        "choice": str(plan.choice),
        "steps": [
            {"step": type(each).__name__, "does": explain(each), **msgspec.to_builtins(asdict(each))}
            for each in plan.steps
        ],
        "notes": list(plan.notes),
    }


def _ordered(order: Order) -> str:
    match order.kind:
        case OrderKind.SKIP:
            return f"order the replicator to fill offsets {order.start}..{(order.stop or 0) - 1} of {order.log}"
        case OrderKind.RETRY:
            return f"order the replicator to look at {order.log} anew"
        case OrderKind.RESUME:
            return f"end the pause of {order.log}"
        case _:
            return f"order: {order.kind} {order.log}"


def _ranges(extents: tuple[tuple[int, Extent], ...]) -> str:
    return ", ".join(_range(each) + (f" of partition {number}" if number else "") for number, each in extents)


def _range(extent: Extent) -> str:
    return f"offsets {extent.start}..{extent.stop - 1}"
