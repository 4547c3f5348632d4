"""Taking custody: follows all ledgers in the site's own Kafka, and takes over each log when its copy is complete."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Sequence
from functools import partial

from edge.custodian import Custodian
from edge.errors import SecondBridgeError
from edge.follower import Follower
from edge.holdings import Custody, Holdings
from edge.patience import patiently
from edge.transfer import FUTURE
from fairlead.custody import Grant, SplitCustodyError
from fairlead.errors import FairleadError
from fairlead.records import UNREADABLE
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, ledger_entries
from fairlead.wire.appender import Appender
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_data
from fairlead.wire.errors import BrokerError, Conflict, FatalBrokerError, Fenced, Misplaced
from fairlead.wire.record import Record
from fairlead.wire.types import TP, LogPosition

log = logging.getLogger(__name__)

_SOONEST, _LATEST = 0.05, 0.5  # seconds between looks at the ends of incoming logs
_PER_LOG = 0.0002  # the same, for each log that is looked at: several times what it takes from the broker
_AT_ONCE = 2_000


class Receiver:
    """Keeps ``holdings`` as the ledgers say.

    Args:
        ledgers: Topics of all sites' ledgers; those not here yet are looked for while running.
        on_own: Called with each entry of this site's own ledger, at start too.
        on_claim: Called with each claim, at start too.
        on_grant: Called with each grant that is news and not this site's own doing, while running.
        on_held: Called with each log that this site has just taken over.
        on_lost: Called with each log that the ledger took from this site without its own doing.
    """

    def __init__(
        self,
        cluster: Cluster,
        appender: Appender,
        holdings: Holdings,
        custodian: Custodian,
        ledgers: tuple[str, ...],
        *,
        on_own: Callable[[LedgerEntry], None],
        on_claim: Callable[[ClaimEntry], None],
        on_grant: Callable[[Grant], None],
        on_held: Callable[[str], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._appender = appender
        self._holdings = holdings
        self._custodian = custodian
        self._own = f"custody.{holdings.site}"
        self._on_own = on_own
        self._on_claim = on_claim
        self._on_grant = on_grant
        self._on_held = on_held
        self._on_lost = on_lost
        self._incoming = asyncio.Event()
        self._follower = Follower(cluster, ledgers, self._take)
        self.taken = 0
        self.splits: dict[str, str] = {}  # logs granted twice in one term, with what the ledgers say about it

    @property
    def truncated(self) -> dict[str, int]:
        """Ledgers that do not begin at offset 0 any more, with their first offset: entries are missing."""
        return self._follower.starts

    async def catch_up(self) -> None:
        """Read every ledger that is here, up to its end now. Nothing is taken over yet."""
        await self._follower.catch_up()
        for topic, start in self.truncated.items():
            log.error(
                "%s: the ledger %s has lost its first %d entries; what they said is read from the markers in the logs "
                "that are here. Its retention must be forever",
                self._holdings.site,
                topic,
                start,
            )

    async def follow(self) -> None:
        """Follow the ledgers until cancelled.

        Raises:
            SecondBridgeError: another process writes this site's ledger.
        """
        await self._follower.follow()

    async def read_to_ends(self) -> None:
        """Wait until ``follow`` has taken in every entry that the ledgers have here now; errors as of the follower."""
        await self._follower.read_to_ends()

    def _take(self, topic: str, record: Record, at_start: bool) -> None:
        if record.value is None or not is_data(record):
            return
        try:
            entry = ledger_entries.decode(record.value)
        except UNREADABLE as error:
            log.error("the ledger %s has a record at offset %d that is no entry: %s", topic, record.offset, error)
            return
        if isinstance(entry, CustodyEntry):
            self._apply(topic, entry, at_start=at_start)
        elif isinstance(entry, ClaimEntry):
            self._on_claim(entry)
        if topic == self._own:
            self._on_own(entry)

    def _apply(self, topic: str, entry: CustodyEntry, *, at_start: bool) -> None:
        if entry.event_date_time > dt.datetime.now(dt.UTC) + FUTURE:
            log.error(
                "%s has an entry from the future: term %d of %s, %s; which term is newer does not depend on clocks, so "
                "it holds, but its time is not believed",
                topic,
                entry.term,
                entry.log,
                entry.event_date_time.isoformat(),
            )
        try:
            news = self._holdings.view.apply(entry)
        except SplitCustodyError as error:
            self.splits[entry.log] = error.what
            log.error("%s", error)
            return
        grant = self._holdings.view.grant(entry.log)
        if not news or at_start or grant is None:
            return
        if topic == self._own:
            if self._custodian.is_writing(entry):
                return
            raise SecondBridgeError(
                f"another bridge of {self._holdings.site} works: it granted {entry.log} to {entry.to_site} (term "
                f"{entry.term})",
                hint="one bridge per site; this one stops, nothing is lost by it",
                site=self._holdings.site,
                log=entry.log,
            )
        before = self._holdings.news(grant)
        if self._holdings.state(entry.log) is Custody.INCOMING:
            self._incoming.set()
        elif before is Custody.HELD and self._holdings.state(entry.log) is Custody.ELSEWHERE:
            log.error("%s: the ledger gives term %d to %s, not granted here", entry.log, entry.term, entry.to_site)
            self._on_lost(entry.log)
        self._on_grant(grant)

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
            before = len(self._holdings.incoming)
            await self._adopt(ready)
            # A replica is written by another process; its end is all there is to see. Looking at very many takes from
            # the broker that is to make them.
            await asyncio.sleep(max(delay, _PER_LOG * len(self._holdings.incoming)))
            delay = _SOONEST if len(self._holdings.incoming) < before else min(delay * 1.5, _LATEST)

    async def _complete_copies(self) -> list[str]:
        """Incoming logs whose copy here has the marker."""
        here = await self._cluster.topics(list(self._holdings.incoming))  # asks for those that were not here before
        ends = await self._cluster.end_offsets([TP(topic) for topic in here])
        ready: list[str] = []
        for tp, end in ends.items():
            marker = self._holdings.view.marker(tp.topic)
            if not isinstance(end, BrokerError) and marker is not None and end > marker:
                ready.append(tp.topic)
        return ready

    async def _adopt(self, topics: Sequence[str]) -> None:
        for first in range(0, len(topics), _AT_ONCE):
            grants = {
                TP(topic): grant
                for topic in topics[first : first + _AT_ONCE]
                if topic in self._holdings.incoming and (grant := self._holdings.view.grant(topic)) is not None
            }
            terms = {tp: grant.term for tp, grant in grants.items()}
            found = await patiently(partial(self._appender.adopt_many, terms), f"taking over {len(terms)} logs")
            for tp, result in found.items():
                self._adopted(grants[tp], result)

    def _adopted(self, grant: Grant, result: LogPosition | FairleadError) -> None:
        topic = grant.log
        if self._holdings.view.grant(topic) != grant:
            return  # it has moved on meanwhile
        match result:
            case FairleadError() if result.retriable:
                return  # at the next look
            case Misplaced() if result.fields.get("term", grant.term) < grant.term:
                return  # the copy here goes on in an older term, which a seizure has cut off: it will be made anew
            case Fenced() | Misplaced() | Conflict() | FatalBrokerError():
                self._holdings.broke(topic)
                log.error("%s: given to this site in term %d, but cannot be taken over: %s", topic, grant.term, result)
                return
            case FairleadError():
                raise result
        self._holdings.hold(topic, grant.term)
        self.taken += 1
        self._on_held(topic)
