"""Simulate operators who grant and seize logs by hand, knowing only what their site knows.

Seizures of one log follow each other: an operator waits until the site knows the one before (docs/custody.md, limits).
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections import Counter, defaultdict
from typing import Final, Literal

from fairlead.custody.ledger import read_ledgers
from fairlead.kafka.clusters import Clusters
from fairlead.kafka.protocol.record import NewRecord, encode_batch
from fairlead.kafka.protocol.types import TP
from fairlead.records import encode
from fairlead.records.custody import CUSTODY_ORDERS, CustodyEntry, CustodyOrder, LedgerEntry, RefusalEntry

_orders: Final = itertools.count()


class Operators:
    """The operators of all sites. ``done`` counts their orders."""

    def __init__(self, clusters: Clusters, done: Counter[str]) -> None:
        self._clusters = clusters
        self._done = done
        self._seizures: dict[str, list[CustodyOrder]] = defaultdict(list)  # all seizures ordered, by log

    async def grant(self, log: str, *, at: str, to: str, term: int) -> None:
        """Order the holder to give a log away.

        Raises:
            FairleadError: the site is away.
        """
        await self._give(_order("grant", log, at, to, term))
        self._done["orders to grant"] += 1

    async def seize(self, log: str, *, at: str, term: int) -> None:
        """Order a site to seize a log, but only when the previous seizure has its answer and this site knows it.

        Raises:
            FairleadError: a site is away.
        """
        known = await self._entries(at, log)
        for earlier in self._seizures[log]:
            answer = _answer(await self._entries(earlier.at_site, log), earlier)
            if answer is None:
                await self._give(earlier)  # it may never have arrived; a bridge carries out each order only once
                return
            if isinstance(answer, CustodyEntry) and answer not in known:
                return
        order = _order("seize", log, at, at, term)
        self._seizures[log].append(order)  # the bridge may carry it out even if the broker does not answer
        await self._give(order)
        self._done["orders to seize"] += 1

    async def _entries(self, site: str, log: str) -> tuple[LedgerEntry, ...]:
        return (await read_ledgers(await self._clusters.at(site), site, about=log)).entries

    async def _give(self, order: CustodyOrder) -> None:
        batch = encode_batch([NewRecord(encode(order), timestamp_ms=0)], producer_id=-1, epoch=-1, sequence=-1)
        cluster = await self._clusters.at(order.at_site)
        answer = (await cluster.produce({TP(CUSTODY_ORDERS): batch}))[TP(CUSTODY_ORDERS)]
        if answer.error_code:
            self._done["orders that were lost"] += 1


def _order(kind: Literal["grant", "seize"], log: str, at: str, to: str, term: int) -> CustodyOrder:
    return CustodyOrder(
        order_id=f"order-{next(_orders)}",
        kind=kind,
        log=log,
        at_site=at,
        to_site=to,
        ordered_date_time=now(),
        ordered_by="storm",
        reason="a storm",
        term=term,
    )


def _answer(entries: tuple[LedgerEntry, ...], order: CustodyOrder) -> LedgerEntry | None:
    for entry in entries:
        match entry:
            case CustodyEntry(event_id=order.order_id) | RefusalEntry(order_id=order.order_id):
                return entry
    return None


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
