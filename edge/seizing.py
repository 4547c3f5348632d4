"""Seizing: taking a box's log from a holder that is lost (docs/custody.md)."""

from __future__ import annotations

import uuid

from edge.boxes import BoxLane
from edge.custodian import Custodian
from edge.errors import LostCustodyError, SeizureError
from edge.holdings import Custody, Holdings
from edge.markers import Markers, decode_marker
from edge.transfer import Transfer
from fairlead.custody import SEIZING_TERMS, Grant
from fairlead.lineage import stale_copies
from fairlead.records.custody import Marker
from fairlead.wire.appender import Appender
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import LAST_TERM
from fairlead.wire.errors import BrokerError, Conflict, Fenced, Misplaced
from fairlead.wire.types import LogPosition


class Seizer:
    """Seizes logs for one site."""

    def __init__(
        self, holdings: Holdings, cluster: Cluster, appender: Appender, markers: Markers, custodian: Custodian
    ) -> None:
        self._holdings = holdings
        self._site = holdings.site
        self._view = holdings.view
        self._cluster = cluster
        self._appender = appender
        self._markers = markers
        self._custodian = custodian

    async def seize(self, transfer: Transfer, lane: BoxLane) -> None:
        """Take a log from a holder that is lost: open a term at the end of this site's own copy.

        Raises:
            SeizureError: nobody ever opened the log, this site holds it, or its copy has nothing to go on from.
            LostCustodyError: the copy grew at that moment; the order may be given again.
        """
        grant = self._seizable(lane.log)
        position, last = await self._copy_of(lane)
        if last is not None and last.event == "SEIZURE" and last.term > grant.term:
            if last.to_site != self._site:  # its true offset is told by that site's entry only, not by a copy
                raise SeizureError(
                    f"{last.to_site} has seized {lane.log} (term {last.term}), and its ledger is not here yet",
                    hint=f"wait for the ledger of {last.to_site}: fairlead custody show {lane.log}",
                    log=lane.log,
                )
            # A crash has left out the entry of an earlier seizure, perhaps of this very order. Without it nobody would
            # know that histories end there, once another marker is on top of it.
            await self._custodian.publish(last, position.marker, ordered_by=transfer.ordered_by)
            if last.event_id == transfer.event_id:
                return
            grant = self._seizable(lane.log)
        if (stale := (await stale_copies(self._cluster, self._view, [lane.log])).get(lane.log)) is not None:
            raise SeizureError(
                f"the copy of {lane.log} at {self._site} goes on from offset {stale.cut} in a term that an earlier "
                "seizure has ended",
                hint="wait until the copy has been made anew: fairlead status",
                log=lane.log,
            )
        term = max(grant.term, position.term) + SEIZING_TERMS
        if term > LAST_TERM:
            raise SeizureError(f"{lane.log} has no terms left: {term} would be above {LAST_TERM}", log=lane.log)
        marker = Marker(
            log=lane.log,
            term=term,
            from_site=grant.to_site,
            to_site=self._site,
            event=transfer.event,
            event_id=transfer.event_id,
            event_date_time=transfer.at,
            nonce=uuid.uuid4().hex,
            # How far the lost holder had drained since the last marker in this copy, nobody here knows.
            drained=last.drained if last is not None else {},
            drained_since=_since(last, position.marker) if last is not None else 0,
            reason=transfer.reason,
        )
        try:
            offset = await self._custodian.open_term(lane, marker, expected_end=position.end)
        except (Fenced, Misplaced, Conflict) as error:
            raise LostCustodyError(
                f"{self._site} could not seize {lane.log}: its copy has just grown ({error.what})",
                hint="give the order again",
                log=lane.log,
            ) from error
        lane.unload()
        await self._custodian.publish(marker, offset, ordered_by=transfer.ordered_by)

    def _seizable(self, topic: str) -> Grant:
        """The newest grant of a log that somebody else holds."""
        grant = self._view.grant(topic)
        if grant is None:
            raise SeizureError(f"no ledger at {self._site} knows {topic}", log=topic)
        if self._holdings.state(topic) is Custody.HELD:
            raise SeizureError(f"{self._site} holds {topic} already", log=topic)
        return grant

    async def _copy_of(self, lane: BoxLane) -> tuple[LogPosition, Marker | None]:
        """Where this site's copy ends, and the newest marker in it (None where it is no longer stored)."""
        try:
            position = await self._appender.renew(lane.tp)
        except BrokerError as error:
            raise SeizureError(
                f"{self._site} has no copy of {lane.log} that it could go on from: {error.what}",
                hint="seize it at a site that has one, see 'fairlead custody show'",
                log=lane.log,
            ) from error
        if position is None or position.term < 1:
            raise SeizureError(
                f"the copy of {lane.log} at {self._site} holds no record of any term",
                hint="seize it at a site that has one, see 'fairlead custody show'",
                log=lane.log,
            )
        batch = await self._markers.find(lane.log, position.marker)
        return position, decode_marker(batch) if batch is not None else None


def _since(last: Marker, offset: int) -> int:
    return offset if last.drained_since is None else last.drained_since
