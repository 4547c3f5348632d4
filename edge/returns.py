"""What this site wrote, or copied, beyond the offset where another site seized the log: kept as strays, and reported.

Two histories cannot have the same offsets, so this site's copy of such a log must be made anew. Before that every
reading in it from the seizure's marker on is kept in ``strays.<site>``; the present holder drains them. The report in
the ledger (``ReturnEntry``) tells the replicator that the copy may go, and everybody what happened.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from functools import partial

from edge import records
from edge.boxes import BoxLane
from edge.lane import Entry
from edge.lanes import SiteLanes, ledger_key
from edge.patience import patiently
from edge.tails import Tails
from fairlead.custody import CustodyView
from fairlead.lineage import stale_copies
from fairlead.records import headers
from fairlead.records.custody import LedgerEntry, ReturnEntry
from fairlead.wire.cluster import Cluster
from fairlead.wire.record import NewRecord, Record

log = logging.getLogger(__name__)

EVERY = 2.0  # seconds between looks at seized logs; there are few, if any


class Returns:
    """Watches this site's copies of seized logs."""

    def __init__(
        self,
        site: str,
        cluster: Cluster,
        tails: Tails,
        view: CustodyView,
        lanes: SiteLanes,
        *,
        every: float = EVERY,
    ) -> None:
        self._site = site
        self._cluster = cluster
        self._tails = tails
        self._view = view
        self._lanes = lanes
        self._every = every
        self._reported: dict[str, tuple[int, int, int]] = {}  # newest seizure, cut, and end of the copy

    def learn(self, entry: LedgerEntry) -> None:
        """An entry of this site's own ledger."""
        if isinstance(entry, ReturnEntry):
            self._reported[entry.log] = (entry.term, entry.marker_offset, entry.end_offset)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await patiently(self.look, "looking at logs that were seized")
            await asyncio.sleep(self._every)

    async def look(self) -> int:
        """Keep what is beyond a seizure in any copy here; gives how many logs were reported."""
        done = 0
        for topic, stale in (await stale_copies(self._cluster, self._view, tuple(self._view.seized()))).items():
            if self._reported.get(topic) != (stale.newest, stale.cut, stale.end):
                lane = self._lanes.box(topic)
                await lane.run_alone(partial(self._keep, lane))
                done += 1
        return done

    async def _keep(self, lane: BoxLane) -> None:
        """Keep the readings of one copy beyond the seizure. Runs as a control of the log's lane."""
        stale = (await stale_copies(self._cluster, self._view, [lane.log])).get(lane.log)
        if stale is None:
            return
        kept = 0
        async for record in self._tails.records(lane.log, stale.cut, stale.end):
            identity = records.identity_of(record)
            if identity is not None:
                self._lanes.strays.keep(lane.log, Entry(_as_it_came(record), identity))
                kept += 1
        await self._lanes.strays.lane.flush()
        entry = ReturnEntry(
            log=lane.log,
            term=stale.newest,
            marker_offset=stale.cut,
            end_offset=stale.end,
            kept=kept,
            strays_log=self._lanes.strays.log,
            strays_end=self._lanes.strays.index.end,
            returned_date_time=dt.datetime.now(dt.UTC),
            returned_by=self._site,
        )
        await self._lanes.ledger.append(records.ledger(entry), ledger_key(entry))
        self._reported[lane.log] = (stale.newest, stale.cut, stale.end)
        log.error(
            "%s: %s was seized (term %d); this site's copy goes on in term %d from offset %d to %d, which is no part "
            "of the log. Its %d readings from there are kept in %s, and the copy is made anew",
            self._site,
            lane.log,
            stale.newest,
            stale.term,
            stale.cut,
            stale.end,
            kept,
            self._lanes.strays.log,
        )


def _as_it_came(record: Record) -> NewRecord:
    """A reading without what its place in this copy said: whether it is late, and from where it was drained."""
    kept = tuple(each for each in record.headers if each[0] not in (headers.LATE, headers.ORIGIN))
    return NewRecord(record.value, record.key, kept, timestamp_ms=record.timestamp_ms)
