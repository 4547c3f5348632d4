"""The state at one site of the model that outlives a crash: copies of logs, ledgers and strays logs, unacknowledged
messages.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from edge.custody.protocol import Transfer
from edge.messages import MessageId
from fairlead.kafka.protocol.types import LogPosition
from fairlead.records.custody import CustodyEntry, LedgerEntry, Marker, RefusalEntry, ReturnEntry

SITES: Final = ("hamburg", "tokyo", "ship-one", "ship-two")
PORTS: Final = SITES[:2]
START: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Violation(AssertionError):
    """An invariant of docs/custody.md does not hold."""


class Refused(Exception):
    """The broker refuses an append: an older term (error 47), out of sequence (45), or the log has diverged."""


class Died(Exception):
    """Another bridge of the site has appended to one of the site's own logs: this bridge cannot continue."""


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
    """A message that the MQTT broker of a site keeps until it is acknowledged."""

    log: str
    body: MessageId | Transfer
    delivered: bool = False  # whether it was sent to the present bridge
    again: bool = False  # the DUP flag


@dataclass(slots=True, eq=False)
class Copy:
    """One site's copy of a container's log, with the broker's check of the append convention.

    The broker accepts a batch at the end only: in sequence in the newest term, or with sequence 0 in a newer one (at
    any offset).
    """

    misplaced: bool = False  # a copied record landed at another offset: copying has stopped
    records: list[Rec] = field(default_factory=list)
    has: set[MessageId] = field(default_factory=set)

    def append(self, record: Rec) -> int:
        """Append a record and return its offset, or raise ``Refused``."""
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
        """Return the copy's end and its term; None when it is empty."""
        if not self.records:
            return None
        end, last = len(self.records), self.records[-1]
        return LogPosition(end, last.term, end - 1 - last.sequence)

    def stale_from(self, seizures: list[tuple[int, int]]) -> int | None:
        """Return the first offset that is not part of the log, according to these seizures (term, marker offset).

        An empty copy that is about to be rebuilt accepts any batch once. A copy that began so is not part of the log at
        all.
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
    kept: set[Stray] = field(default_factory=set)  # the site's own strays, as a set
    queue: list[Message] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    events: set[str] = field(default_factory=set)  # ids of events in the site's log of events
    trouble: int = 0  # number of coming requests to the broker that fail with a retriable error
    letters: set[str] = field(default_factory=set)  # ids of events in the dead-letter log
    seizures: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    returned: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # term, marker offset, end
    answered: set[str] = field(default_factory=set)  # ids of events and orders in this site's own ledger

    def __post_init__(self) -> None:
        for site in self.sites:
            self.ledgers[site] = []
            self.strays[site] = []

    def take_entry(self, site: str, entry: LedgerEntry) -> None:
        """Append to this site's copy of a ledger, its own or a replicated one."""
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
        """Return whether this site has stored the reading, in its log or among its strays."""
        return body in self.copies[log].has or Stray(log, body) in self.kept


def moment(clock: int) -> dt.datetime:
    """Convert the model's clock to a time."""
    return START + dt.timedelta(seconds=clock)
