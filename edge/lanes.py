"""All lanes of a site, and what happens when an entry of theirs is stored: it is counted and acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from edge import records
from edge.acks import Ticket
from edge.boxes import BoxLane, Drain, Drained
from edge.history import HistoryLane
from edge.holdings import Custody, Holdings
from edge.lane import Control, Entry, Lane, Outcome, Sink
from edge.logs import FixedLogs
from edge.metrics import Metrics
from edge.repeats import RecentKeys
from edge.straybook import StrayBook
from edge.strays import StrayKey, Strays, is_event
from edge.tails import Tails
from fairlead.records.alert import Alert
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, RefusalEntry, ReturnEntry

AlertKey = tuple[str, str]  # alert id and state
LedgerKey = tuple[str, str]  # log, and which entry about it
REMEMBERED = 20_000


class SiteLanes:
    """The lanes of one site's bridge.

    Args:
        sink, urgent: Where lanes append; ``urgent`` waits for no batch and is for alerts only.
        finish: Called with the ticket of each message of which a part is stored.
        fail: Called when one of the site's own logs cannot be appended to.
        on_lost: Told each container's log to which appending is refused for good.
    """

    def __init__(
        self,
        logs: FixedLogs,
        sink: Sink,
        urgent: Sink,
        tails: Tails,
        holdings: Holdings,
        metrics: Metrics,
        *,
        finish: Callable[[Ticket], None],
        fail: Callable[[BaseException], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._sink = sink
        self._tails = tails
        self._holdings = holdings
        self._metrics = metrics
        self._finish = finish
        self._fail = fail
        self._on_lost = on_lost
        self._drain: Drain | None = None
        self._boxes: dict[str, BoxLane] = {}
        self.event_ids: RecentKeys[str] = RecentKeys(REMEMBERED)
        self.alert_keys: RecentKeys[AlertKey] = RecentKeys(REMEMBERED)
        self.letter_keys: RecentKeys[bytes] = RecentKeys(only_redelivered=True)
        self.booking_keys: RecentKeys[bytes] = RecentKeys(only_redelivered=True)
        self.events: Lane[str] = Lane(logs.events, sink, self.event_ids, settle=self._event, fail=fail)
        self.alerts: Lane[AlertKey] = Lane(logs.alerts, urgent, self.alert_keys, settle=self._alert, fail=fail)
        self.letters: Lane[bytes] = Lane(logs.deadletters, sink, self.letter_keys, settle=self._letter, fail=fail)
        self.ledger: Lane[LedgerKey] = Lane(logs.custody, sink, RecentKeys(), settle=self._acknowledge, fail=fail)
        self.bookings: Lane[bytes] | None = None
        if logs.bookings is not None:
            self.bookings = Lane(logs.bookings, sink, self.booking_keys, settle=self._message, fail=fail)
        self.ship = {
            topic: HistoryLane(topic, sink, tails, settle=self._message, fail=fail)
            for topic in (logs.location, logs.environment)
            if topic is not None
        }
        self.strays = Strays(logs.strays, sink, settle=self._stray, fail=fail)
        self.book = StrayBook(
            self.strays,
            tuple(topic for topic in logs.all_strays if topic != logs.strays),
            holdings.view,
            on_stray=self._stray_elsewhere,
        )

    def drain_with(self, drain: Drain) -> None:
        """Say what brings strays in; needed before the first box's lane."""
        self._drain = drain

    def box(self, topic: str) -> BoxLane:
        """The lane of a container's log."""
        lane = self._boxes.get(topic)
        if lane is None:
            if self._drain is None:
                raise RuntimeError("drain_with comes first")
            lane = self._boxes[topic] = BoxLane(
                topic,
                self._sink,
                self._tails,
                self._holdings,
                self.book,
                self._drain,
                on_lost=self._on_lost,
                settle=self._reading,
                fail=self._fail,
            )
        return lane

    def all(self) -> list[Lane[Any]]:
        fixed: list[Lane[Any]] = [self.events, self.ledger, self.letters, self.alerts, self.strays.lane]
        if self.bookings is not None:
            fixed.append(self.bookings)
        return [*self._boxes.values(), *self.ship.values(), *fixed]

    def _stray_elsewhere(self, topic: str) -> None:
        """Another site has kept something for a log: bring it in, if the log is held here."""
        if self._drain is not None and self._holdings.state(topic) is Custody.HELD:
            lane = self.box(topic)
            lane.put(Control(lane.prepare))

    # -- an entry is stored, or was already

    def _message(self, entry: Entry[Any], outcome: Outcome) -> None:
        if outcome is Outcome.APPENDED:
            self._metrics.appended += 1
        else:
            self._metrics.repeats += 1
        self._acknowledge(entry, outcome)

    def _reading(self, entry: Entry[Any], outcome: Outcome) -> None:
        if isinstance(entry, Drained):
            return  # it was acknowledged as a stray
        if outcome is Outcome.APPENDED:
            self._metrics.readings += 1
        self._message(entry, outcome)

    def _event(self, entry: Entry[str], outcome: Outcome) -> None:
        if outcome is Outcome.APPENDED:
            self._metrics.events += 1
        self._message(entry, outcome)

    def _alert(self, entry: Entry[AlertKey], outcome: Outcome) -> None:
        if outcome is Outcome.APPENDED:
            self._metrics.alerts += 1
        self._acknowledge(entry, outcome)

    def _letter(self, entry: Entry[bytes], outcome: Outcome) -> None:
        if outcome is Outcome.APPENDED:
            self._metrics.dead_letters += 1
        else:
            self._metrics.repeats += 1
        self._acknowledge(entry, outcome)

    def _stray(self, entry: Entry[StrayKey], outcome: Outcome) -> None:
        if outcome is Outcome.APPENDED and is_event(entry.key):
            self._metrics.events_kept += 1
        elif outcome is Outcome.APPENDED:
            self._metrics.strays += 1
        else:
            self._metrics.repeats += 1
        self._acknowledge(entry, outcome)

    def _acknowledge(self, entry: Entry[Any], outcome: Outcome) -> None:
        if entry.ticket is not None:
            self._finish(entry.ticket)


def ledger_key(entry: LedgerEntry) -> LedgerKey:
    """What an entry of the ledger is recognised by."""
    match entry:
        case CustodyEntry():
            return entry.log, f"term {entry.term}"
        case ReturnEntry():
            return entry.log, f"return in term {entry.term} of {entry.marker_offset} to {entry.end_offset}"
        case RefusalEntry():
            return entry.log, f"refusal of {entry.order_id}"
        case ClaimEntry():
            return entry.log, f"claim of {entry.event_id} in term {entry.term}"


def put_alerts(lanes: SiteLanes, alerts: Iterable[Alert], ticket: Ticket | None = None) -> None:
    """Put alerts on their way; the message that caused them, if one did, is acknowledged when they are stored too."""
    for alert in alerts:
        if ticket is not None:
            ticket.parts += 1
        lanes.alerts.put(Entry(records.alert(alert), records.alert_key(alert), ticket=ticket))
