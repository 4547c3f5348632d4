"""Moving the insert point of a box's log: opening at a gate-in, granting at LOAD, DISC and GTOT (design, section 7).

A grant is two appends: the marker of the next term to the box's own log, which fences this site, then the entry in this
site's ledger, which tells everybody. A crash between the two is made good at the next start (``edge.completion``).
Everything here is idempotent by the event's id. Seizing the log of a lost holder, and telling a zombie of its fencing,
are not built yet; where they would be needed an error says so.
"""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum

from edge import records
from edge.batching import Batcher
from edge.boxes import BoxLane
from edge.errors import LostCustodyError, NotHolderError, ReplicaBehindError
from edge.holdings import Custody, Holdings
from edge.lane import Lane
from edge.lanes import LedgerKey
from edge.markers import Markers
from edge.messages import EventMessage
from edge.strays import Strays
from fairlead.custody import CustodyView, Grant
from fairlead.records.custody import CustodyEntry, CustodyEvent, Marker
from fairlead.wire.appender import Appender
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import BrokerError, Conflict, Fenced, Misplaced

log = logging.getLogger(__name__)


class Move(Enum):
    """What an event asks of custody at this site."""

    NOTHING = "nothing"
    OPEN = "open"
    REOPEN = "reopen"
    GRANT = "grant"
    WAIT = "wait"


class Custodian:
    """Opens and grants the logs of containers at one site.

    Args:
        create: Creates topics that are missing and waits until they can be written; gets many at once.
        markers: Reads stored markers.
        ledger: The lane of ``custody.<site>``.
    """

    def __init__(
        self,
        holdings: Holdings,
        cluster: Cluster,
        appender: Appender,
        strays: Strays,
        ledger: Lane[LedgerKey],
        create: Callable[[Sequence[str]], Awaitable[None]],
        markers: Markers,
    ) -> None:
        self._holdings = holdings
        self._site = holdings.site
        self._view: CustodyView = holdings.view
        self._cluster = cluster
        self._appender = appender
        self._strays = strays
        self._ledger = ledger
        self._create = create
        self._creating: Batcher[str, None] = Batcher(self._create_many, moment=0.05)
        self._markers = markers

    async def close(self) -> None:
        await self._creating.close()

    def plan(self, message: EventMessage) -> Move:
        """What the event asks for, given what is known now.

        Raises:
            NotHolderError: only the holder may do this, and this site is not the holder.
        """
        topic, event = _log_of(message), message.event
        grant = self._view.grant(topic)
        if grant is not None and grant.event_id == event.metadata.event_id:
            return Move.NOTHING  # done before; the message came again
        state = self._holdings.state(topic)
        code = event.payload.equipment_event_type_code
        if code == "GTIN":
            if grant is None:
                return Move.OPEN
            if state in (Custody.HELD, Custody.INCOMING):
                return Move.NOTHING
            if grant.to_site is None:
                return Move.REOPEN
        elif state is Custody.HELD:
            return Move.NOTHING if message.to_site == self._site else Move.GRANT
        elif state is Custody.INCOMING:
            return Move.WAIT
        raise NotHolderError(topic, self._site, self._view.holder(topic), doing=f"carry out {code}")

    async def perform(self, message: EventMessage, lane: BoxLane) -> Move:
        """Carry out an event. Runs as a control of the box's lane, so nothing of this log is under way here.

        Raises:
            NotHolderError: as ``plan``.
            ReplicaBehindError: the log's past is not all here.
            LostCustodyError: the log has a later term than the ledger knows.
        """
        move = self.plan(message)
        try:
            match move:
                case Move.OPEN:
                    await self._open(message, lane)
                case Move.REOPEN:
                    await self._reopen(message, lane)
                case Move.GRANT:
                    await self._grant(message, lane)
                case Move.NOTHING | Move.WAIT:
                    pass
        except (Fenced, Misplaced, Conflict) as error:
            self._holdings.broke(lane.log)
            lane.unload()
            raise LostCustodyError(
                f"{self._site} cannot open the next term of {lane.log}: {error.what}",
                hint="the log was continued elsewhere; compare the copies with 'fairlead audit'",
                log=lane.log,
            ) from error
        return move

    # -- the moves

    async def _open(self, message: EventMessage, lane: BoxLane) -> None:
        await self._creating.ask(lane.log)
        if await self._appender.position(lane.tp) is not None:
            raise NotHolderError(lane.log, self._site, None, doing="open a log that already has records")
        marker = self._new_marker(message, term=1, previous=None)
        appended = await self._appender.open_term(lane.tp, 1, records.marker(marker), expected_end=0)
        lane.opened()
        await self.publish(marker, appended.base_offset)

    async def _reopen(self, message: EventMessage, lane: BoxLane) -> None:
        """A box that had left the system comes in again, perhaps at another site than it left."""
        grant = self._view.grant(lane.log)
        if grant is None:
            raise NotHolderError(lane.log, self._site, None, doing="open it again")
        try:
            position = await self._appender.adopt(lane.tp, term=grant.term)
        except (Misplaced, BrokerError) as error:
            raise ReplicaBehindError(
                f"{self._site} cannot open {lane.log} again: its copy does not end where the box left the system "
                f"({error.what})",
                hint="wait for replication, then publish the gate-in again",
                log=lane.log,
            ) from error
        marker = self._new_marker(message, term=grant.term + 1, previous=grant)
        appended = await self._appender.open_term(
            lane.tp, marker.term, records.marker(marker), expected_end=position.end
        )
        lane.unload()
        await self.publish(marker, appended.base_offset)

    async def _grant(self, message: EventMessage, lane: BoxLane) -> None:
        await lane.prepare()  # what was kept for this log while it was elsewhere belongs before the marker
        grant = self._view.grant(lane.log)
        if grant is None or self._holdings.state(lane.log) is not Custody.HELD:
            raise NotHolderError(lane.log, self._site, self._view.holder(lane.log), doing="grant custody")
        position = await self._appender.position(lane.tp)
        marker = self._new_marker(message, term=grant.term + 1, previous=grant)
        appended = await self._appender.open_term(
            lane.tp,
            marker.term,
            records.marker(marker),
            expected_end=position.end if position is not None else None,
            hold=False,
        )
        lane.unload()
        await self.publish(marker, appended.base_offset)

    def _new_marker(self, message: EventMessage, *, term: int, previous: Grant | None) -> Marker:
        event, topic = message.event, _log_of(message)
        code = event.payload.equipment_event_type_code
        drained = dict(previous.drained) if previous is not None else {}
        if self._strays.index.ever_had(topic):
            drained = {**drained, self._strays.log: self._strays.index.end}
        return Marker(
            log=topic,
            term=term,
            from_site=None if code == "GTIN" else self._site,
            to_site=message.to_site,
            event=_custody_event(code),
            event_id=event.metadata.event_id,
            event_date_time=event.payload.event_date_time,
            nonce=uuid.uuid4().hex,
            drained=drained,
        )

    async def publish(self, marker: Marker, offset: int) -> None:
        """Write the ledger entry of a marker that is stored, and let this site's own view know."""
        entry = CustodyEntry(
            log=marker.log,
            term=marker.term,
            marker_offset=offset,
            from_site=marker.from_site,
            to_site=marker.to_site,
            event=marker.event,
            event_id=marker.event_id,
            event_date_time=marker.event_date_time,
            granted_date_time=dt.datetime.now(dt.UTC),
            granted_by=self._site,
            marker_batch=await self._markers.batch(marker.log, offset),
            drained=marker.drained,
            drained_since=marker.drained_since,
            reason=marker.reason,
        )
        await self._ledger.append(records.ledger(entry), (entry.log, entry.term))
        self._view.apply(entry)
        if entry.to_site == self._site:
            self._holdings.hold(entry.log, entry.term)
        else:
            self._holdings.gave(entry.log)

    async def _create_many(self, topics: list[str]) -> Mapping[str, None]:
        await self._create(topics)
        return dict.fromkeys(topics)


def _log_of(message: EventMessage) -> str:
    if message.log is None:
        raise ValueError("a transport event moves no custody")
    return message.log


def _custody_event(code: str | None) -> CustodyEvent:
    match code:
        case "GTIN" | "GTOT" | "LOAD" | "DISC":
            return code
        case _:
            return "HAND"
