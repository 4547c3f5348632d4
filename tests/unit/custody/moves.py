"""What a bridge of the model does to move custody: open, grant, take, seize, return."""

from __future__ import annotations

import datetime as dt
from functools import partial

from edge.holdings import Custody
from edge.messages import Identity
from edge.repeats import Verdict
from fairlead.custody import SEIZING_TERMS, Grant
from fairlead.records.custody import ClaimEntry, Marker, RefusalEntry, ReturnEntry
from tests.unit.custody.disk import START, Message, Move, Rec, Stray, Violation, moment
from tests.unit.custody.entries import NO_OFFSET, Entries, Steps


class Moves(Entries):
    """When a bridge moves custody, and what it does then."""

    # -- looking, each time the ledgers were followed

    def look(self, log: str) -> bool:
        """Take over, return, drain, and obey orders; True when something was begun."""
        bridge = self.bridge
        begun = self._take(log)
        if self._unreturned(log) is not None:
            begun |= bridge.control(log, "return", partial(self._return, log))
        if bridge.holds(log) and self._strays_came(log):
            begun |= bridge.control(log, "held", partial(self._held, log))
        if bridge.claims.next(log) is not None and self._ends_outside(log):
            begun |= bridge.control(log, "claim", partial(self._answer, log))
        if self._coming_in(log) is not None:
            begun |= bridge.control(log, "in", partial(self._come_in_later, log))
        for order in self.disk.orders:
            if order.log == log and order.event_id not in self.disk.answered:
                begun |= bridge.control(log, order.event_id, partial(self._order, order))
        return begun

    def resume(self, log: str) -> None:
        """After a start: what is held is appended to, and what waits comes in."""
        if self.bridge.holds(log):
            self.bridge.control(log, "held", partial(self._held, log))

    def _take(self, log: str) -> bool:
        bridge = self.bridge
        grant = bridge.view.grant(log)
        if grant is None or bridge.holdings.state(log) is not Custody.INCOMING:
            return False
        copy = bridge.copy(log)
        if grant.marker == NO_OFFSET:
            self._guess(log, grant)
            return True
        if len(copy.records) <= grant.marker:
            return False
        if copy.records[grant.marker].term != grant.term or copy.records[-1].term != grant.term:
            if self.faults.breaks_stale_incoming:
                bridge.holdings.broke(log)
            return False  # the copy is stale: it must be returned first
        bridge.hold(log, grant.term)
        self.world.changes += 1
        bridge.control(log, "held", partial(self._held, log))
        return True

    def _guess(self, log: str, grant: Grant) -> None:
        copy = self.bridge.copy(log)
        if not copy.records or copy.records[-1].term < grant.term:
            self.world.append(self.disk, log, Rec(grant.term, 0, self.world.markers[log, grant.term]), None)
        self.bridge.hold(log, grant.term)

    def _strays_came(self, log: str) -> bool:
        drained = self.bridge.drained(log)
        return any(
            stray.log == log and isinstance(stray.body, Identity)
            for site, strays in self.disk.strays.items()
            for stray in strays[drained.get(site, 0) :]
        )

    def _held(self, log: str) -> Steps:
        """Custody is here: strays first, then the events that have waited for it."""
        bridge = self.bridge
        yield from bridge.drain(log)
        for move in sorted(bridge.waiting.get(log, ()), key=lambda each: each.at):
            if not bridge.holds(log):
                return
            if not self.is_settled(move):
                if bridge.overtaken(move) or move.kind == "GTIN":  # it is in already
                    self._dead_letter(move)
                else:
                    yield from self._grant(move)
            if self.is_settled(move) and move in bridge.waiting.get(log, ()):
                bridge.waiting[log].remove(move)
            yield

    # -- events and orders

    def is_settled(self, move: Move) -> bool:
        """Whether this site has carried out or refused an event for good: its ledger or its dead letters tell."""
        return move.event_id in self.disk.answered or move.event_id in self.disk.letters

    def event(self, message: Message, move: Move) -> Steps:
        bridge, log = self.bridge, move.log
        if move.kind == "GTIN":
            bridge.catch_up()  # what is in the ledgers here must not be opened again
        grant = bridge.view.grant(log)
        if self.is_settled(move) or move in bridge.waiting.get(log, ()):
            pass
        elif move.kind == "GTIN":
            if grant is None and not bridge.copy(log).records:
                yield from self.publish(move, 1, 0, None)
            elif grant is not None and grant.to_site != self.site and not bridge.overtaken(move):
                if grant.to_site is None:
                    yield from self._come_in(move, grant)
                if not self.is_settled(move):
                    yield from bridge.keep(Stray(log, move))
            if not self.is_settled(move) and move not in bridge.waiting.get(log, ()):
                self._dead_letter(move)
        elif bridge.holds(log) and bridge.overtaken(move):
            self._dead_letter(move)
        else:
            if bridge.holds(log):
                yield from self._grant(move)
            if not self.is_settled(move):
                yield from bridge.keep(Stray(log, move))
        self.world.acknowledge(bridge, message)

    # -- a box that has left comes in

    def _coming_in(self, log: str) -> Move | None:
        """Of the gate-ins that wait here, the oldest, if there is something to do about it: the box is outside."""
        bridge = self.bridge
        grant = bridge.view.grant(log)
        if grant is None or grant.to_site is not None:
            return None
        waiting = [each for each in bridge.waiting.get(log, ()) if each.kind == "GTIN" and not self.is_settled(each)]
        move = min((each for each in waiting if not bridge.overtaken(each)), key=lambda each: each.at, default=None)
        if move is None:
            return None
        if self._is_opened_here(grant):
            return move if self._ends_outside(log) else None
        return None if bridge.claims.is_made(log, grant.term, move.event_id) else move

    def _come_in_later(self, log: str) -> Steps:
        move, grant = self._coming_in(log), self.bridge.view.grant(log)
        if move is not None and grant is not None:
            yield from self._come_in(move, grant)

    def _come_in(self, move: Move, grant: Grant) -> Steps:
        """Open the next term here if the box left here; else claim the log of the site that it left."""
        bridge, log = self.bridge, move.log
        if self._is_opened_here(grant):
            if self._ends_outside(log):
                yield from self.publish(move, grant.term + 1, len(bridge.copy(log).records), grant)
        elif not bridge.claims.is_made(log, grant.term, move.event_id):
            self.write(
                ClaimEntry(
                    log=log, term=grant.term, left_site=grant.from_site or "", event_id=move.event_id,
                    event_date_time=moment(move.at), claimed_date_time=moment(self.world.clock), claimed_by=self.site,
                )
            )  # fmt: skip
            yield

    def _answer(self, log: str) -> Steps:
        """Give the log of a box that left here to the site that claims it."""
        bridge = self.bridge
        claim, grant = bridge.claims.next(log), bridge.view.grant(log)
        if claim is None or grant is None or not self._ends_outside(log):
            return
        at = (claim.event_date_time - START) // dt.timedelta(seconds=1)
        yield
        move = Move(claim.event_id, "GTIN", log, claim.claimed_by, at)
        yield from self.publish(move, grant.term + 1, len(bridge.copy(log).records), grant)

    def _is_opened_here(self, grant: Grant) -> bool:
        return grant.from_site == self.site or self.faults.opens_where_it_comes_in

    def _ends_outside(self, log: str) -> bool:
        """Whether the copy here ends with the marker of the gate-out."""
        copy, grant = self.bridge.copy(log), self.bridge.view.grant(log)
        return grant is not None and len(copy.records) == grant.marker + 1 and copy.records[-1].term == grant.term

    # -- orders

    def _order(self, order: Move) -> Steps:
        if order.event_id in self.disk.answered:
            return
        bridge = self.bridge
        if not bridge.overtaken(order):
            if order.kind == "SEIZURE":
                yield from self._seize(order)
            elif bridge.holds(order.log) and order.to_site != self.site:
                yield from self._grant(order)
        if order.event_id not in self.disk.answered:
            self.write(
                RefusalEntry(
                    log=order.log, order_id=order.event_id, code="", reason="", refused_by=self.site,
                    refused_date_time=moment(self.world.clock),
                )
            )  # fmt: skip
            yield

    def _dead_letter(self, move: Move) -> None:
        self.disk.letters.add(move.event_id)
        self.world.changes += 1

    # -- grants and seizures

    def _grant(self, move: Move) -> Steps:
        """Drain, then marker, then entry; without the marker when the append is refused."""
        bridge, log = self.bridge, move.log
        yield from bridge.drain(log)
        grant = bridge.view.grant(log)
        if grant is None or grant.to_site != self.site or not bridge.holds(log):
            return
        yield
        if bridge.holds(log):
            yield from self.publish(move, grant.term + 1, bridge.positions[log][0], grant)

    def _seize(self, order: Move) -> Steps:
        bridge, log = self.bridge, order.log
        if not self.faults.seizes_on_unknown:
            yield from self._enter_seizures(log)
            if order.event_id in self.disk.answered or self._unknown_seizures(log):
                return
        copy, grant, newest = bridge.copy(log), bridge.view.grant(log), bridge.copy(log).newest_marker()
        if bridge.holds(log) or grant is None or newest is None:
            return
        if self._stale_from(log) is not None and not self.faults.seizes_stale_copy:
            return
        above = 1 if self.faults.seizes_next_term else SEIZING_TERMS
        term = max(grant.term, copy.records[-1].term) + above
        yield
        yield from self.publish(order, term, len(copy.records), grant)

    def _enter_seizures(self, log: str) -> Steps:
        """Write the entries of seizures made here that no ledger names: copies that they cut off must learn of them."""
        for offset, marker in self._unknown_seizures(log):
            if marker.to_site == self.site:
                yield from self.enter(marker, offset)

    def _unknown_seizures(self, log: str) -> list[tuple[int, Marker]]:
        """Seizures in the own copy that no ledger names. Those of others may be at another offset than they were."""
        known = {each.term for each in self.bridge.view.seizures(log)}
        return [
            (offset, record.body)
            for offset, record in enumerate(self.bridge.copy(log).records)
            if isinstance(record.body, Marker) and record.body.event == "SEIZURE" and record.term not in known
        ]

    # -- return

    def _stale_from(self, log: str) -> int | None:
        seizures = [(each.term, each.marker) for each in self.bridge.view.seizures(log)]
        copy = self.bridge.copy(log)
        if self.faults.returns_by_last_term:
            newest = seizures[-1] if seizures else (0, 0)
            stale = len(copy.records) > newest[1] and copy.records[-1].term < newest[0]
            return newest[1] if stale else None
        return copy.stale_from(seizures)

    def _unreturned(self, log: str) -> tuple[int, int, int] | None:
        """Newest seizure, start and end of what must be kept; None when there is nothing, or it is done."""
        start = self._stale_from(log)
        if start is None:
            return None
        wanted = (self.bridge.view.seizures(log)[-1].term, start, len(self.bridge.copy(log).records))
        return wanted if self.disk.returned.get(log) != wanted else None

    def _return(self, log: str) -> Steps:
        wanted = self._unreturned(log)
        if wanted is None:
            return
        bridge = self.bridge
        if bridge.holds(log):
            raise Violation(f"I5: {self.site} holds {log} in a copy that was cut off at {wanted[1]}")
        term, start, end = wanted
        for record in tuple(bridge.copy(log).records[start:end]):
            body = record.body
            if not isinstance(body, Identity) or self.faults.return_throws_tail_away:
                continue
            if bridge.index.check((log, body)) is not Verdict.REPEAT:
                yield from bridge.keep(Stray(log, body))
        self.write(
            ReturnEntry(
                log=log, term=term, marker_offset=start, end_offset=end, kept=0, strays_log=f"strays.{self.site}",
                strays_end=bridge.strays_end, returned_date_time=moment(self.world.clock), returned_by=self.site,
            )
        )  # fmt: skip
        yield
