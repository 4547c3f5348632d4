"""A receiver of ledger entries at Tokyo, which the test feeds by hand."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock

import pytest

from edge.custody.protocol import CustodyProtocol
from edge.custody.receiver import Receiver
from edge.holdings import Holdings
from edge.logwriter.container import BrokenLogs
from edge.metrics import Metrics
from edge.writer_registry import WriterRegistry
from fairlead.custody.view import CustodyView
from fairlead.errors import FairleadError
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TP, LogPosition
from fairlead.records import encode
from fairlead.records.custody import CustodyEntry, LedgerEntry
from tests.support.edge.samples import topology
from topologies.ledger_trust import Believer, Refused, Rules

LOG = "containers.BIGU1000005"
NOW = dt.datetime.now(dt.UTC)


class World:
    """A receiver at Tokyo that the test feeds by hand; it stands for the log writers, too."""

    def __init__(self) -> None:
        self.holdings = Holdings("tokyo", CustodyView())
        book = MagicMock()
        book.passed_on = lambda log, drained: self.granted.append(self.holdings.view.term(log))
        self.protocol = CustodyProtocol(
            self.holdings, book, sites=(), now=lambda: dt.datetime.now(dt.UTC), nonce=lambda: "n"
        )
        self.granted: list[int | None] = []
        self.lost: list[str] = []
        self.refused: list[Refused] = []
        self.broken = BrokenLogs()
        self.metrics = Metrics()
        self.cluster = MagicMock()
        self.appender = MagicMock()
        self.receiver = Receiver(
            self.cluster,
            self.appender,
            self.protocol,
            ("custody.tokyo", "custody.star"),
            Believer(Rules.of(topology()), self.holdings.view, on_refused=self.refused.append),
            cast(WriterRegistry, self),
        )

    def box(self, log: str) -> Any:
        return MagicMock(unload=lambda: self.lost.append(log))

    def drain_soon(self, log: str) -> None: ...

    def take(self, site: str, value: bytes | LedgerEntry, *, at_start: bool = False) -> None:
        body = value if isinstance(value, bytes) else encode(value)
        self.receiver._apply_record(f"custody.{site}", Record(0, 0, None, body, ()), at_start)  # noqa: SLF001

    def aboard(self, *logs: str) -> None:
        """Let the ship hold these logs in term 1."""
        for log in logs or (LOG,):
            self.holdings.view.apply(entry(1, "star", log=log, granted_by="sydney"))

    async def take_over(self, *answers: dict[TP, LogPosition | FairleadError]) -> None:
        """Take logs over until these answers to ``adopt_many`` are used up; every copy here is complete."""
        self.cluster.topics = AsyncMock(side_effect=dict.fromkeys)
        self.cluster.end_offsets = AsyncMock(side_effect=lambda logs, **_: dict.fromkeys(logs, 1000))
        self.appender.adopt_many = AsyncMock(side_effect=[*answers, asyncio.CancelledError])
        with pytest.raises((asyncio.CancelledError, TimeoutError)):
            await asyncio.wait_for(self.receiver.take_over(), 0.5)


def entry(term: int, to_site: str | None, **more: Any) -> CustodyEntry:
    given: dict[str, Any] = {
        "log": LOG,
        "term": term,
        "marker_offset": 10 * term,
        "from_site": "star",
        "to_site": to_site,
        "event": "DISC",
        "event_id": f"e{term}",
        "event_date_time": NOW,
        "granted_date_time": NOW,
        "granted_by": "star",
        "marker_batch": b"",
    }
    return CustodyEntry(**{**given, **more})
