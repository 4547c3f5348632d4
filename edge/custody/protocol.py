"""The custody protocol of one site (docs/custody.md): every decision, without I/O.

A procedure (``CustodyProtocol.perform``, ``seize``, ``complete``, ``return_tail``, ...) is a generator. It yields one
``Action`` at a time, receives the action's outcome or error, and returns its result. Between two actions it changes
only this site's state in memory: ``Holdings``, ``CustodyView``, ``Claims`` and the strays' book. A crash can therefore
only fall between two actions.

``edge.custody.term_writer`` and ``edge.custody.drain`` carry out the actions on Kafka. The model in
tests/unit/edge/custody/model carries them out on logs in memory and crashes between any two.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Container, Generator, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from edge.errors import LostCustodyError, NotHolderError, ReplicaBehindError, SeizureError
from edge.holdings import CustodyState, Holdings
from edge.messages import EventMessage
from edge.strays.store import KeptReading, StrayIndex
from fairlead.custody.view import SEIZING_TERMS, CustodyView, Grant, SplitCustodyError
from fairlead.errors import FairleadError, RefusedError
from fairlead.kafka.convention import LAST_TERM
from fairlead.kafka.protocol.errors import (
    UNKNOWN_TOPIC_OR_PARTITION,
    BrokerError,
    Conflict,
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
    """Outcome: the log's ``LogPosition``, None when it is empty.

    ``anew``: read it again, even if the log was given away or an append to it was fenced.
    """

    log: str
    anew: bool = False


@dataclass(frozen=True, slots=True)
class AdoptTerm:
    """Continue the log in a term whose marker is its last record. Outcome: its ``LogPosition``.

    Errors: Fenced, a later term exists. Misplaced, the log does not end with that marker. BrokerError.
    """

    log: str
    term: int


@dataclass(frozen=True, slots=True)
class AppendMarker:
    """Append a marker at the end of its log. Outcome: its offset.

    Args:
        expected_end: Append it only if the log ends here.
        hold: Whether this site appends in the new term.

    Errors: Fenced, Conflict: it is not stored. Misplaced with ``fields["base_offset"]``: it is stored there.
    """

    marker: Marker
    expected_end: int | None
    hold: bool


@dataclass(frozen=True, slots=True)
class ReadMarker:
    """Outcome: the ``StoredMarker`` whose batch begins at an offset; None when no batch begins there (any more).

    ``stored``: the marker was appended just now; wait until it can be read.
    """

    log: str
    offset: int
    stored: bool = False


@dataclass(frozen=True, slots=True)
class AppendEntry:
    """Append to this site's ledger."""

    entry: LedgerEntry


@dataclass(frozen=True, slots=True)
class AppendEvent:
    """Append an equipment event to this site's events, unless it is there."""

    event: Transfer


@dataclass(frozen=True, slots=True)
class PrepareLog:
    """Make a log that is held here ready for appends: drain its strays (``look_again``, then ``drain``)."""

    log: str


@dataclass(frozen=True, slots=True)
class StoreStrays:
    """Wait until the strays that are on their way into this site's strays log are stored."""


@dataclass(frozen=True, slots=True)
class RememberLogs:
    """Load which readings logs have, at least from an offset on. A log that cannot be read is given up.

    Outcome: the logs that make no progress now, which the procedure leaves out (None: there are none).
    """

    offsets: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CopyStrays:
    """Append the strays at some offsets of a strays log to their logs, in order, leaving out those that the log has.

    A log is skipped once it is no longer held. Outcome: as of ``RememberLogs``.
    """

    topic: str
    end: int
    offsets: Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class FindStrays:
    """Outcome: the readings kept for one log in a strays log between two offsets, as ``KeptReading``s."""

    log: str
    topic: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ForgetLog:
    """Forget which readings the log has: another site appends to it now. ``empty``: the log is new."""

    log: str
    empty: bool = False


@dataclass(frozen=True, slots=True)
class GiveUpLog:
    """Stop appending after a refused append, and read from the log who holds it."""

    log: str
    error: FairleadError


@dataclass(frozen=True, slots=True)
class FindStaleTail:
    """Outcome: the part of this site's copy of a seized log that is not in the log (``Stale``), or None."""

    log: str


@dataclass(frozen=True, slots=True)
class KeepTail:
    """Keep the readings of a range of this site's copy as strays. Outcome: ``KeptTail``, once they are stored."""

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
"""A procedure: yields actions, receives their outcomes, returns its result."""


class StoredMarker(NamedTuple):
    """What is stored where a term begins. ``marker`` is None where it is something else than a marker."""

    marker: Marker | None
    batch: bytes


class StaleTail(Protocol):
    """The part of a copy that a seizure has cut off (``fairlead.custody.superseded.Stale``)."""

    @property
    def cut(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def newest(self) -> int: ...


class Book(Protocol):
    """What the protocol asks of the strays that this site can see (``edge.strays.store.StrayBook``)."""

    def drained(self, log: str) -> dict[str, int]: ...
    def passed_on(self, log: str, drained: Mapping[str, int]) -> None: ...
    def indexes(self) -> Iterable[tuple[str, StrayIndex]]: ...
    def may_drain(self, strays: str, log: str) -> bool: ...
    def floor(self, log: str, topic: str) -> int: ...
    def is_put_back(self, log: str) -> bool: ...
    def look_again(self, log: str, topic: str, found: Iterable[KeptReading]) -> None: ...


# -- what asks for custody to move


FUTURE: Final = dt.timedelta(hours=24)
"""How far ahead of the site's clock an event's time may be before it is not believed."""
_BY_HAND: Final = ("HAND", "SEIZURE")


class CustodyMove(Enum):
    """What a transfer asks of custody at this site."""

    NOTHING = "nothing"
    OPEN = "open"
    REOPEN = "reopen"
    CLAIM = "claim"
    GRANT = "grant"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Transfer:
    """Custody of one log is to go to ``to_site`` (None: the box leaves the system). ``event_id`` names it for ever."""

    log: str
    event: CustodyEvent
    event_id: str
    at: dt.datetime
    to_site: str | None
    reason: str = ""
    ordered_by: str = ""


def of_event(message: EventMessage) -> Transfer:
    """What an equipment event asks for. Raises ValueError for a transport event, which moves no custody."""
    code = message.event.payload.equipment_event_type_code
    if message.log is None or code is None:
        raise ValueError("a transport event moves no custody")
    event = message.event
    return Transfer(message.log, code, event.metadata.event_id, event.payload.event_date_time, message.to_site)


def of_order(order: CustodyOrder) -> Transfer:
    """What an order by hand asks for."""
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
    """What the site where a box has come in asks of the one that it left."""
    return Transfer(claim.log, "GTIN", claim.event_id, claim.event_date_time, claim.claimed_by)


def plan(transfer: Transfer, holdings: Holdings, now: dt.datetime, sites: Container[str]) -> CustodyMove:
    """What a transfer asks for, given what is known now. WAIT: custody may be on its way to this site.

    A box that left elsewhere comes in by a CLAIM to the site that it left: who opens the next term is one site only. A
    site that is not among ``sites`` any more cannot answer, and the log is opened as if the box had left here.

    A transfer that happened before the newest grant has been overtaken: others have moved the log on since. (A grant by
    hand tells nothing about that: its time is a person's, that of events is a device's. Nor does one from the future:
    some clock was wrong, and what the box does now must not wait for that day.)

    Raises:
        NotHolderError: the transfer has been overtaken, and this site is not the holder or must not act on it any more.
    """
    grant = holdings.view.grant(transfer.log)
    if grant is not None and grant.event_id == transfer.event_id:
        return CustodyMove.NOTHING  # done before; the message came again
    state = holdings.state(transfer.log)
    if transfer.event == "GTIN" and state in (CustodyState.HELD, CustodyState.INCOMING):
        return CustodyMove.NOTHING
    dated = grant is not None and grant.event not in _BY_HAND and grant.at <= now + FUTURE
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
    """The claims that this site has made, and those that it is to answer; others are passed over."""

    def __init__(self, site: str, view: CustodyView) -> None:
        self._site = site
        self._view = view
        self._made: dict[str, tuple[int, str]] = {}  # of each log the newest: term and event
        self._asked: dict[str, list[ClaimEntry]] = defaultdict(list)

    def learn(self, entry: ClaimEntry) -> bool:
        """Take in a claim from any ledger; True when this site is the one to answer it."""
        if entry.claimed_by == self._site:
            self._made[entry.log] = (entry.term, entry.event_id)
        if entry.left_site != self._site or entry.claimed_by == self._site:
            return False
        self._asked[entry.log].append(entry)
        return True

    def is_made(self, log: str, term: int, event_id: str) -> bool:
        """Whether this site's newest claim to a log is this one."""
        return self._made.get(log) == (term, event_id)

    def logs(self) -> Collection[str]:
        """Logs that others claim of this site, those that were answered perhaps among them."""
        return tuple(self._asked)

    def next(self, log: str) -> ClaimEntry | None:
        """The claim to answer now: of those that are not void, the box that came in first. None: there is none."""
        grant = self._view.grant(log)
        open_still = [each for each in self._asked.get(log, ()) if grant is None or each.term >= grant.term]
        if not open_still:
            self._asked.pop(log, None)
            return None
        self._asked[log] = open_still
        valid = [each for each in open_still if grant is not None and left_here(grant, self._site, each.term)]
        return min(valid, key=lambda each: (each.event_date_time, each.claimed_by), default=None)


def left_here(grant: Grant, site: str, term: int) -> bool:
    """Whether a box is outside since it left a site in this term."""
    return grant.to_site is None and grant.from_site == site and grant.term == term


# -- the protocol


class CustodyProtocol:
    """Decides for one site. Procedures about one log must not overlap; those about different logs may.

    Args:
        sites: Those of the topology.
        now: The time.
        nonce: Gives something unique for each marker.
        disbelieve: Why an entry of a site is not believed, None when it is (``topologies.ledger_trust``).
    """

    def __init__(
        self,
        holdings: Holdings,
        book: Book,
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
        self.splits: dict[str, str] = {}  # logs granted twice in one term, with what the ledgers say about it
        self._book = book
        self._sites = sites
        self._now = now
        self._nonce = nonce
        self._disbelieve = disbelieve
        self._writing: set[tuple[str, int]] = set()  # entries that are being appended: log and term
        self._returned: dict[str, tuple[int, int, int]] = {}  # newest seizure, cut, and end of the copy
        self._answered: set[str] = set()  # ids of orders by hand that this site's ledger has answered

    def is_writing(self, entry: CustodyEntry) -> bool:
        """Whether an entry of this site's ledger is being written by this process now."""
        return (entry.log, entry.term) in self._writing

    # -- deciding

    def is_outside(self, topic: str) -> bool:
        """Whether the box of a log has left the system."""
        grant = self.view.grant(topic)
        return grant is not None and grant.to_site is None

    def has_claimed(self, transfer: Transfer) -> bool:
        """Whether the site that the box of a log has left was asked for it already."""
        grant = self.view.grant(transfer.log)
        return grant is not None and self.claims.is_made(transfer.log, grant.term, transfer.event_id)

    def plan(self, transfer: Transfer) -> CustodyMove:
        """What a transfer asks for, given what is known now; raises as the function ``plan``."""
        return plan(transfer, self.holdings, self._now(), self._sites)

    def decide(self, transfer: Transfer) -> Steps[CustodyMove]:
        """As ``plan``; before a log is opened, the ledgers are read to their ends: that it is open elsewhere may be
        here already and not be known yet.

        Raises:
            NotHolderError: as ``plan``.
        """
        move = self.plan(transfer)
        if move in (CustodyMove.OPEN, CustodyMove.REOPEN, CustodyMove.CLAIM):
            yield ReadLedgers()
            move = self.plan(transfer)
        return move

    # -- moving custody

    def perform(self, transfer: Transfer) -> Steps[CustodyMove]:
        """Carry out a transfer.

        Raises:
            NotHolderError: as ``plan``.
            ReplicaBehindError: the log's past is not all here.
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
        """Carry out an equipment event that has come, or that has waited: into the site's events first, then custody.

        Args:
            known: The site's events had it before.
        """
        try:
            move = yield from self.decide(event)  # a refusal must come before anything is written
            if move is not CustodyMove.WAIT:
                yield AppendEvent(event)
                move = yield from self.perform(event)
        except NotHolderError as error:
            # One that was carried out before comes again: since then the box has moved on.
            return EventOutcome(EventResult.REPEATED if known else EventResult.REFUSED, error=error)
        except FairleadError as error:
            if not error.retriable and not isinstance(error, LostCustodyError):
                raise
            return EventOutcome(EventResult.WAITS, error=error)
        return EventOutcome(
            EventResult.WAITS if move in (CustodyMove.WAIT, CustodyMove.CLAIM) else EventResult.DONE, move
        )

    def may_try(self, event: Transfer, *, held_up: bool) -> Try:
        """Whether an event that waits is to be tried now. Events of one log are tried in order.

        Where the box is outside, only its coming in passes those that wait: they are older.

        Args:
            held_up: An earlier one of the log was passed over.
        """
        try:
            move = self.plan(event)
        except NotHolderError:
            return Try.NOW  # it has been overtaken: carrying it out says so
        if move is CustodyMove.CLAIM and self.has_claimed(event):
            move = CustodyMove.WAIT
        if move is CustodyMove.WAIT and not self.is_outside(event.log):
            return Try.STOP
        held_up |= move is CustodyMove.WAIT
        return Try.LATER if held_up and move in (CustodyMove.WAIT, CustodyMove.GRANT, CustodyMove.NOTHING) else Try.NOW

    def is_settled(self, topic: str, event_id: str, at: dt.datetime, *, known: bool) -> bool:
        """Whether an event waits no longer: it moved the log, or was carried out and others have moved the log since.

        Args:
            known: The site's events have it.
        """
        grant = self.view.grant(topic)
        return grant is not None and (grant.event_id == event_id or (grant.at > at and known))

    def carry_out_order(
        self, order: Transfer, *, term: int | None, check: Callable[[], None]
    ) -> Steps[FairleadError | None]:
        """Carry out an order by hand, or refuse it in the ledger; gives why it was refused.

        Args:
            term: The term of the log when the order was given; in another one it is refused. None: in any.
            check: Raises what is wrong with the order whatever the state of its log.

        Raises:
            FairleadError: retriable: the order is to be tried again.
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
            raise RefusedError(f"no ledger at {self.site} knows {order.log}: it was never opened", log=order.log)
        if term is not None and term != grant.term:
            raise RefusedError(
                f"{order.log} has moved since the order was given: it was in term {term}, it is in term {grant.term}, "
                f"held by {grant.to_site}",
                hint="check with 'fairlead custody show', and give the order again if it is still right",
                log=order.log,
            )

    def answer(self, topic: str) -> Steps[bool]:
        """Give a log to the site that claims it, if any does still. Raises as ``perform``."""
        claim = self.claims.next(topic)
        if claim is None:
            return False
        yield from self._lost_when_refused(topic, self._reopen(of_claim(claim)))
        return True

    def _lost_when_refused(self, topic: str, moving: Steps[None]) -> Steps[None]:
        """A log whose next term cannot be opened here is not this site's."""
        try:
            yield from moving
        except (Fenced, Misplaced, Conflict) as error:
            self.holdings.mark_broken(topic)
            yield GiveUpLog(topic, error)
            raise LostCustodyError(
                f"{self.site} cannot open the next term of {topic}: {error.what}",
                hint="the log was continued elsewhere; compare the copies with 'fairlead audit'",
                log=topic,
            ) from error

    def _open(self, transfer: Transfer) -> Steps[None]:
        topic = transfer.log
        yield CreateLog(topic)
        if (yield ReadPosition(topic)) is not None:
            raise ReplicaBehindError(
                f"{self.site} cannot open {topic}: its copy has records, and no ledger here says who holds it",
                hint="it goes on as soon as the holder's ledger is replicated here: fairlead status",
                log=topic,
            )
        marker = self._new_marker(transfer, term=1, previous=None)
        offset = yield from self._append_marker(marker, expected_end=0)
        yield ForgetLog(topic, empty=True)
        yield from self.publish(marker, offset, ordered_by=transfer.ordered_by)

    def _claim(self, transfer: Transfer) -> Steps[None]:
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
            claimed_date_time=self._now(),
            claimed_by=self.site,
        )
        yield AppendEntry(claim)
        self.claims.learn(claim)

    def _reopen(self, transfer: Transfer) -> Steps[None]:
        """A box that had left the system here comes in again, here or at another site."""
        topic = transfer.log
        grant = self._known(topic)
        try:
            position: LogPosition = yield AdoptTerm(topic, grant.term)
        except (Misplaced, BrokerError) as error:
            raise ReplicaBehindError(
                f"{self.site} cannot open {topic} again: its copy does not end where the box left the system "
                f"({error.what})",
                hint="it is done as soon as the copy is complete",
                log=topic,
            ) from error
        marker = self._new_marker(transfer, term=grant.term + 1, previous=grant)
        here = transfer.to_site == self.site
        offset = yield from self._append_marker(marker, expected_end=position.end, hold=here)
        yield ForgetLog(topic)
        yield from self.publish(marker, offset, ordered_by=transfer.ordered_by)

    def _grant(self, transfer: Transfer) -> Steps[None]:
        topic = transfer.log
        yield PrepareLog(topic)  # what was kept for this log while it was elsewhere belongs before the marker
        grant = self._known(topic)
        # Asked once more: nothing but this stops the marker of a new term, which a broker takes at any end.
        if self.holdings.state(topic) is not CustodyState.HELD or grant.to_site != self.site:
            raise LostCustodyError(
                f"{self.site} cannot grant {topic} now: while its strays were brought in, the log could no longer be "
                "appended to here",
                hint="an event is tried again by itself; give an order again, see 'fairlead custody show'",
                log=topic,
            )
        position: LogPosition | None = yield ReadPosition(topic)
        marker = self._new_marker(transfer, term=grant.term + 1, previous=grant)
        end = position.end if position is not None else None
        offset = yield from self._append_marker(marker, expected_end=end, hold=False)
        yield ForgetLog(topic)
        yield from self.publish(marker, offset, ordered_by=transfer.ordered_by)

    def seize(self, transfer: Transfer, *, term: int | None = None) -> Steps[None]:
        """Take a log from a holder that is lost: open a term at the end of this site's own copy.

        Args:
            term: The log's term when the seizure was ordered; in another one it is refused. None: in any.

        Raises:
            RefusedError: the log is in another term.
            SeizureError: nobody ever opened the log, this site holds it, or its copy has nothing to go on from.
            LostCustodyError: the copy grew at that moment; the order may be given again.
        """
        topic = transfer.log
        self._seizable(topic)
        if (yield from self._enter_stored_seizure(transfer)):
            return
        self._check_term(transfer, term)
        grant = self._seizable(topic)
        position, last = yield from self._end_of_copy(topic)
        stale: StaleTail | None = yield FindStaleTail(topic)
        if stale is not None:
            raise SeizureError(
                f"the copy of {topic} at {self.site} goes on from offset {stale.cut} in a term that an earlier "
                "seizure has ended",
                hint="wait until the copy has been made anew: fairlead status",
                log=topic,
            )
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
            # How far the lost holder had drained since the last marker in this copy, nobody here knows.
            drained=last.drained if last is not None else {},
            drained_since=_since(last, position.marker) if last is not None else 0,
            reason=transfer.reason,
        )
        try:
            offset = yield from self._append_marker(marker, expected_end=position.end)
        except (Fenced, Misplaced, Conflict) as error:
            if (yield from self._enter_stored_seizure(transfer)):
                return  # another bridge of this site has stored the marker, and need not live to write its entry
            raise LostCustodyError(
                f"{self.site} could not seize {topic}: its copy has just grown ({error.what})",
                hint="give the order again",
                log=topic,
            ) from error
        yield ForgetLog(topic)
        yield from self.publish(marker, offset, ordered_by=transfer.ordered_by)

    def _enter_stored_seizure(self, transfer: Transfer) -> Steps[bool]:
        """Write the entry of a seizure whose marker ends the terms of this copy; True when it was this order's.

        A crash or an error may come between a marker and its entry, and an entry of the lost holder before the next
        try. The order is too late then, but its marker is stored: without the entry nobody knows that histories end
        there, nor once another marker is on top of it.
        """
        topic = transfer.log
        position, last = yield from self._end_of_copy(topic)
        if last is None or last.event != "SEIZURE" or last.term <= (self.view.term(topic) or 0):
            return False
        if last.to_site != self.site:  # only that site's entry has the true offset, a copy does not
            raise SeizureError(
                f"{last.to_site} has seized {topic} (term {last.term}), and its ledger is not here yet",
                hint=f"wait for the ledger of {last.to_site}: fairlead custody show {topic}",
                log=topic,
            )
        ordered = last.event_id == transfer.event_id
        yield ForgetLog(topic)
        yield from self.publish(last, position.marker, ordered_by=transfer.ordered_by if ordered else "")
        return ordered

    def _seizable(self, topic: str) -> Grant:
        """The newest grant of a log that another site holds."""
        grant = self.view.grant(topic)
        if grant is None:
            raise SeizureError(f"no ledger at {self.site} knows {topic}: it was never opened", log=topic)
        if self.holdings.state(topic) is CustodyState.HELD:
            raise SeizureError(f"{self.site} holds {topic} already", log=topic)
        return grant

    def _end_of_copy(self, topic: str) -> Steps[tuple[LogPosition, Marker | None]]:
        """Where this site's copy ends, and the newest marker in it (None where it is no longer stored)."""
        try:
            position: LogPosition | None = yield ReadPosition(topic, anew=True)
        except BrokerError as error:
            if error.retriable and error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise  # a marker of this order may be stored already
            raise SeizureError(
                f"{self.site} has no copy of {topic} that it could go on from: {error.what}",
                hint="seize it at a site that has one, see 'fairlead custody show'",
                log=topic,
            ) from error
        if position is None or position.term < 1:
            raise SeizureError(
                f"the copy of {topic} at {self.site} holds no record of any term",
                hint="seize it at a site that has one, see 'fairlead custody show'",
                log=topic,
            )
        stored: StoredMarker | None = yield ReadMarker(topic, position.marker)
        return position, stored.marker if stored is not None else None

    def grant_by_hand(self, transfer: Transfer) -> Steps[None]:
        """Carry out an order to grant a log.

        Raises:
            ReplicaBehindError: custody is this site's own, but its copy is not complete.
            NotHolderError: this site does not hold the log.
            LostCustodyError: as ``perform``.
        """
        topic = transfer.log
        grant = self.view.grant(topic)
        if grant is not None and grant.event_id == transfer.event_id:
            return  # a crash had cut it short, and it was completed at the start
        match self.holdings.state(topic):
            case CustodyState.HELD:
                yield from self.perform(transfer)
            case CustodyState.INCOMING:
                marker = self.view.marker(topic)
                raise ReplicaBehindError(
                    f"{self.site} is behind: custody of {topic} is its own after the marker at offset {marker}, "
                    "and its copy does not reach that yet",
                    hint="give the order again when 'fairlead status' shows the copy complete",
                    log=topic,
                    marker=marker,
                )
            case _:
                raise NotHolderError(topic, self.site, self.view.holder(topic), doing="grant custody")

    # -- markers and their ledger entries

    def _append_marker(self, marker: Marker, *, expected_end: int | None, hold: bool = True) -> Steps[int]:
        """Append a marker; gives its offset. It may land later than expected, where another writer was faster at that
        moment: it fences all the same, and what came before it is part of the log."""
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
        """Write the ledger entry of a marker that is stored at an offset, and let this site's own view know."""
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
            return  # seized meanwhile: what the newer term made of the log stays
        self._book.passed_on(entry.log, entry.drained)
        if entry.to_site == self.site:
            self.holdings.hold(entry.log, entry.term)
        else:
            self.holdings.release(entry.log)

    def _entry_of(self, marker: Marker, offset: int, batch: bytes, site: str, ordered_by: str = "") -> CustodyEntry:
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
        """At start, when the ledgers have been read: which of the logs here may be this site's, for ``take_up``."""
        for grant in self.view.granted_to(self.site):
            self.holdings.apply_grant(grant)
        return [topic for topic in topics if self.view.holder(topic) in (None, self.site)]

    def take_up(self, topic: str, position: LogPosition | None) -> bool:
        """At start: hold a log whose last record is of this site's own term. True where the log has a later term than
        the ledgers know: then ``complete`` says whose."""
        if position is None:
            return False
        term = self.view.term(topic) or 0
        if position.term == term and self.view.holder(topic) == self.site:
            self.holdings.hold(topic, term)
        return position.term > term

    def complete(self, topic: str, position: LogPosition) -> Steps[int]:
        """A log is in a later term than the ledgers know: its marker says who holds it. Gives the entries written."""
        stored: StoredMarker | None = yield ReadMarker(topic, position.marker)
        if stored is None or stored.marker is None:
            self.holdings.mark_broken(topic)
            log.error(
                "%s",
                LostCustodyError(
                    f"{topic} is in term {position.term}, the ledger knows term {self.view.term(topic)}, and the "
                    f"term's marker is no longer here: {self.site} keeps its readings as strays",
                    hint="wait for the other site's ledger to be replicated here",
                ),
            )
            return 0
        marker = stored.marker
        if self._made_here(marker):
            yield from self.publish(marker, position.marker)
            return 1
        if marker.event == "SEIZURE":
            return 0  # where it truly is, its site's entry tells: a copied marker may have landed elsewhere
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
            if grant.to_site == self.site:  # it was taken over here, and only the entry is missing
                self.holdings.hold(topic, grant.term)
        return 0

    def _made_here(self, marker: Marker) -> bool:
        if marker.event == "SEIZURE" or marker.from_site is None:
            return marker.to_site == self.site
        return marker.from_site == self.site

    def recheck(self, topic: str, *, mend: Callable[[Grant], bool]) -> Steps[bool]:
        """Find out from the log itself who holds it, after an append was refused or the log could not be read.

        Gives True where this site does, and goes on.

        A log whose present term is this site's, and which has nothing but this term from its marker on, was only longer
        than thought: the last append of a bridge that was killed may arrive after the next one has looked.

        Args:
            mend: Whether a log that is whole may be appended to again.
        """
        if self.holdings.state(topic) is not CustodyState.BROKEN:
            return False
        position: LogPosition | None = yield ReadPosition(topic, anew=True)
        grant = self.view.grant(topic)
        if position is None:
            return False
        if grant is None or position.term > grant.term:
            yield from self.complete(topic, position)
            return False
        whole = grant.to_site == self.site and (position.term, position.marker) == (grant.term, grant.marker)
        if not whole or not mend(grant):
            return False
        self.holdings.hold(grant.log, grant.term)
        return True

    # -- what the ledgers say

    def learn(self, entry: LedgerEntry) -> None:
        """Take in an entry of this site's own ledger."""
        match entry:
            case ReturnEntry():
                self._returned[entry.log] = (entry.term, entry.marker_offset, entry.end_offset)
            case CustodyEntry(event="HAND" | "SEIZURE"):
                self._answered.add(entry.event_id)
            case RefusalEntry():
                self._answered.add(entry.order_id)

    def is_answered(self, order_id: str) -> bool:
        """Whether this site's ledger has a grant, a seizure or a refusal for an order by hand."""
        return order_id in self._answered

    def apply(self, entry: CustodyEntry, *, own: bool, at_start: bool) -> CustodyChange | None:
        """An entry of any ledger; what it changes here, None when it changes nothing.

        Entries that are found at the start only fill the view: ``take_up`` compares it with the logs then.

        Args:
            own: It is in this site's ledger: what this process writes itself, ``publish`` sees to.
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
        """What came of ``AdoptTerm`` for a log that the ledger gives to this site. True: it is held now.

        Raises:
            FairleadError: what waiting cannot mend.
        """
        if self.view.grant(grant.log) != grant:
            return False  # it has moved on meanwhile
        match result:
            case FairleadError() if result.retriable:
                return False  # at the next look
            case Conflict():
                return False  # an append of this site's earlier term is under way still; at the next look
            case Misplaced() if result.fields.get("term", grant.term) < grant.term:
                return False  # the copy goes on in an older term, which a seizure has cut off: it will be made anew
            case Fenced() | Misplaced() | FatalBrokerError():
                self.holdings.mark_broken(grant.log)
                log.error(
                    "%s: given to this site in term %d, but cannot be taken over: %s", grant.log, grant.term, result
                )
                return False
            case FairleadError():
                raise result
        self.holdings.hold(grant.log, grant.term)
        return True

    # -- what a seizure has cut off

    def is_returned(self, topic: str, stale: StaleTail) -> bool:
        """Whether this site's ledger says already that the readings of a stale copy are kept."""
        return self._returned.get(topic) == (stale.newest, stale.cut, stale.end)

    def return_tail(self, topic: str) -> Steps[ReturnEntry | None]:
        """Keep the readings of one copy beyond a seizure as strays, and report that in the ledger."""
        stale: StaleTail | None = yield FindStaleTail(topic)
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
        """Look for the strays of a log anew, before anything is appended in a term of this site's own.

        After a seizure less may be drained than before, in every later term of the log.
        """
        if topic not in self.view.seized() and not self._book.is_put_back(topic):
            return
        for strays, index in self._book.indexes():
            found: list[KeptReading] = []
            position = self._book.floor(topic, strays)
            while position < (end := index.end):  # it grows while it is read; then the book knows the rest already
                found += yield FindStrays(topic, strays, position, end)
                position = end
            self._book.look_again(topic, strays, found)

    def drain(self, topics: Collection[str]) -> Steps[None]:
        """Bring the strays of logs that are held here into them: in order, and each once.

        One pass through each strays log serves every log: this site's own first, then the copies of the others. A stray
        counts as drained when its log has its reading, by (device, boot, sequence), so a crash at any point and another
        pass repeat nothing. For that the log must be remembered back to the marker of the present term (or further,
        after a seizure); what was drained before that the marker itself tells. A log that does not go on is left out:
        what is left of its strays waits for another pass.
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
            grants = {topic: self.view.grant(topic) for topic in wanted}
            since = {topic: each.drained_since + 1 for topic, each in grants.items() if each is not None}
            stuck.update((yield RememberLogs(since)) or ())
            # Logs may have been passed on meanwhile: their strays are in them, and wait no longer.
            offsets = {topic: frozenset(index.offsets(topic)) for topic in wanted if topic in index.kept}
            offsets = {topic: each for topic, each in offsets.items() if topic not in stuck}
            if offsets:
                stuck.update((yield CopyStrays(strays, end, offsets)) or ())
            for topic in wanted:
                if self.holdings.state(topic) is CustodyState.HELD and topic not in stuck:
                    index.drained(topic, upto=end)


class EventResult(Enum):
    """What became of an event."""

    DONE = "done"
    REPEATED = "repeated"
    REFUSED = "refused"
    WAITS = "waits"


class EventOutcome(NamedTuple):
    """What became of an event: the move that was made, or why it waits or was refused."""

    result: EventResult
    move: CustodyMove | None = None
    error: FairleadError | None = None


class Try(Enum):
    """Whether an event that waits is tried now. STOP: nor are those behind it."""

    NOW = "now"
    LATER = "later"
    STOP = "stop"


class CustodyChange(NamedTuple):
    """A log has a new newest grant; its state here before and now."""

    grant: Grant
    before: CustodyState
    now: CustodyState


class KeptTail(NamedTuple):
    """What came of ``KeepTail``."""

    readings: int
    strays_log: str
    strays_end: int


def _since(last: Marker, offset: int) -> int:
    return offset if last.drained_since is None else last.drained_since
