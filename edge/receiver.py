"""Taking custody: follows all ledgers in the site's own Kafka, and takes over each log when its copy is complete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from edge.holdings import Custody, Holdings
from edge.patience import patiently
from fairlead.custody import SplitCustodyError
from fairlead.records.custody import CustodyEntry, ledger_entries
from fairlead.wire.appender import Appender
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_data
from fairlead.wire.errors import BrokerError, Conflict, FatalBrokerError, Fenced, Misplaced
from fairlead.wire.reader import Tail, read_log
from fairlead.wire.record import Record
from fairlead.wire.types import TP

log = logging.getLogger(__name__)

_LOOK_FOR_LEDGERS = 1.0  # seconds; a ledger that was not here at start
_SOONEST, _LATEST = 0.05, 0.5  # seconds between looks at the ends of incoming logs


class Receiver:
    """Keeps ``holdings`` as the ledgers say.

    Args:
        ledgers: Topics of all sites' ledgers; those not here yet are looked for while running.
        on_held: Called with each log that this site has just taken over.
        on_lost: Called with each log that the ledger took from this site without its own doing.
    """

    def __init__(
        self,
        cluster: Cluster,
        appender: Appender,
        holdings: Holdings,
        ledgers: tuple[str, ...],
        *,
        on_held: Callable[[str], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._appender = appender
        self._holdings = holdings
        self._ledgers = ledgers
        self._on_held = on_held
        self._on_lost = on_lost
        self._positions: dict[TP, int] = {}
        self._incoming = asyncio.Event()
        self.taken = 0
        self.changed = asyncio.Condition()

    async def catch_up(self) -> None:
        """Read every ledger that is here, up to its end now. Nothing is taken over yet."""
        for topic in await self._cluster.topics(self._ledgers, refresh=True):
            tp = TP(topic)
            ahead = self._positions.get(tp)
            async for record in read_log(self._cluster, tp, ahead):
                self._positions[tp] = record.offset + 1
                self._apply(record, at_start=True)
            self._positions.setdefault(tp, 0)

    # -- the ledgers

    async def follow(self) -> None:
        """Follow the ledgers until cancelled."""
        tail = Tail(self._cluster, self._positions)
        looking = asyncio.create_task(self._look_for_ledgers(tail))
        try:
            while True:
                for record in await patiently(partial(self._next, tail), "following the ledgers"):
                    self._apply(record, at_start=False)
                await self._notify()
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await tail.close()

    async def _next(self, tail: Tail) -> list[Record]:
        try:
            return (await anext(tail))[1]
        except BrokerError as error:
            if error.retriable or error.log is None:
                raise
            log.error("the ledger %s must be read again from its start: %s", error.log, error)
            start = (await self._cluster.start_offsets([error.log]))[error.log]
            if isinstance(start, BrokerError):
                raise start from error
            tail.add(error.log, start)
            return []

    async def _look_for_ledgers(self, tail: Tail) -> None:
        while missing := [topic for topic in self._ledgers if TP(topic) not in self._positions]:
            for topic in await patiently(partial(self._cluster.topics, missing, refresh=True), "looking for ledgers"):
                self._positions[TP(topic)] = 0
                tail.add(TP(topic), 0)
            await asyncio.sleep(_LOOK_FOR_LEDGERS)

    def _apply(self, record: Record, *, at_start: bool) -> None:
        if record.value is None or not is_data(record):
            return
        try:
            entry = ledger_entries.decode(record.value)
            if not isinstance(entry, CustodyEntry):
                return
            news = self._holdings.view.apply(entry)
        except msgspec.DecodeError as error:
            log.error("a ledger has a record at offset %d that is no entry: %s", record.offset, error)
            return
        except SplitCustodyError as error:
            log.error("%s", error)
            return
        if not news or at_start or entry.granted_by == self._holdings.site:
            return  # what this site grants, its custodian knows already
        grant = self._holdings.view.grant(entry.log)
        if grant is None:
            return
        before = self._holdings.news(grant)
        if self._holdings.state(entry.log) is Custody.INCOMING:
            self._incoming.set()
        elif before is Custody.HELD and self._holdings.state(entry.log) is Custody.ELSEWHERE:
            log.error("%s: the ledger gives term %d to %s, not granted here", entry.log, entry.term, entry.to_site)
            self._on_lost(entry.log)

    # -- taking over

    async def take_over(self) -> None:
        """Take over what the ledgers give to this site, until cancelled."""
        delay = _SOONEST
        while True:
            if not self._holdings.incoming:
                self._incoming.clear()
                await self._incoming.wait()
                delay = _SOONEST
            ready = await patiently(self._complete_copies, "looking at incoming logs")
            if ready:
                await asyncio.gather(*(self._adopt(topic) for topic in ready))
                await self._notify()
                delay = _SOONEST
                continue
            await asyncio.sleep(delay)  # a replica is written by another process; its end is all there is to see
            delay = min(delay * 1.5, _LATEST)

    async def _complete_copies(self) -> list[str]:
        """Incoming logs whose copy here has the marker."""
        wanted = list(self._holdings.incoming)
        here = await self._cluster.topics(wanted)
        if len(here) < len(wanted):
            here = await self._cluster.topics(wanted, refresh=True)
        ends = await self._cluster.end_offsets([TP(topic) for topic in here])
        ready: list[str] = []
        for tp, end in ends.items():
            marker = self._holdings.view.marker(tp.topic)
            if not isinstance(end, BrokerError) and marker is not None and end > marker:
                ready.append(tp.topic)
        return ready

    async def _adopt(self, topic: str) -> None:
        grant = self._holdings.view.grant(topic)
        if grant is None or topic not in self._holdings.incoming:
            return
        try:
            await patiently(
                partial(self._appender.adopt, TP(topic), term=grant.term), f"{topic}: taking over term {grant.term}"
            )
        except (Fenced, Misplaced, Conflict, FatalBrokerError) as error:
            self._holdings.broke(topic)
            log.error("%s: given to this site in term %d, but cannot be taken over: %s", topic, grant.term, error)
            return
        if self._holdings.view.grant(topic) == grant:
            self._holdings.hold(topic, grant.term)
            self.taken += 1
            self._on_held(topic)

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()
