"""What a bridge does about custody when it starts: takes up what it holds, and finishes what a crash left half done.

A grant is a marker and then a ledger entry; a crash between the two leaves a log whose last record is the marker of a
term that no ledger names. The marker holds all that the entry needs, so the site that wrote it writes the entry now.
"""

from __future__ import annotations

import logging

from edge.custodian import Custodian
from edge.errors import LostCustodyError
from edge.holdings import Holdings
from edge.markers import Markers, decode_marker
from fairlead.names import parse_log
from fairlead.records.custody import Marker
from fairlead.wire.appender import Appender
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TP, LogPosition
from topologies.model import InsertPoint, Topology

log = logging.getLogger(__name__)

_POSITIONS_AT_ONCE = 2_000


class Completion:
    """Compares the ledgers with the logs as they are here."""

    def __init__(
        self,
        topology: Topology,
        holdings: Holdings,
        cluster: Cluster,
        appender: Appender,
        markers: Markers,
        custodian: Custodian,
    ) -> None:
        self._topology = topology
        self._holdings = holdings
        self._site = holdings.site
        self._view = holdings.view
        self._cluster = cluster
        self._appender = appender
        self._markers = markers
        self._custodian = custodian

    async def complete(self) -> int:
        """Take over what this site holds, and write the ledger entries that a crash has left out.

        Called when the ledgers have been read and before any message is taken; returns how many entries were written.
        """
        visible = await self._cluster.topics(None, refresh=True)
        moving = {name for name, stream in self._topology.streams.items() if stream.insert_point is InsertPoint.MOVES}
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
            for tp, position in (await self._appender.positions(part)).items():
                if position is None:
                    continue
                term = self._view.term(tp.topic) or 0
                if position.term == term and tp.topic in mine:
                    self._holdings.hold(tp.topic, term)
                elif position.term > term:
                    written += await self._complete_one(tp.topic, position)
        if written:
            log.warning("%s: wrote %d ledger entries that were missing after a crash", self._site, written)
        return written

    async def _complete_one(self, topic: str, position: LogPosition) -> int:
        """Finish a grant whose marker is the log's last record, if this site made it."""
        held = topic in self._view.held_by(self._site)
        if position.end == position.marker + 1:
            marker = decode_marker(await self._markers.batch(topic, position.marker))
            if marker is not None and self._made_here(marker):
                await self._custodian.publish(marker, position.marker)
                return 1
        if held:
            self._holdings.broke(topic)
            log.error(
                "%s",
                LostCustodyError(
                    f"{topic} is in term {position.term}, the ledger knows term {self._view.term(topic)}: another site "
                    f"continued it, so {self._site} keeps its readings as strays",
                    hint="wait for the other site's ledger to be replicated here",
                ),
            )
        return 0

    def _made_here(self, marker: Marker) -> bool:
        return (marker.to_site if marker.from_site is None else marker.from_site) == self._site
