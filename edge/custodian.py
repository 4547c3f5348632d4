"""Moving the insert point of a box's log: opening and granting (docs/custody.md); ``edge.seizing`` does the rest.

A move is two appends: the marker of the next term to the box's own log, which fences every older term, then the entry
in this site's ledger, which tells everybody. A crash between the two is made good later (``edge.completion``).
Everything here is idempotent by the event's id.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import uuid
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from typing import Final

from edge import records
from edge.batching import Batcher
from edge.boxes import BoxLane
from edge.claims import Claims
from edge.errors import LostCustodyError, NotHolderError, ReplicaBehindError
from edge.holdings import Custody, Holdings
from edge.lane import Lane
from edge.lanes import LedgerKey, ledger_key
from edge.markers import Markers
from edge.patience import patiently
from edge.straybook import StrayBook
from edge.transfer import Move, Transfer, of_claim, plan
from fairlead.custody import CustodyView, Grant, SplitCustodyError
from fairlead.records.custody import ClaimEntry, CustodyEntry, Marker
from fairlead.wire.appender import Appender
from fairlead.wire.errors import BrokerError, Conflict, Fenced, Misplaced

log = logging.getLogger(__name__)

_LEDGERS: Final = "ledgers"  # all of them: one question, however many ask it


class Custodian:
    """Opens and grants the logs of containers at one site.

    Args:
        create: Creates topics that are missing and waits until they can be written; gets many at once.
        markers: Reads stored markers.
        ledger: The lane of ``custody.<site>``.
        read_ledgers: Waits until everything is known that the ledgers have here now.
        sites: Those of the topology.
    """

    def __init__(
        self,
        holdings: Holdings,
        appender: Appender,
        book: StrayBook,
        ledger: Lane[LedgerKey],
        create: Callable[[Sequence[str]], Awaitable[None]],
        markers: Markers,
        read_ledgers: Callable[[], Awaitable[None]],
        *,
        sites: Container[str],
    ) -> None:
        self._holdings = holdings
        self._sites = sites
        self.claims = Claims(holdings.site, holdings.view)
        self._site = holdings.site
        self._view: CustodyView = holdings.view
        self._appender = appender
        self._book = book
        self._ledger = ledger
        self._create = create
        self._creating: Batcher[str, None] = Batcher(self._create_many, moment=0.05)
        self._markers = markers
        self._read_ledgers = read_ledgers
        self._reading: Batcher[str, None] = Batcher(self._read_all)
        self._writing: set[LedgerKey] = set()

    async def close(self) -> None:
        await self._reading.close()
        await self._creating.close()

    def is_writing(self, entry: CustodyEntry) -> bool:
        """Whether an entry of this site's ledger is being written by this process now."""
        return ledger_key(entry) in self._writing

    def is_outside(self, topic: str) -> bool:
        """Whether the box of a log has left the system."""
        grant = self._view.grant(topic)
        return grant is not None and grant.to_site is None

    def has_claimed(self, transfer: Transfer) -> bool:
        """Whether the site that the box of a log has left was asked for it already."""
        grant = self._view.grant(transfer.log)
        return grant is not None and self.claims.is_made(transfer.log, grant.term, transfer.event_id)

    def plan(self, transfer: Transfer) -> Move:
        """What a transfer asks for, given what is known now; raises as ``edge.transfer.plan``."""
        return plan(transfer, self._holdings, dt.datetime.now(dt.UTC), self._sites)

    async def decide(self, transfer: Transfer) -> Move:
        """As ``plan``; before a log is opened, the ledgers are read to their ends: that it is open elsewhere may be
        here already and not be known yet. Many that are asked about at once are answered by one reading.

        Raises:
            NotHolderError: as ``plan``.
        """
        move = self.plan(transfer)
        if move in (Move.OPEN, Move.REOPEN, Move.CLAIM):
            await self._reading.ask(_LEDGERS)
            move = self.plan(transfer)
        return move

    async def perform(self, transfer: Transfer, lane: BoxLane) -> Move:
        """Carry out a transfer. Runs as a control of the box's lane, so nothing of this log is under way here.

        Raises:
            NotHolderError: as ``plan``.
            ReplicaBehindError: the log's past is not all here.
            LostCustodyError: the log has a later term than the ledger knows.
        """
        move = self.plan(transfer)
        with self._lost_by(lane):
            match move:
                case Move.OPEN:
                    await self._open(transfer, lane)
                case Move.REOPEN:
                    await self._reopen(transfer, lane)
                case Move.GRANT:
                    await self._grant(transfer, lane)
                case Move.CLAIM:
                    await self._claim(transfer)
                case Move.NOTHING | Move.WAIT:
                    pass
        return move

    @contextlib.contextmanager
    def _lost_by(self, lane: BoxLane) -> Iterator[None]:
        """A log whose next term cannot be opened here is not this site's."""
        try:
            yield
        except (Fenced, Misplaced, Conflict) as error:
            lane.lose(error)
            raise LostCustodyError(
                f"{self._site} cannot open the next term of {lane.log}: {error.what}",
                hint="the log was continued elsewhere; compare the copies with 'fairlead audit'",
                log=lane.log,
            ) from error

    async def answer(self, lane: BoxLane) -> bool:
        """Give a log to the site that claims it, if any does still. Runs as a control of the box's lane; raises as
        ``perform``."""
        claim = self.claims.next(lane.log)
        if claim is None:
            return False
        with self._lost_by(lane):
            await self._reopen(of_claim(claim), lane)
        return True

    # -- the moves

    async def _open(self, transfer: Transfer, lane: BoxLane) -> None:
        await self._creating.ask(lane.log)
        if await self._appender.position(lane.tp) is not None:
            raise NotHolderError(lane.log, self._site, None, doing="open a log that already has records")
        marker = self._new_marker(transfer, term=1, previous=None)
        offset = await self.open_term(lane, marker, expected_end=0)
        lane.opened()
        await self.publish(marker, offset, ordered_by=transfer.ordered_by)

    async def _claim(self, transfer: Transfer) -> None:
        """Ask the site that a box has left, in the own ledger."""
        grant = self._known(transfer.log)
        if grant.from_site is None or self.has_claimed(transfer):
            return
        claim = ClaimEntry(
            log=transfer.log,
            term=grant.term,
            left_site=grant.from_site,
            event_id=transfer.event_id,
            event_date_time=transfer.at,
            claimed_date_time=dt.datetime.now(dt.UTC),
            claimed_by=self._site,
        )
        await self._ledger.append(records.ledger(claim), ledger_key(claim))
        self.claims.learn(claim)

    async def _reopen(self, transfer: Transfer, lane: BoxLane) -> None:
        """A box that had left the system here comes in again, here or at another site."""
        grant = self._known(lane.log)
        try:
            position = await self._appender.adopt(lane.tp, term=grant.term)
        except (Misplaced, BrokerError) as error:
            raise ReplicaBehindError(
                f"{self._site} cannot open {lane.log} again: its copy does not end where the box left the system "
                f"({error.what})",
                hint="it is done as soon as the copy is complete",
                log=lane.log,
            ) from error
        marker = self._new_marker(transfer, term=grant.term + 1, previous=grant)
        here = transfer.to_site == self._site
        offset = await self.open_term(lane, marker, expected_end=position.end, hold=here)
        lane.unload()
        await self.publish(marker, offset, ordered_by=transfer.ordered_by)

    async def _grant(self, transfer: Transfer, lane: BoxLane) -> None:
        await lane.prepare()  # what was kept for this log while it was elsewhere belongs before the marker
        grant = self._known(lane.log)
        # Asked once more: nothing but this stops the marker of a new term, which a broker takes at any end.
        if self._holdings.state(lane.log) is not Custody.HELD or grant.to_site != self._site:
            raise NotHolderError(lane.log, self._site, grant.to_site, doing="grant custody")
        position = await self._appender.position(lane.tp)
        marker = self._new_marker(transfer, term=grant.term + 1, previous=grant)
        end = position.end if position is not None else None
        offset = await self.open_term(lane, marker, expected_end=end, hold=False)
        lane.unload()
        await self.publish(marker, offset, ordered_by=transfer.ordered_by)

    async def open_term(self, lane: BoxLane, marker: Marker, *, expected_end: int | None, hold: bool = True) -> int:
        """Append a marker; gives its offset. It may land later than expected, where another writer was faster at that
        moment: it fences all the same, and what came before it is part of the log."""
        try:
            appended = await self._appender.open_term(
                lane.tp, marker.term, records.marker(marker), expected_end=expected_end, hold=hold
            )
        except Misplaced as error:
            landed = error.fields.get("base_offset")
            if not isinstance(landed, int):
                raise
            log.warning("%s: marker %d of %s landed at offset %d", self._site, marker.term, lane.log, landed)
            if hold:
                await self._appender.renew(lane.tp)
            return landed
        return appended.base_offset

    def _known(self, topic: str) -> Grant:
        grant = self._view.grant(topic)
        if grant is None:
            raise NotHolderError(topic, self._site, None, doing="pass it on")
        return grant

    def _new_marker(self, transfer: Transfer, *, term: int, previous: Grant | None) -> Marker:
        carried = previous is not None and previous.drained_since != previous.marker
        return Marker(
            log=transfer.log,
            term=term,
            from_site=None if transfer.event == "GTIN" and transfer.to_site == self._site else self._site,
            to_site=transfer.to_site,
            event=transfer.event,
            event_id=transfer.event_id,
            event_date_time=transfer.at,
            nonce=uuid.uuid4().hex,
            drained=self._book.drained(transfer.log),
            drained_since=previous.drained_since if carried and previous is not None else None,
            reason=transfer.reason,
        )

    async def publish(self, marker: Marker, offset: int, *, ordered_by: str = "") -> None:
        """Write the ledger entry of a marker that is stored, and let this site's own view know."""
        entry = entry_of(marker, offset, await self._markers.batch(marker.log, offset), self._site, ordered_by)
        key = ledger_key(entry)
        self._writing.add(key)
        try:
            await self._ledger.append(records.ledger(entry), key)
            self._view.apply(entry)
        except SplitCustodyError as error:
            self._holdings.broke(entry.log)
            log.error("%s", error)
            return
        finally:
            self._writing.discard(key)
        if self._view.term(entry.log) != entry.term:
            return  # seized meanwhile: what the newer term made of the log stays
        self._book.passed_on(entry.log, entry.drained)
        if entry.to_site == self._site:
            self._holdings.hold(entry.log, entry.term)
        else:
            self._holdings.gave(entry.log)

    async def _read_all(self, asked: list[str]) -> Mapping[str, None]:
        await patiently(self._read_ledgers, f"{self._site}: reading the ledgers before a log is opened")
        return dict.fromkeys(asked)

    async def _create_many(self, topics: list[str]) -> Mapping[str, None]:
        await self._create(topics)
        return dict.fromkeys(topics)


def entry_of(marker: Marker, offset: int, batch: bytes, site: str, ordered_by: str = "") -> CustodyEntry:
    """The ledger entry of a marker that is stored at ``offset`` as ``batch``."""
    return CustodyEntry(
        log=marker.log,
        term=marker.term,
        marker_offset=offset,
        from_site=marker.from_site,
        to_site=marker.to_site,
        event=marker.event,
        event_id=marker.event_id,
        event_date_time=marker.event_date_time,
        granted_date_time=dt.datetime.now(dt.UTC),
        granted_by=site,
        marker_batch=batch,
        drained=marker.drained,
        drained_since=marker.drained_since,
        ordered_by=ordered_by,
        reason=marker.reason,
    )
