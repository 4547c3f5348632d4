"""A plan for people, as lines of text: the counterpart of ``execute`` on the same steps. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from edge.orders.steps import AwaitAnswer, Plan, Step, WriteOrder
from fairlead.records.custody import CUSTODY_ORDERS, CustodyOrder


def tell(plan: Plan) -> Iterator[str]:
    """What would be done, step by step, and what to know before."""
    yield f"{plan.order.log} is held by {plan.holder} in term {plan.term}"
    for number, step in enumerate(plan.steps, 1):
        yield f"{number}. {_step(step)}"
    yield from (f"note: {note}" for note in plan.notes)


def describe(order: CustodyOrder) -> str:
    """One order in words: ``grant containers.BIGU0000013 to sydney``."""
    what = f"grant {order.log} to {order.to_site}" if order.kind == "grant" else f"seize {order.log}"
    return what + (f", because: {order.reason}" if order.reason else "")


def _step(step: Step) -> str:
    match step:
        case WriteOrder(site, order):
            return f"append to {CUSTODY_ORDERS} at {site}: {describe(order)}"
        case AwaitAnswer(site, _):
            return f"wait until the bridge of {site} has carried it out or refused it, by its ledger custody.{site}"
