"""What a bridge does about custody when it starts: takes up what it holds, and finishes what a crash left half done.

A grant is a marker and then a ledger entry; a crash between the two leaves a log whose last record is the marker of a
term that no ledger names. The marker holds all that the entry needs, so the site that wrote it writes the entry now.
The same is done while running as soon as an append is refused, and for logs whose entries a truncated ledger has lost:
what a marker in a log here says holds, whatever the ledgers have.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from edge.custodian import Custodian, entry_of
from edge.errors import LostCustodyError
from edge.holdings import Custody, Holdings
from edge.markers import Markers, decode_marker
from fairlead.custody import Grant
from fairlead.errors import FairleadError
from fairlead.names import parse_log
from fairlead.records.custody import Marker
from fairlead.wire.appender import Appender
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TP, LogPosition
from topologies.model import Topology

log = logging.getLogger(__name__)

_POSITIONS_AT_ONCE = 2_000
_MEND_AGAIN = 30.0  # seconds: a log whose appends are refused again sooner stays as it is


class Completion:
    """Compares the ledgers with the logs as they are here.

    Args:
        on_held: Told each log that turned out to be held here still.
    """

    def __init__(
        self,
        topology: Topology,
        holdings: Holdings,
        cluster: Cluster,
        appender: Appender,
        markers: Markers,
        custodian: Custodian,
        *,
        on_held: Callable[[str], None],
    ) -> None:
        self._topology = topology
        self._holdings = holdings
        self._site = holdings.site
        self._view = holdings.view
        self._cluster = cluster
        self._appender = appender
        self._markers = markers
        self._custodian = custodian
        self._on_held = on_held
        self._mended: dict[str, float] = {}

    async def complete(self) -> int:
        """Take over what this site holds, and write the ledger entries that a crash has left out.

        Called when the ledgers have been read and before any message is taken; returns how many entries were written.
        """
        visible = await self._cluster.topics(None, refresh=True)
        moving = self._topology.moving_streams
        mine = self._view.held_by(self._site)
        candidates = [
            topic
            for topic in visible
            if (parsed := parse_log(topic))
            and parsed.stream in moving
            and self._view.holder(topic) in (None, self._site)
        ]
        for grant in self._view.granted_to(self._site):
            self._holdings.news(grant)
        written = 0
        for first in range(0, len(candidates), _POSITIONS_AT_ONCE):
            part = [TP(topic) for topic in candidates[first : first + _POSITIONS_AT_ONCE]]
            later: list[tuple[str, LogPosition]] = []
            for tp, position in (await self._appender.positions(part)).items():
                if position is None:
                    continue
                term = self._view.term(tp.topic) or 0
                if position.term == term and tp.topic in mine:
                    self._holdings.hold(tp.topic, term)
                elif position.term > term:
                    later.append((tp.topic, position))
            written += sum(await asyncio.gather(*(self._complete_one(*each) for each in later)))
        if written:
            log.warning("%s: wrote %d ledger entries that were missing after a crash", self._site, written)
        return written

    async def recheck(self, topic: str) -> None:
        """An append was refused: find out from the log itself who holds it now. Runs as a control of its lane.

        A log whose present term is this site's, and which has nothing but this term from its marker on, was only longer
        than thought: the last append of a bridge that was killed may arrive after the next one has looked.
        """
        if self._holdings.state(topic) is not Custody.BROKEN:
            return
        try:
            position = await self._appender.renew(TP(topic))
            grant = self._view.grant(topic)
            if position is None:
                return
            if grant is None or position.term > grant.term:
                await self._complete_one(topic, position)
            elif grant.to_site == self._site and (position.term, position.marker) == (grant.term, grant.marker):
                self._mend(grant)
        except FairleadError as error:
            log.warning("%s: cannot find out what became of %s: %s", self._site, topic, error)

    def _mend(self, grant: Grant) -> None:
        now = time.monotonic()
        if now - self._mended.get(grant.log, -_MEND_AGAIN) < _MEND_AGAIN:
            return
        self._mended[grant.log] = now
        log.warning("%s: %s is whole, and goes on", self._site, grant.log)
        self._holdings.hold(grant.log, grant.term)
        self._on_held(grant.log)

    async def _complete_one(self, topic: str, position: LogPosition) -> int:
        """A log is in a later term than the ledgers know: its marker says who holds it. Gives the entries written."""
        batch = await self._markers.find(topic, position.marker)
        marker = decode_marker(batch) if batch is not None else None
        if marker is None or batch is None:
            self._holdings.broke(topic)
            log.error(
                "%s",
                LostCustodyError(
                    f"{topic} is in term {position.term}, the ledger knows term {self._view.term(topic)}, and the "
                    f"term's marker is no longer here: {self._site} keeps its readings as strays",
                    hint="wait for the other site's ledger to be replicated here",
                ),
            )
            return 0
        if self._made_here(marker):
            await self._custodian.publish(marker, position.marker)
            return 1
        if marker.event == "SEIZURE":
            return 0  # where it truly is, its site's entry tells: a copied marker may have landed elsewhere
        giver = marker.from_site if marker.from_site is not None else (marker.to_site or "")
        self._view.apply(entry_of(marker, position.marker, batch, giver))
        grant = self._view.grant(topic)
        if grant is not None:
            self._holdings.news(grant)
            if grant.to_site == self._site:  # it was taken over here, and only the entry is missing
                self._holdings.hold(topic, grant.term)
        return 0

    def _made_here(self, marker: Marker) -> bool:
        if marker.event == "SEIZURE" or marker.from_site is None:
            return marker.to_site == self._site
        return marker.from_site == self._site
