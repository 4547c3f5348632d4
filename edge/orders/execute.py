"""Carries out a plan: the order is written, then its answer awaited. What was written stands, whatever comes after."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from edge.orders.explain import describe
from edge.orders.ground import Ground
from edge.orders.steps import AwaitAnswer, Plan, WriteOrder
from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.records.custody import CustodyEntry, CustodyOrder, LedgerEntry, RefusalEntry

WAIT: Final = 30.0
PAUSE: Final = 0.2
Progress = Callable[[str], None]


class OrderRefusedError(RefusedError):
    """The site's bridge did not carry the order out; its reason is in the ledger."""


class OrderStandsError(UnavailableError):
    """The order is written, and nobody has answered it yet: it is carried out when the site's bridge runs."""


class Executor:
    """Carries out one plan on a ground.

    Args:
        wait: Seconds for the bridge to answer.
        progress: Hears what it waits for.
    """

    def __init__(self, ground: Ground, *, wait: float = WAIT, progress: Progress = lambda text: None) -> None:
        self._ground = ground
        self._wait = wait
        self._progress = progress
        self._position = 0

    async def run(self, plan: Plan) -> CustodyEntry:
        """Write the order and return the ledger entry that carried it out.

        Raises:
            OrderRefusedError: the bridge refused it.
            OrderStandsError: there was no answer in time; ``fields["order_id"]`` names the order.
            FairleadError: the order could not be written.
        """
        answer: CustodyEntry | None = None
        for step in plan.steps:
            match step:
                case WriteOrder(site, order):
                    self._progress(f"writing the order at {site}")
                    self._position = await self._ground.ledger_end(site)
                    await self._ground.append(site, order)
                case AwaitAnswer(site, order):
                    answer = await self._answer(site, order)
        if answer is None:
            raise AssertionError("a plan ends with an answer")
        return answer

    async def _answer(self, site: str, order: CustodyOrder) -> CustodyEntry:
        began = time.monotonic()
        trouble: FairleadError | None = None
        while True:
            seconds = time.monotonic() - began
            self._progress(f"waiting for the bridge of {site} ({seconds:.0f} of {self._wait:g} s)")
            try:
                entries, self._position = await self._ground.ledger_since(site, self._position)
                trouble = None
            except FairleadError as error:
                if not error.retriable:
                    raise _stands(site, order, f"its ledger cannot be read ({error.what})") from error
                entries, trouble = (), error
            for entry in entries:
                if _answers(entry, order):
                    return _judged(site, entry)
            if seconds > self._wait:
                why = trouble.what if trouble is not None else f"its bridge has not answered within {self._wait:g} s"
                raise _stands(site, order, why)
            await asyncio.sleep(PAUSE)


def _answers(entry: LedgerEntry, order: CustodyOrder) -> bool:
    match entry:
        case CustodyEntry():
            return entry.event_id == order.order_id
        case RefusalEntry():
            return entry.order_id == order.order_id
        case _:
            return False


def _judged(site: str, entry: LedgerEntry) -> CustodyEntry:
    if isinstance(entry, CustodyEntry):
        return entry
    if isinstance(entry, RefusalEntry):
        raise OrderRefusedError(
            f"the bridge of {site} refused: {entry.reason}",
            hint=f"fairlead custody show {entry.log}",
            log=entry.log,
            site=site,
            code=entry.code,
            order_id=entry.order_id,
        )
    raise AssertionError("a return answers no order")


def _stands(site: str, order: CustodyOrder, why: str) -> OrderStandsError:
    return OrderStandsError(
        f"the order is written at {site} ({describe(order)}), but {why}; it stands, and will be carried out when the "
        f"bridge of {site} runs",
        hint=f"fairlead status; fairlead bridge --at {site}; then 'fairlead custody show {order.log} --at {site}'",
        log=order.log,
        site=site,
        order_id=order.order_id,
    )
