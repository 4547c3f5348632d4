"""Markers and the entries that tell of them: a bridge of the model writes both, and makes good what a crash left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fairlead.custody import Grant
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, Marker
from tests.unit.custody.disk import Died, Move, Rec, Refused, moment

if TYPE_CHECKING:
    from tests.unit.custody.bridge import Bridge

Steps = Iterator[None]
NO_OFFSET: Final = -1


class Entries:
    """The part of a bridge that writes markers and entries."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.world = bridge.world
        self.faults = bridge.faults
        self.disk = bridge.disk
        self.site = bridge.site

    def publish(self, move: Move, term: int, expected: int, before: Grant | None) -> Steps:
        """Append the marker and the entry. A marker that lands later than planned (sequence 0 is taken anywhere) is one
        all the same: it fences."""
        bridge, log = self.bridge, move.log
        drained, since = bridge.drained(log), before.drained_since if before is not None else None
        if move.kind == "SEIZURE" and (newest := bridge.copy(log).newest_marker()) is not None:
            if not self.faults.seizure_drained_by_ledger:
                drained = newest[1].drained
            since = newest[0] if newest[1].drained_since is None else newest[1].drained_since
        marker = Marker(
            log=log,
            term=term,
            from_site=self._from(move, before),
            to_site=move.to_site,
            event=move.kind,
            event_id=move.event_id,
            event_date_time=moment(move.at),
            nonce=self.world.nonce(),
            drained={} if self.faults.drain_repeats else drained,
            drained_since=since,
        )
        self.world.markers[log, term] = marker
        try:
            offset = self.world.append(self.disk, log, Rec(term, 0, marker), expected)
        except Refused:
            bridge.broke(log)
            return
        if not self.faults.appends_after_granting:
            bridge.unload(log)
        yield
        yield from self.enter(marker, offset)

    def _from(self, move: Move, before: Grant | None) -> str | None:
        if move.kind == "GTIN" and move.to_site != self.site:
            return self.site  # an answer to a claim
        return before.to_site if before is not None else None

    def enter(self, marker: Marker, offset: int) -> Steps:
        bridge, log = self.bridge, marker.log
        entry = CustodyEntry(
            log=log,
            term=marker.term,
            marker_offset=NO_OFFSET if self.faults.entry_without_offset and marker.to_site else offset,
            from_site=marker.from_site,
            to_site=marker.to_site,
            event=marker.event,
            event_id=marker.event_id,
            event_date_time=marker.event_date_time,
            granted_date_time=moment(self.world.clock),
            granted_by=self.site,
            marker_batch=b"",
            drained=marker.drained,
            drained_since=marker.drained_since,
        )
        self.write(entry)
        grant = bridge.view.grant(log)
        if grant is not None and grant.term == marker.term:  # else: seized meanwhile, and this was no news
            if marker.to_site == self.site:
                bridge.learn(entry, grant)
                bridge.hold(log, marker.term)
                self.resume(log)
            elif not (self.faults.appends_after_granting and bridge.holds(log)):
                bridge.holdings.gave(log)
        yield

    def write(self, entry: LedgerEntry) -> None:
        bridge = self.bridge
        if len(self.disk.ledgers[self.site]) != bridge.ledger_end:
            raise Died("another bridge writes the own ledger")
        self.disk.take_entry(self.site, entry)
        self.world.changes += 1
        bridge.ledger_end += 1
        if isinstance(entry, CustodyEntry):
            self.world.entered(entry)
            bridge.apply(entry, at_start=entry.to_site == self.site or self.faults.appends_after_granting)
        elif isinstance(entry, ClaimEntry):
            bridge.apply(entry, at_start=False)

    def complete(self, log: str) -> Steps:
        """Compare a log with the ledgers: write the entry of a marker made here, take up what is held."""
        bridge, copy = self.bridge, self.bridge.copy(log)
        if not copy.records:
            return
        grant, last = bridge.view.grant(log), copy.records[-1]
        term = grant.term if grant is not None else 0
        if last.term > term:
            if isinstance(last.body, Marker) and self._made_here(last.body):
                yield from self.enter(last.body, len(copy.records) - 1)
        elif (
            grant is not None
            and grant.to_site == self.site
            and bridge.starting is not None
            and last.term == term
            and len(copy.records) > grant.marker >= 0
            and copy.records[grant.marker].term == term
        ):
            bridge.hold(log, term)

    def _made_here(self, marker: Marker) -> bool:
        if marker.event == "SEIZURE":
            return marker.to_site == self.site and not self.faults.completes_held_only
        return (marker.to_site if marker.from_site is None else marker.from_site) == self.site

    def resume(self, log: str) -> None:
        """A log is held: let what waits for it come in."""
        raise NotImplementedError
