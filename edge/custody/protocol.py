"""The custody protocol of one site (docs/custody.md): every decision, without I/O.

A procedure (``CustodyProtocol.perform``, ``seize``, ``complete``, ``return_tail``, ...) is a generator. It yields one
``Action`` at a time, receives the action's outcome or error, and returns its result. Between two actions it changes
only this site's state in memory: ``Holdings``, ``CustodyView``, ``Claims`` and the strays' book. A crash can therefore
only fall between two actions.

``edge.custody.term_writer`` and ``edge.custody.drain`` carry out the actions on Kafka. The model in
tests/unit/edge/custody/model carries them out on logs in memory and crashes between any two.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Generator, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from edge.errors import LostCustodyError, NotHolderError, ReplicaBehindError, SeizureError
from edge.holdings import CustodyState, Holdings
from edge.messages import EventMessage
from edge.strays.store import KeptReading, StrayBook
from fairlead.custody.superseded import Stale
from fairlead.custody.view import BY_HAND, SEIZING_TERMS, CustodyView, Grant, SplitCustodyError
from fairlead.errors import FairleadError, RefusedError
from fairlead.kafka.convention import LAST_TERM
from fairlead.kafka.protocol.errors import (
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    Conflict,
    CorruptBatch,
    FatalBrokerError,
    Fenced,
    Misplaced,
)
from fairlead.kafka.protocol.types import LogPosition
from fairlead.records.custody import (
    ClaimEntry,
    CustodyEntry,
    CustodyEvent,
    CustodyOrder,
    LedgerEntry,
    Marker,
    RefusalEntry,
    ReturnEntry,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

# -- actions


@dataclass(frozen=True, slots=True)
class CreateLog:
    """Create the log's topic if it is missing, and wait until it accepts writes."""

    log: str


@dataclass(frozen=True, slots=True)
class ReadLedgers:
    """Read the ledgers in the site's own Kafka up to their present ends."""


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Read where a log ends. Outcome: its ``LogPosition``; None when the log is empty.

    Args:
        anew: Read the position from the broker again, even after the log was granted away or an append was fenced.
    """

    log: str
    anew: bool = False


@dataclass(frozen=True, slots=True)
class AdoptTerm:
    """Append in a term from now on whose marker is the log's last record. Outcome: the log's ``LogPosition``.

    Errors: Fenced when a later term exists, Misplaced when the log does not end with that marker, BrokerError.
    """

    log: str
    term: int


@dataclass(frozen=True, slots=True)
class AppendMarker:
    """Append a marker at the end of its log. Outcome: its offset.

    Args:
        expected_end: Append the marker only if the log ends at this offset. None: at any offset.
        hold: Whether this site appends in the new term.

    Errors: Fenced or Conflict when the marker is not stored; Misplaced with ``fields["base_offset"]`` when it is stored
    at that other offset.
    """

    marker: Marker
    expected_end: int | None
    hold: bool


@dataclass(frozen=True, slots=True)
class ReadMarker:
    """Read the batch that begins at an offset. Outcome: a ``StoredMarker``, None when no batch begins there (any more).

    Args:
        stored: The marker was appended a moment ago: wait until it can be read.
    """

    log: str
    offset: int
    stored: bool = False


@dataclass(frozen=True, slots=True)
class AppendEntry:
    """Append an entry to this site's ledger."""

    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class AppendEvent:
    """Append an equipment event to this site's events log, unless the log has it."""

    event: Transfer


@dataclass(frozen=True, slots=True)
class PrepareLog:
    """Drain the strays of a log that this site holds (``look_again``, then ``drain``), before appends to it."""

    log: str


@dataclass(frozen=True, slots=True)
class StoreStrays:
    """Wait until every stray that was submitted to this site's strays log is stored."""


@dataclass(frozen=True, slots=True)
class RememberLogs:
    """Load into memory which readings each log has, from the given offset or earlier.

    Gives up logs that cannot be read. Outcome: the logs that make no progress now, which the procedure leaves out;
    None when there are none.
    """

    offsets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CopyStrays:
    """Append the strays at some offsets of a strays log to their logs, in order, without those that a log has already.

    Skips a log as soon as this site no longer holds it. Outcome: the same as that of ``RememberLogs``.
    """

    topic: str
    end: int
    offsets: Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class FindStrays:
    """Find the readings of one log in a strays log between two offsets. Outcome: a list of ``KeptReading``."""

    log: str
    topic: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ForgetLog:
    """Forget which readings the log has, because another site appends to it now, or because it is new (``empty``)."""

    log: str
    empty: bool = False


@dataclass(frozen=True, slots=True)
class GiveUpLog:
    """Stop appending to a log after a refused append, and have recovery read from the log who holds it."""

    log: str
    error: FairleadError


@dataclass(frozen=True, slots=True)
class FindStaleTail:
    """Find the part of this site's copy that a seizure has cut off from the log. Outcome: a ``Stale``, or None."""

    log: str


@dataclass(frozen=True, slots=True)
class KeepTail:
    """Copy the readings in a range of this site's copy to its strays log. Outcome: ``KeptTail``, once stored."""

    log: str
    start: int
    end: int


Action: TypeAlias = (
    CreateLog
    | ReadLedgers
    | ReadPosition
    | AdoptTerm
    | AppendMarker
    | ReadMarker
    | AppendEntry
    | AppendEvent
    | PrepareLog
    | StoreStrays
    | RememberLogs
    | CopyStrays
    | FindStrays
    | ForgetLog
    | GiveUpLog
    | FindStaleTail
    | KeepTail
)
Steps: TypeAlias = Generator[Action, Any, T]
"""A procedure: a generator that yields actions, receives their outcomes and returns a result."""


class StoredMarker(NamedTuple):
    """The batch that is stored where a term begins. ``marker`` is None when the batch holds something else."""

    marker: Marker | None
    batch: bytes


# -- requests to move custody


FUTURE: Final = dt.timedelta(hours=24)
"""How far an event's time may be ahead of the site's clock; a later time is ignored as a wrong clock."""


class CustodyMove(Enum):
    """The change of custody that a transfer asks of this site."""

    NOTHING = "nothing"
    OPEN = "open"
    REOPEN = "reopen"
    CLAIM = "claim"
    GRANT = "grant"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Transfer:
    """A request to pass custody of one log to ``to_site`` (None: the box leaves the system).

    ``event_id`` is the request's identity: a transfer with the same id is carried out once.
    """

    log: str
    event: CustodyEvent
    event_id: str
    at: dt.datetime
    to_site: str | None
    reason: str = ""
    ordered_by: str = ""


def of_event(message: EventMessage) -> Transfer:
    """Return the transfer that an equipment event asks for. Raises ValueError for a transport event."""
    code = message.event.payload.equipment_event_type_code
    if message.log is None or code is None:
        raise ValueError("a transport event moves no custody")
    event = message.event
    return Transfer(message.log, code, event.metadata.event_id, event.payload.event_date_time, message.to_site)


def of_order(order: CustodyOrder) -> Transfer:
    """Return the transfer that an operator's order asks for."""
    return Transfer(
        order.log,
        "SEIZURE" if order.kind == "seize" else "HAND",
        order.order_id,
        order.ordered_date_time,
        order.to_site,
        order.reason,
        order.ordered_by,
    )


def of_claim(claim: ClaimEntry) -> Transfer:
    """Return the transfer that a claim asks for, to the site where the box has come in."""
    return Transfer(claim.log, "GTIN", claim.event_id, claim.event_date_time, claim.claimed_by)


def plan(transfer: Transfer, holdings: Holdings, now: dt.datetime, sites: Container[str]) -> CustodyMove:
    """Return the move that a transfer asks for, given the grants known now. WAIT: custody may be on its way here.

    When a box comes in that left the system at another site, the move is a CLAIM to that other site, because only one
    site may open the next term. When that other site is not among ``sites`` any more it cannot answer, and this site
    reopens the log as if the box had left here.

    A transfer dated before the newest grant is refused, because the log has moved on since. Two kinds of grant are
    exempt from the comparison: grants by hand, whose time is an operator's and not a device's, and grants dated more
    than ``FUTURE`` ahead, whose clock was wrong and must not hold up what the box does now.

    Raises:
        NotHolderError: the transfer is older than the log's newest grant.
    """
    grant = holdings.view.grant(transfer.log)
    if grant is not None and grant.event_id == transfer.event_id:
        return CustodyMove.NOTHING  # carried out before; the message was sent again
    moved = holdings.view.moved_before_hand(transfer.log)
    if moved is not None and moved.event_id == transfer.event_id:
        return CustodyMove.NOTHING  # the same, and an operator has moved the log since
    state = holdings.state(transfer.log)
    if transfer.event == "GTIN" and state in (CustodyState.HELD, CustodyState.INCOMING):
        return CustodyMove.NOTHING
    dated = grant is not None and grant.event not in BY_HAND and grant.at <= now + FUTURE
    if grant is not None and dated and grant.at > transfer.at:
        raise NotHolderError(transfer.log, holdings.site, grant.to_site, doing=f"carry out an older {transfer.event}")
    if transfer.event == "GTIN":
        if grant is None:
            return CustodyMove.OPEN
        if grant.to_site is not None:
            return CustodyMove.WAIT
        return (
            CustodyMove.REOPEN
            if grant.from_site == holdings.site or grant.from_site not in sites
            else CustodyMove.CLAIM
        )
    if state is not CustodyState.HELD:
        return CustodyMove.WAIT
    return CustodyMove.NOTHING if transfer.to_site == holdings.site else CustodyMove.GRANT


# -- claims


class Claims:
    """The claims that this site has made and those that it must answer. Ignores claims between other sites."""

    def __init__(self, site: str, view: CustodyView) -> None:
        self._site = site
        self._view = view
        self._made: dict[str, tuple[int, str]] = {}  # by log: term and event id of the newest claim
        self._asked: dict[str, list[ClaimEntry]] = defaultdict(list)

    def learn(self, entry: ClaimEntry) -> bool:
        """Record a claim from any ledger. Returns True when this site must answer it."""
        if entry.claimed_by == self._site:
            self._made[entry.log] = (entry.term, entry.event_id)
        if entry.left_site != self._site or entry.claimed_by == self._site:
            return False
        self._asked[entry.log].append(entry)
        return True

    def is_made(self, log: str, term: int, event_id: str) -> bool:
        """Return whether this site's newest claim to a log has this term and event id."""
        return self._made.get(log) == (term, event_id)

    def logs(self) -> Collection[str]:
        """Return the logs that other sites claim of this one; some of the claims may be answered already."""
        return tuple(self._asked)

    def next(self, log: str) -> ClaimEntry | None:
        """Return the valid claim with the earliest event time, which is to be answered now; None when there is none.

        Drops claims for terms before the log's newest grant.
        """
        grant = self._view.grant(log)
        open_still = [each for each in self._asked.get(log, ()) if grant is None or each.term >= grant.term]
        if not open_still:
            self._asked.pop(log, None)
            return None
        self._asked[log] = open_still
        valid = [each for each in open_still if grant is not None and left_here(grant, self._site, each.term)]
        return min(valid, key=lambda each: (each.event_date_time, each.claimed_by), default=None)


def left_here(grant: Grant, site: str, term: int) -> bool:
    """Return whether a box left the system at ``site`` in this term and is still outside."""
    return grant.to_site is None and grant.from_site == site and grant.term == term


# -- the protocol


class CustodyProtocol:
    """The custody decisions of one site. Procedures about the same log must not overlap; others may.

    Args:
        sites: The sites of the topology.
        now: Returns the present time, with a time zone.
        nonce: Returns a unique string for each marker.
        disbelieve: Returns the reason why an entry of a site is not believed, None when it is
            (``topologies.ledger_trust``).
    """

    def __init__(
        self,
        holdings: Holdings,
        book: StrayBook,
        *,
        sites: Container[str],
        now: Callable[[], dt.datetime],
        nonce: Callable[[], str],
        disbelieve: Callable[[str, CustodyEntry], str | None] = lambda _site, _entry: None,
    ) -> None:
        self.site = holdings.site
        self.holdings = holdings
        self.view: CustodyView = holdings.view
        self.claims = Claims(holdings.site, holdings.view)
        self.splits: dict[str, str] = {}  # logs granted twice in one term, with the error text
        self._book = book
        self._sites = sites
        self._now = now
        self._nonce = nonce
        self._disbelieve = disbelieve
        self._writing: set[tuple[str, int]] = set()  # entries that are being appended: log and term
        self._returned: dict[str, tuple[int, int, int]] = {}  # by log: newest seizure's term, cut, end of the copy
        self._answers: dict[str, bool] = {}  # by id of an operator's order: whether this site's ledger refuses it

    def is_writing(self, entry: CustodyEntry) -> bool:
        """Return whether this process is writing this entry to the site's ledger now."""
        return (entry.log, entry.term) in self._writing

    # -- deciding

    def is_outside(self, topic: str) -> bool:
        """Return whether the box of a log has left the system."""
        grant = self.view.grant(topic)
        return grant is not None and grant.to_site is None

    def has_claimed(self, transfer: Transfer) -> bool:
        """Return whether this site has already claimed the log from the site where the box left the system."""
        grant = self.view.grant(transfer.log)
        return grant is not None and self.claims.is_made(transfer.log, grant.term, transfer.event_id)

    def plan(self, transfer: Transfer) -> CustodyMove:
        """Return the move that a transfer asks for now. Raises the same errors as the function ``plan``."""
        return plan(transfer, self.holdings, self._now(), self._sites)

    def decide(self, transfer: Transfer) -> Steps[CustodyMove]:
        """Return the move that a transfer asks for; read the ledgers to their ends first when it would open a log.

        The site's Kafka may already have the entry by which another site opened the log, not yet read by this process.

        Raises:
            NotHolderError: see ``plan``.
        """
        move = self.plan(transfer)
        if move in (CustodyMove.OPEN, CustodyMove.REOPEN, CustodyMove.CLAIM):
            yield ReadLedgers()
            move = self.plan(transfer)
        return move

    # -- moving custody

    def perform(self, transfer: Transfer) -> Steps[CustodyMove]:
        """Carry out a transfer, and return the move that was made.

        Raises:
            NotHolderError: see ``plan``.
            ReplicaBehindError: this site's copy of the log is not complete.
            LostCustodyError: the log has a later term than the ledger knows.
        """
        move = self.plan(transfer)
        match move:
            case CustodyMove.OPEN:
                yield from self._lost_when_refused(transfer.log, self._open(transfer))
            case CustodyMove.REOPEN:
                yield from self._lost_when_refused(transfer.log, self._reopen(transfer))
            case CustodyMove.GRANT:
                yield from self._lost_when_refused(transfer.log, self._grant(transfer))
            case CustodyMove.CLAIM:
                yield from self._claim(transfer)
            case CustodyMove.NOTHING | CustodyMove.WAIT:
                pass
        return move

    def carry_out(self, event: Transfer, *, known: bool) -> Steps[EventOutcome]:
        """Carry out an equipment event, new or waiting: append it to the site's events log, then move custody.

        Args:
            known: Whether the events log had this event before.
        """
        try:
            move = yield from self.decide(event)  # decide before writing anything: the event may be refused
            if move is not CustodyMove.WAIT:
                yield AppendEvent(event)
                move = yield from self.perform(event)
        except NotHolderError as error:
            # A known event was carried out before, and the log has moved on since: the message was only sent again.
            return EventOutcome(EventResult.REPEATED if known else EventResult.REFUSED, error=error)
        except FairleadError as error:
            if not error.retriable and not isinstance(error, LostCustodyError | CorruptBatch):
                raise
            return EventOutcome(EventResult.WAITS, error=error)
        return EventOutcome(
            EventResult.WAITS if move in (CustodyMove.WAIT, CustodyMove.CLAIM) else EventResult.DONE, move
        )

    def may_try(self, event: Transfer, *, held_up: bool) -> Try:
        """Return whether to try a waiting event now. The events of one log are tried in order.

        While the box is outside the system, only an event that brings it in may overtake older waiting events.

        Args:
            held_up: An earlier waiting event of the log was skipped.
        """
        try:
            move = self.plan(event)
        except NotHolderError:
            return Try.NOW  # the log has moved on since: ``carry_out`` reports that
        if move is CustodyMove.CLAIM and self.has_claimed(event):
            move = CustodyMove.WAIT
        if move is CustodyMove.WAIT and not self.is_outside(event.log):
            return Try.STOP
        held_up |= move is CustodyMove.WAIT
        return Try.LATER if held_up and move in (CustodyMove.WAIT, CustodyMove.GRANT, CustodyMove.NOTHING) else Try.NOW

    def is_settled(self, topic: str, event_id: str, at: dt.datetime, *, known: bool, entered: bool = False) -> bool:
        """Return whether an event is done: it moved the log, or was carried out before others moved the log again.

        Args:
            known: Whether the site's events log has the event.
            entered: Whether the site's ledger has a grant by the event.
        """
        grant = self.view.grant(topic)
        return entered or (grant is not None and (grant.event_id == event_id or (grant.at > at and known)))

    def carry_out_order(
        self, order: Transfer, *, term: int | None, check: Callable[[], None]
    ) -> Steps[FairleadError | None]:
        """Carry out an operator's order, or write a refusal to the ledger.

        Returns the reason of the refusal, None when the order was carried out.

        Args:
            term: The log's term when the order was given; the order is refused in any other term. None: any term.
            check: Raises if the order is invalid, whatever the state of its log.

        Raises:
            FairleadError: a retriable error; the caller tries the order again.
        """
        try:
            check()
            if order.event == "SEIZURE":
                yield from self.seize(order, term=term)
            else:
                self._check_term(order, term)
                yield from self.grant_by_hand(order)
        except FairleadError as error:
            if error.retriable and not isinstance(error, ReplicaBehindError):
                raise
            refusal = RefusalEntry(
                log=order.log,
                order_id=order.event_id,
                code=type(error).__name__,
                reason=error.what,
                refused_date_time=self._now(),
                refused_by=self.site,
            )
            yield AppendEntry(refusal)
            return error
        return None

    def _check_term(self, order: Transfer, term: int | None) -> None:
        grant = self.view.grant(order.log)
        if grant is None:
            raise RefusedError(f"no ledger at {self.site} has {order.log}: it was never opened", log=order.log)
        if term is not None and term != grant.term:
            raise RefusedError(
                f"{order.log} has moved since the order was given: from term {term} to term {grant.term}, "
                f"held by {grant.to_site}",
                hint="check with 'fairlead custody show', and repeat the order if it is still right",
                log=order.log,
            )

    def answer(self, topic: str) -> Steps[bool]:
        """Grant a log to the site that claims it; return False if no valid claim is left. Raises as ``perform``."""
        claim = self.claims.next(topic)
        if claim is None:
            return False
        yield from self._lost_when_refused(topic, self._reopen(of_claim(claim)))
        return True

    def _lost_when_refused(self, topic: str, moving: Steps[None]) -> Steps[None]:
        """Run a procedure that opens a term; if its append is refused, give the log up and raise LostCustodyError."""
        try:
            yield from moving
        except (Fenced, Misplaced, Conflict) as error:
            self.holdings.mark_broken(topic)
            yield GiveUpLog(topic, error)
            raise LostCustodyError(
                f"{self.site} cannot open the next term of {topic}: {error.what}",
                hint="another site has appended to the log; compare the copies with 'fairlead audit'",
                log=topic,
            ) from error

    def _open(self, transfer: Transfer) -> Steps[None]:
        topic = transfer.log
        yield CreateLog(topic)
        if (yield ReadPosition(topic)) is not None:
            if (yield from self._enter_own_marker(topic)):
                return
            raise ReplicaBehindError(
                f"{self.site} cannot open {topic}: its copy has records, and no ledger here names its holder",
                hint="the bridge continues as soon as the holder's ledger has arrived here: fairlead status",
                log=topic,
            )
        marker = self._new_marker(transfer, term=1, previous=None)
        offset = yield from self._append_marker(marker, expected_end=0)
        yield ForgetLog(topic, empty=True)
        yield from self.publish(marker, offset, ordered_by=transfer.ordered_by)

    def _enter_own_marker(self, topic: str) -> Steps[bool]:
        """Write the missing ledger entry of a term that another bridge of this site opened before it ended.

        Returns False when the newest marker in this copy is another site's.
        """
        position: LogPosition | None = yield ReadPosition(topic, anew=True)
        stored: StoredMarker | None = (yield ReadMarker(topic, position.marker)) if position is not None else None
        if position is None or stored is None or stored.marker is None or not self._made_here(stored.marker):
            return False
        yield ForgetLog(topic)
        yield from self.publish(stored.marker, position.marker)
        return True

    def _claim(self, transfer: Transfer) -> Steps[None]:
        """Write a claim to this site's ledger, addressed to the site where the box left the system."""
        grant = self._known(transfer.log)
        if grant.from_site is None or self.has_claimed(transfer):
            return
        claim = ClaimEntry(
            log=transfer.log,
            term=grant.term,
            left_site=grant.from_site,
            event_id=transfer.event_id,
            event_date_time=transfer.at,
            claimed_date_time=self._now(),
            claimed_by=self.site,
        )
        yield AppendEntry(claim)
        self.claims.learn(claim)

    def _reopen(self, transfer: Transfer) -> Steps[None]:
        """Open the next term of a log whose box left the system here, for this site or the site that claims it."""
        topic = transfer.log
        grant = self._known(topic)
        try:
            position: LogPosition = yield AdoptTerm(topic, grant.term)
        except (Misplaced, BrokerError, CorruptBatch) as error:
            raise ReplicaBehindError(
                f"{self.site} cannot open {topic} again: its copy does not end where the box left the system "
                f"({error.what})",
                hint="the bridge opens it as soon as the copy is complete",
                log=topic,
            ) from error
        marker = self._new_marker(transfer, term=grant.term + 1, previous=grant)
        here = transfer.to_site == self.site
        offset = yield from self._append_marker(marker, expected_end=position.end, hold=here)
        yield ForgetLog(topic)
        yield from self.publish(marker, offset, ordered_by=transfer.ordered_by)

    def _grant(self, transfer: Transfer) -> Steps[None]:
        topic = transfer.log
        yield PrepareLog(topic)  # strays kept while another site held the log belong before the marker
        grant = self._known(topic)
        # Check again after draining: a broker accepts the marker of a new term at any end, so only this stops it.
        if self.holdings.state(topic) is not CustodyState.HELD or grant.to_site != self.site:
            raise LostCustodyError(
                f"{self.site} cannot grant {topic} now: it lost the log while it appended the log's strays",
                hint="the bridge repeats an event by itself; repeat an order: fairlead custody show",
                log=topic,
            )
        position: LogPosition | None = yield ReadPosition(topic)
        marker = self._new_marker(transfer, term=grant.term + 1, previous=grant)
        end = position.end if position is not None else None
        offset = yield from self._append_marker(marker, expected_end=end, hold=False)
        yield ForgetLog(topic)
        yield from self.publish(marker, offset, ordered_by=transfer.ordered_by)

    def seize(self, transfer: Transfer, *, term: int | None = None) -> Steps[None]:
        """Take a log from a holder that is lost: open a new term at the end of this site's own copy.

        Does nothing when another bridge of this site has answered the order meanwhile.

        Args:
            term: The log's term when the seizure was ordered; it is refused in any other term. None: any term.

        Raises:
            RefusedError: the log is in another term.
            SeizureError: the log was never opened, this site holds it, or this site's copy cannot be continued.
            LostCustodyError: the copy grew during the seizure; the operator may give the order again.
        """
        topic = transfer.log
        self._seizable(topic)
        position, last = yield from self._end_of_copy(topic)
        if (yield from self._enter_stored_seizure(transfer, position, last)):
            return
        stale: Stale | None = yield FindStaleTail(topic)
        if stale is not None:
            raise SeizureError(
                f"the copy of {topic} at {self.site} has records from offset {stale.cut} on that an earlier seizure "
                "cut off",
                hint="wait until the copy is rebuilt: fairlead status",
                log=topic,
            )
        yield ReadLedgers()
        if self.is_answered(transfer.event_id):
            return
        self._check_term(transfer, term)
        grant = self._seizable(topic)
        opened = max(grant.term, position.term) + SEIZING_TERMS
        if opened > LAST_TERM:
            raise SeizureError(f"{topic} has no terms left: {opened} would be above {LAST_TERM}", log=topic)
        marker = Marker(
            log=topic,
            term=opened,
            from_site=grant.to_site,
            to_site=self.site,
            event=transfer.event,
            event_id=transfer.event_id,
            event_date_time=transfer.at,
            nonce=self._nonce(),
            # The last marker in this copy is the newest known record of what the lost holder had drained.
            drained=last.drained if last is not None else {},
            drained_since=_since(last, position.marker) if last is not None else 0,
            reason=transfer.reason,
        )
        try:
            offset = yield from self._append_marker(marker, expected_end=position.end)
        except (Fenced, Misplaced, Conflict) as error:
            position, last = yield from self._end_of_copy(topic)
            if (yield from self._enter_stored_seizure(transfer, position, last)):
                return  # another bridge of this site stored the marker, and may end before it writes the entry
            raise LostCustodyError(
                f"{self.site} could not seize {topic}: its copy has just grown ({error.what})",
                hint="repeat the order",
                log=topic,
            ) from error
        yield ForgetLog(topic)
        yield from self.publish(marker, offset, ordered_by=transfer.ordered_by)

    def enter_refused_seizure(self, transfer: Transfer) -> Steps[bool]:
        """Write the missing ledger entry of a seizure that this site's ledger refuses; False when it was not made.

        One bridge of this site stored the marker, and another one refused the order before the first wrote the entry.

        Raises:
            BrokerError: the copy cannot be read now; retriable.
        """
        if self.holdings.state(transfer.log) is CustodyState.HELD:
            return False
        try:
            position, last = yield from self._end_of_copy(transfer.log)
            return (yield from self._enter_stored_seizure(transfer, position, last))
        except SeizureError:
            return False  # most refused seizures have no copy here that could have a marker
        except CorruptBatch as error:
            log.warning("%s: no entry is written for the refused order %s: %s", self.site, transfer.event_id, error)
            return False

    def _enter_stored_seizure(self, transfer: Transfer, position: LogPosition, last: Marker | None) -> Steps[bool]:
        """Write the missing ledger entry of a seizure whose marker is the newest in this copy.

        Returns True when that marker belongs to this order. A crash or an error may separate a marker from its entry,
        and an entry of the lost holder may arrive before the next attempt. The order then comes too late, but its
        marker is stored; without the entry no site learns that the older history ends there, above all once another
        marker follows it.

        Args:
            position, last: Where the copy ends and its newest marker (``_end_of_copy``). What the caller does next must
                follow from the same look: another bridge of this site may store a marker at any moment.

        Raises:
            SeizureError: another site has seized the log, and its ledger is not here yet.
        """
        topic, order_id = transfer.log, transfer.event_id
        if last is None or last.event != "SEIZURE":
            return False
        known = self.view.term(topic) or 0
        if last.term <= known:
            if last.event_id == order_id and (self.is_refused(order_id) or not self.is_answered(order_id)):
                log.warning(
                    "%s: the marker of order %s in %s, term %d, gets no entry: the ledgers have the log in term %d",
                    self.site,
                    order_id,
                    topic,
                    last.term,
                    known,
                )
            return False
        if last.to_site != self.site:  # the marker's offset in a copy may differ; that site's entry has the true one
            raise SeizureError(
                f"{last.to_site} has seized {topic} (term {last.term}), and its ledger has not arrived here yet",
                hint=f"wait for the ledger of {last.to_site}: fairlead custody show {topic}",
                log=topic,
            )
        ordered = last.event_id == order_id
        if not ordered:
            log.warning("%s: the entry of order %s, which seized %s, is written now", self.site, last.event_id, topic)
        yield ForgetLog(topic)
        yield from self.publish(last, position.marker, ordered_by=transfer.ordered_by if ordered else "")
        return ordered

    def _seizable(self, topic: str) -> Grant:
        """Return the newest grant of a log. Raises SeizureError if the log was never opened or this site holds it."""
        grant = self.view.grant(topic)
        if grant is None:
            raise SeizureError(f"no ledger at {self.site} has {topic}: it was never opened", log=topic)
        if self.holdings.state(topic) is CustodyState.HELD:
            raise SeizureError(f"{self.site} holds {topic} already", log=topic)
        return grant

    def _end_of_copy(self, topic: str) -> Steps[tuple[LogPosition, Marker | None]]:
        """Return the end of this site's copy and the newest marker in it (None when it is no longer stored).

        Raises:
            SeizureError: there is no copy here, or it has no record of any term.
            BrokerError: the copy cannot be read now; retriable.
        """
        try:
            position: LogPosition | None = yield ReadPosition(topic, anew=True)
        except BrokerError as error:
            if error.retriable and error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise  # try again: a marker of this order may be stored already
            raise SeizureError(
                f"{self.site} has no copy of {topic} that it could continue: {error.what}",
                hint="seize it at a site that has one: fairlead custody show",
                log=topic,
            ) from error
        if position is None or position.term < 1:
            raise SeizureError(
                f"the copy of {topic} at {self.site} has no record of any term",
                hint="seize it at a site that has one: fairlead custody show",
                log=topic,
            )
        stored: StoredMarker | None = yield ReadMarker(topic, position.marker)
        return position, stored.marker if stored is not None else None

    def grant_by_hand(self, transfer: Transfer) -> Steps[None]:
        """Carry out an operator's order to grant a log.

        Raises:
            ReplicaBehindError: the ledger gives the log to this site, but its copy is not complete yet.
            NotHolderError: this site does not hold the log.
            LostCustodyError: see ``perform``.
        """
        topic = transfer.log
        grant = self.view.grant(topic)
        if grant is not None and grant.event_id == transfer.event_id:
            return  # a crash interrupted it, and recovery completed it at the start
        match self.holdings.state(topic):
            case CustodyState.HELD:
                yield from self.perform(transfer)
            case CustodyState.INCOMING:
                marker = self.view.marker(topic)
                raise ReplicaBehindError(
                    f"{self.site} is behind: it has custody of {topic} after the marker at offset {marker}, "
                    "which its copy does not have yet",
                    hint="repeat the order when 'fairlead status' shows that the copy is complete",
                    log=topic,
                    marker=marker,
                )
            case _:
                raise NotHolderError(topic, self.site, self.view.holder(topic), doing="grant custody")

    # -- markers and their ledger entries

    def _append_marker(self, marker: Marker, *, expected_end: int | None, hold: bool = True) -> Steps[int]:
        """Append a marker and return its offset.

        The offset is later than ``expected_end`` when another writer appended at the same moment. The marker fences
        that writer all the same, and the records before it are part of the log.
        """
        try:
            offset: int = yield AppendMarker(marker, expected_end, hold)
        except Misplaced as error:
            landed = error.fields.get("base_offset")
            if not isinstance(landed, int):
                raise
            log.warning("%s: marker %d of %s landed at offset %d", self.site, marker.term, marker.log, landed)
            if hold:
                yield ReadPosition(marker.log, anew=True)
            return landed
        return offset

    def _known(self, topic: str) -> Grant:
        grant = self.view.grant(topic)
        if grant is None:
            raise NotHolderError(topic, self.site, None, doing="pass it on")
        return grant

    def _new_marker(self, transfer: Transfer, *, term: int, previous: Grant | None) -> Marker:
        carried = previous is not None and previous.drained_since != previous.marker
        return Marker(
            log=transfer.log,
            term=term,
            from_site=None if transfer.event == "GTIN" and transfer.to_site == self.site else self.site,
            to_site=transfer.to_site,
            event=transfer.event,
            event_id=transfer.event_id,
            event_date_time=transfer.at,
            nonce=self._nonce(),
            drained=self._book.drained(transfer.log),
            drained_since=previous.drained_since if carried and previous is not None else None,
            reason=transfer.reason,
        )

    def publish(self, marker: Marker, offset: int, *, ordered_by: str = "") -> Steps[None]:
        """Write the ledger entry of a marker stored at ``offset``, and apply it to this site's view and holdings."""
        stored: StoredMarker = yield ReadMarker(marker.log, offset, stored=True)
        entry = self._entry_of(marker, offset, stored.batch, self.site, ordered_by)
        key = (entry.log, entry.term)
        self._writing.add(key)
        try:
            yield AppendEntry(entry)
            self.view.apply(entry)
        except SplitCustodyError as error:
            self.holdings.mark_broken(entry.log)
            log.error("%s", error)
            return
        finally:
            self._writing.discard(key)
        if self.view.term(entry.log) != entry.term:
            return  # seized meanwhile: the newer term decides
        self._book.passed_on(entry.log, entry.drained)
        if entry.to_site == self.site:
            self.holdings.hold(entry.log, entry.term)
        else:
            self.holdings.release(entry.log)

    def _entry_of(self, marker: Marker, offset: int, batch: bytes, site: str, ordered_by: str = "") -> CustodyEntry:
        """Return the ledger entry of a marker that is stored at ``offset`` as ``batch``."""
        return CustodyEntry(
            log=marker.log,
            term=marker.term,
            marker_offset=offset,
            from_site=marker.from_site,
            to_site=marker.to_site,
            event=marker.event,
            event_id=marker.event_id,
            event_date_time=marker.event_date_time,
            granted_date_time=self._now(),
            granted_by=site,
            marker_batch=batch,
            drained=marker.drained,
            drained_since=marker.drained_since,
            ordered_by=ordered_by,
            reason=marker.reason,
        )

    # -- after a crash, and after a refused append

    def begin(self, topics: Iterable[str]) -> list[str]:
        """Apply the grants to this site, and return those of ``topics`` that it may hold, for ``take_up``.

        Called once at start, when the ledgers have been read.
        """
        for grant in self.view.granted_to(self.site):
            self.holdings.apply_grant(grant)
        return [topic for topic in topics if self.view.holder(topic) in (None, self.site)]

    def take_up(self, topic: str, position: LogPosition | None) -> bool:
        """Hold a log at start if its last record is of this site's own term.

        Returns True when the log has a later term than the ledgers know; ``complete`` then finds the holder.
        """
        if position is None:
            return False
        term = self.view.term(topic) or 0
        if position.term == term and self.view.holder(topic) == self.site:
            self.holdings.hold(topic, term)
        return position.term > term

    def complete(self, topic: str, position: LogPosition) -> Steps[int]:
        """Find the holder of a log that is in a later term than the ledgers know, from that term's marker.

        Writes the missing ledger entry when the marker is this site's own, and returns the number of entries written.
        Marks the log broken when the marker is no longer stored here, or damaged.
        """
        stored: StoredMarker | None = None
        with contextlib.suppress(CorruptBatch):
            stored = yield ReadMarker(topic, position.marker)
        if stored is None or stored.marker is None:
            self.holdings.mark_broken(topic)
            log.error(
                "%s",
                LostCustodyError(
                    f"{topic} is in term {position.term}, the ledger knows term {self.view.term(topic)}, and the "
                    f"term's marker is no longer here, or damaged: {self.site} keeps its readings as strays",
                    hint="wait until the other site's ledger has arrived here",
                ),
            )
            return 0
        marker = stored.marker
        if self._made_here(marker):
            yield from self.publish(marker, position.marker)
            return 1
        if marker.event == "SEIZURE":
            return 0  # a copied marker may have another offset: wait for the seizing site's entry
        giver = marker.from_site if marker.from_site is not None else (marker.to_site or "")
        entry = self._entry_of(marker, position.marker, stored.batch, giver)
        why_not = self._disbelieve(giver, entry)
        if why_not is not None:
            log.error("%s: the marker of term %d in %s is not believed: %s", self.site, marker.term, topic, why_not)
            return 0
        self.view.apply(entry)
        grant = self.view.grant(topic)
        if grant is not None:
            self.holdings.apply_grant(grant)
            if grant.to_site == self.site:  # this site took the log over, and only the entry is missing
                self.holdings.hold(topic, grant.term)
        return 0

    def _made_here(self, marker: Marker) -> bool:
        if marker.event == "SEIZURE" or marker.from_site is None:
            return marker.to_site == self.site
        return marker.from_site == self.site

    def recheck(self, topic: str, *, mend: Callable[[Grant], bool]) -> Steps[bool]:
        """Find out from a broken log itself who holds it. Returns True when this site holds it and may append again.

        If its last term is later than the ledgers know, the term's marker tells (``complete``).

        A log breaks when an append is refused or the log cannot be read. If its last term is this site's own, and that
        term's marker is where the ledger has it, the log was only longer than expected: the last append of a killed
        bridge may arrive after the next bridge has read the log's end.

        If the ledgers give the log to another site, it is not this site's to mend: the refused append was of an earlier
        term.

        Args:
            mend: Returns whether a log with this grant, which is intact, may be appended to again.
        """
        if self.holdings.state(topic) is not CustodyState.BROKEN:
            return False
        position: LogPosition | None = yield ReadPosition(topic, anew=True)
        grant = self.view.grant(topic)
        if position is None:
            return False
        if grant is None or position.term > grant.term:
            yield from self.complete(topic, position)
            return self.holdings.state(topic) is CustodyState.HELD
        if grant.to_site != self.site:
            self.holdings.release(topic)
            return False
        whole = (position.term, position.marker) == (grant.term, grant.marker)
        if not whole or not mend(grant):
            return False
        self.holdings.hold(grant.log, grant.term)
        return True

    # -- entries of the ledgers

    def learn(self, entry: LedgerEntry) -> None:
        """Record an entry of this site's own ledger: a reported tail, or the answer to an operator's order."""
        match entry:
            case ReturnEntry():
                self._returned[entry.log] = (entry.term, entry.marker_offset, entry.end_offset)
            case CustodyEntry(event="HAND" | "SEIZURE"):
                self._answers[entry.event_id] = False
            case RefusalEntry():
                self._answers.setdefault(entry.order_id, True)

    def is_answered(self, order_id: str) -> bool:
        """Return whether this site's ledger has a grant, a seizure or a refusal for an operator's order."""
        return order_id in self._answers

    def is_refused(self, order_id: str) -> bool:
        """Return whether this site's ledger has a refusal, and nothing else, for an operator's order."""
        return self._answers.get(order_id, False)

    def apply(self, entry: CustodyEntry, *, own: bool, at_start: bool) -> CustodyChange | None:
        """Apply an entry of any ledger. Returns the change of custody at this site; None when nothing changes.

        Args:
            own: The entry is in this site's ledger. Entries that this process writes are ignored: ``publish`` applies
                them.
            at_start: The entry was in the ledger at start. It then only fills the view, which ``take_up`` compares with
                the logs.
        """
        try:
            news = self.view.apply(entry)
        except SplitCustodyError as error:
            self.splits[entry.log] = error.what
            log.error("%s", error)
            return None
        grant = self.view.grant(entry.log)
        if not news or at_start or grant is None or (own and self.is_writing(entry)):
            return None
        before = self.holdings.apply_grant(grant)
        self._book.passed_on(grant.log, grant.drained)
        return CustodyChange(grant, before, self.holdings.state(entry.log))

    def adopted(self, grant: Grant, result: LogPosition | FairleadError) -> bool:
        """Handle the result of ``AdoptTerm`` for a log that the ledger gives to this site.

        Returns True if this site holds the log now.

        Raises:
            FairleadError: an error that is neither retriable nor about the log's content.
        """
        if self.view.grant(grant.log) != grant:
            return False  # the log has moved on meanwhile
        match result:
            case FairleadError() if result.retriable:
                return False  # try again at the next check
            case Conflict():
                return False  # an append of this site's earlier term is still in flight; try again at the next check
            case Misplaced() if result.fields.get("term", grant.term) < grant.term:
                return False  # the copy has an older term that a seizure has cut off: it will be rebuilt
            case Misplaced(fields={"term": grant.term, "marker": grant.marker}):
                pass  # this site's own records follow the marker: no broker served the log when the bridge started
            case Fenced() | Misplaced() | FatalBrokerError() | CorruptBatch():
                self.holdings.mark_broken(grant.log)
                log.error(
                    "%s: cannot take over the log, given to this site in term %d: %s", grant.log, grant.term, result
                )
                return False
            case FairleadError():
                raise result
        self.holdings.hold(grant.log, grant.term)
        return True

    # -- tails that a seizure has cut off

    def is_returned(self, topic: str, stale: Stale) -> bool:
        """Return whether this site's ledger already reports that the readings of a stale tail are kept."""
        return self._returned.get(topic) == (stale.newest, stale.cut, stale.end)

    def return_tail(self, topic: str) -> Steps[ReturnEntry | None]:
        """Keep the readings of a copy's stale tail as strays, and report that in the ledger. None: there is no tail."""
        stale: Stale | None = yield FindStaleTail(topic)
        if stale is None:
            return None
        kept: KeptTail = yield KeepTail(topic, stale.cut, stale.end)
        entry = ReturnEntry(
            log=topic,
            term=stale.newest,
            marker_offset=stale.cut,
            end_offset=stale.end,
            kept=kept.readings,
            strays_log=kept.strays_log,
            strays_end=kept.strays_end,
            returned_date_time=self._now(),
            returned_by=self.site,
        )
        yield AppendEntry(entry)
        self.learn(entry)
        return entry

    # -- strays

    def look_again(self, topic: str) -> Steps[None]:
        """Search the strays logs for a log's strays again, before the first append in a new term of this site.

        Only for logs that were seized or whose drained offsets went back: after a seizure, in every later term, strays
        that counted as drained before may be missing from the log.
        """
        if topic not in self.view.seized() and not self._book.is_put_back(topic):
            return
        for strays, index in self._book.indexes():
            found: list[KeptReading] = []
            position = self._book.floor(topic, strays)
            while position < (end := index.end):  # the index grows while the log is read
                found += yield FindStrays(topic, strays, position, end)
                position = end
            self._book.look_again(topic, strays, found)

    def drain(self, topics: Collection[str]) -> Steps[None]:
        """Append the strays of logs that this site holds to these logs, in order and each once.

        Reads each strays log once for all logs: this site's own first, then the copies of the others. A stray is
        drained when its log has the reading, by (device, boot, sequence), so neither a crash nor another pass appends
        it twice.
        This needs a memory of the log's readings back to the marker of the present term, or further after a seizure
        (``drained_since``); the marker itself lists what was drained before. Logs that make no progress are left out,
        and the rest of their strays waits for another pass. So do those of a log that this site has lost meanwhile,
        even if it holds the log again, in a later term, when the pass ends.
        """
        stuck: set[str] = set()
        yield StoreStrays()
        for strays, index in self._book.indexes():
            wanted = [
                topic
                for topic in topics
                if topic in index.kept and topic not in stuck and self._book.may_drain(strays, topic)
            ]
            if not wanted:
                continue
            end = index.end
            terms = {topic: self.holdings.term(topic) for topic in wanted}
            grants = {topic: self.view.grant(topic) for topic in wanted}
            since = {topic: each.drained_since + 1 for topic, each in grants.items() if each is not None}
            stuck.update((yield RememberLogs(since)) or ())
            end = min(end, index.end)  # a damaged batch may have been met before it meanwhile
            # Logs may have been granted to other sites meanwhile: their strays were drained first, and wait no longer.
            # Strays that have come meanwhile wait for the next pass.
            offsets = {
                topic: frozenset(offset for offset in index.offsets(topic) if offset < end)
                for topic in wanted
                if topic not in stuck
            }
            offsets = {topic: each for topic, each in offsets.items() if each}
            if offsets:
                stuck.update((yield CopyStrays(strays, end, offsets)) or ())
            for topic in wanted:
                if self.holdings.term(topic) == terms[topic] > 0 and topic not in stuck:
                    index.drained(topic, upto=min(end, index.end))  # or by the copying


class EventResult(Enum):
    """The result of carrying out an event."""

    DONE = "done"
    REPEATED = "repeated"
    REFUSED = "refused"
    WAITS = "waits"


class EventOutcome(NamedTuple):
    """The result of carrying out an event: the move that was made, or the reason why it waits or was refused."""

    result: EventResult
    move: CustodyMove | None = None
    error: FairleadError | None = None


class Try(Enum):
    """Whether to try a waiting event: NOW, LATER, or STOP, which also stops the events after it."""

    NOW = "now"
    LATER = "later"
    STOP = "stop"


class CustodyChange(NamedTuple):
    """A new newest grant of a log, with the log's state at this site before and after it."""

    grant: Grant
    before: CustodyState
    now: CustodyState


class KeptTail(NamedTuple):
    """The outcome of ``KeepTail``: how many readings were kept, and the strays log with its end offset after them."""

    readings: int
    strays_log: str
    strays_end: int


def _since(last: Marker, offset: int) -> int:
    return offset if last.drained_since is None else last.drained_since
