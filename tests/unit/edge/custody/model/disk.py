"""What outlives a crash at one site of the model: copies of logs, ledgers and strays logs, unacknowledged messages."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from edge.custody.protocol import Transfer
from edge.messages import MessageId
from fairlead.kafka.protocol.types import LogPosition
from fairlead.records.custody import CustodyEntry, LedgerEntry, Marker, RefusalEntry, ReturnEntry

START: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Violation(AssertionError):
    """One of the invariants of docs/custody.md does not hold."""


class Refused(Exception):
    """The broker does not take an append: an older term (47), out of sequence (45), or the log went on elsewhere."""


class Died(Exception):
    """One of the site's own logs was continued by another bridge of the site: this one cannot go on."""


class Rec(NamedTuple):
    """One record of a container's log. ``body`` is a reading's identity, or a term's marker."""

    term: int
    sequence: int
    body: MessageId | Marker
    late: bool = False
    origin: str = ""


class Order(NamedTuple):
    """An order by hand, and the term of its log when it was given."""

    transfer: Transfer
    term: int | None


class Stray(NamedTuple):
    log: str
    body: MessageId | Transfer


@dataclass(slots=True, eq=False)
class Message:
    """One message that the MQTT broker of a site keeps until it is acknowledged."""

    log: str
    body: MessageId | Transfer
    delivered: bool = False  # to the present bridge
    again: bool = False  # the DUP flag


@dataclass(slots=True, eq=False)
class Copy:
    """One site's copy of a container's log, with the broker's check of the append convention.

    A batch is taken at the end only: in sequence in the newest term, or with sequence 0 in a newer one (at whatever
    offset that is).
    """

    misplaced: bool = False  # a copied record landed at another offset: nothing more is copied
    records: list[Rec] = field(default_factory=list)
    has: set[MessageId] = field(default_factory=set)

    def append(self, record: Rec) -> int:
        """Append, or raise ``Refused``; returns the offset."""
        if self.records:
            last = self.records[-1]
            if record.term < last.term:
                raise Refused("47")
            expected = last.sequence + 1 if record.term == last.term else 0
            if record.sequence != expected:
                raise Refused("45")
        self.records.append(record)
        if isinstance(record.body, MessageId):
            self.has.add(record.body)
        return len(self.records) - 1

    def position(self) -> LogPosition | None:
        """Where the copy ends, and in which term; None when it is empty."""
        if not self.records:
            return None
        end, last = len(self.records), self.records[-1]
        return LogPosition(end, last.term, end - 1 - last.sequence)

    def stale_from(self, seizures: list[tuple[int, int]]) -> int | None:
        """The first offset that is not part of the log, as far as these seizures (term, marker offset) tell.

        An empty copy that is to be made anew takes any batch once: one that began so is no part of the log at all.
        """
        if seizures and self.records and self.records[0].sequence:
            return 0
        return min(
            (at for term, at in seizures if len(self.records) > at and self.records[at].term < term), default=None
        )


@dataclass(slots=True, eq=False)
class Disk:
    """Everything durable at one site. ``seizures`` and ``returned`` are derived from its copies of the ledgers."""

    site: str
    sites: tuple[str, ...]
    copies: dict[str, Copy] = field(default_factory=dict)
    ledgers: dict[str, list[LedgerEntry]] = field(default_factory=dict)
    strays: dict[str, list[Stray]] = field(default_factory=dict)
    kept: set[Stray] = field(default_factory=set)  # the own strays again
    queue: list[Message] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    events: set[str] = field(default_factory=set)  # ids of events in the site's log of events
    trouble: int = 0  # so many of the next questions to the broker are answered with a retriable error
    letters: set[str] = field(default_factory=set)  # ids of events in the log of dead letters
    seizures: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    returned: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # term, marker offset, end
    answered: set[str] = field(default_factory=set)  # ids of events and orders in this site's own ledger

    def __post_init__(self) -> None:
        for site in self.sites:
            self.ledgers[site] = []
            self.strays[site] = []

    def take_entry(self, site: str, entry: LedgerEntry) -> None:
        """Append to the copy of a site's ledger (its own, or by replication)."""
        self.ledgers[site].append(entry)
        if isinstance(entry, CustodyEntry):
            if entry.event == "SEIZURE":
                self.seizures.setdefault(entry.log, []).append((entry.term, entry.marker_offset))
            if site == self.site:
                self.answered.add(entry.event_id)
        elif site == self.site and isinstance(entry, RefusalEntry):
            self.answered.add(entry.order_id)
        elif site == self.site and isinstance(entry, ReturnEntry):
            self.returned[entry.log] = (entry.term, entry.marker_offset, entry.end_offset)

    def keeps(self, log: str, body: MessageId) -> bool:
        """Whether a reading is safe at this site."""
        return body in self.copies[log].has or Stray(log, body) in self.kept


def moment(clock: int) -> dt.datetime:
    """The model's clock as a time."""
    return START + dt.timedelta(seconds=clock)
