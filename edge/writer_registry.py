"""All log writers of one site, and the callbacks that count and acknowledge their entries once these are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from edge.holdings import CustodyState, Holdings
from edge.logwriter import records
from edge.logwriter.container import BrokenLogs, ContainerWriter, DedupWriter, Drain
from edge.logwriter.dedup import RecentKeys
from edge.logwriter.writer import Barrier, EntryOutcome, LogEntry, LogWriter, Sink
from edge.metrics import Metrics
from edge.mqtt.acks import PendingAck
from edge.site_kafka import SiteKafka
from edge.site_logs import FixedLogs
from edge.strays.store import StrayBook
from fairlead.records.alert import Alert
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, RefusalEntry, ReturnEntry

AlertKey = tuple[str, str]  # alert id and state
LedgerKey = tuple[str, str]  # log, and a description of the entry
RollCallKey = tuple[str, str]  # id of the departure's event, and the state
REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class SiteCustody:
    """The parts of custody that the writers of containers' logs use.

    ``holdings`` has the logs that the site may append to, and ``book`` the strays that wait. ``drain`` appends these
    strays to their logs. ``broken`` collects the logs whose appends are refused.
    """

    holdings: Holdings
    book: StrayBook
    drain: Drain
    broken: BrokenLogs = field(default_factory=BrokenLogs)


class Settlement:
    """Counts entries that are safe, and acknowledges their messages.

    Args:
        fail: Called with an error that a writer cannot handle; the bridge stops.
    """

    def __init__(self, metrics: Metrics, fail: Callable[[BaseException], None]) -> None:
        self.metrics = metrics
        self.fail = fail

    def settle_message(self, entry: LogEntry[Any], outcome: EntryOutcome) -> None:
        if outcome is EntryOutcome.APPENDED:
            self.metrics.appended += 1
        else:
            self.metrics.repeats += 1
        if entry.ack is not None:
            entry.ack.finish_part()

    def settle_reading(self, entry: LogEntry[Any], outcome: EntryOutcome) -> None:
        if entry.kept:  # counted and acknowledged as a stray before
            if outcome is EntryOutcome.APPENDED:
                self.metrics.drained += 1
            return
        if outcome is EntryOutcome.APPENDED:
            self.metrics.readings += 1
            self.metrics.appended += 1
        else:
            self.metrics.repeats += 1
        if entry.ack is not None:
            entry.ack.finish_part()

    def settle_event(self, entry: LogEntry[str], outcome: EntryOutcome) -> None:
        if outcome is EntryOutcome.APPENDED:
            self.metrics.events += 1
        self.settle_message(entry, outcome)

    def settle_alert(self, entry: LogEntry[AlertKey], outcome: EntryOutcome) -> None:
        if outcome is EntryOutcome.APPENDED:
            self.metrics.alerts += 1
        self.acknowledge(entry, outcome)

    def settle_letter(self, entry: LogEntry[bytes], outcome: EntryOutcome) -> None:
        if outcome is EntryOutcome.APPENDED:
            self.metrics.dead_letters += 1
        else:
            self.metrics.repeats += 1
        self.acknowledge(entry, outcome)

    def acknowledge(self, entry: LogEntry[Any], _outcome: EntryOutcome) -> None:
        """Acknowledge an entry without counting it; ledger entries are counted where they are made."""
        if entry.ack is not None:
            entry.ack.finish_part()


class AlertWriter(LogWriter[AlertKey]):
    """The writer of a site's alerts. Remembers the newest states, so that none is appended twice after a restart."""

    __slots__ = ("keys",)

    def __init__(self, log: str, sink: Sink, settlement: Settlement) -> None:
        self.keys: RecentKeys[AlertKey] = RecentKeys(REMEMBERED)
        super().__init__(log, sink, self.keys, settle=settlement.settle_alert, fail=settlement.fail)

    def append_alerts(self, alerts: Iterable[Alert], ack: PendingAck | None = None) -> None:
        """Enqueue alerts. ``ack`` belongs to the message that caused them; its PUBACK then waits for them too."""
        for alert in alerts:
            if ack is not None:
                ack.parts += 1
            self.enqueue(LogEntry(records.alert(alert), records.alert_state_key(alert), ack=ack))

    def hold_back(self, ack: PendingAck) -> None:
        """Have a message's PUBACK also wait for all alerts that are in the queue now."""

        async def finish() -> None:
            ack.finish_part()

        ack.parts += 1
        self.enqueue(Barrier(finish))


class WriterRegistry:
    """The writers of one site's bridge."""

    def __init__(
        self, logs: FixedLogs, kafka: SiteKafka, custody: SiteCustody, alerts: AlertWriter, settlement: Settlement
    ) -> None:
        sink, fail = kafka.appender, settlement.fail
        self.fixed_logs = frozenset(logs.all())  # the site's own
        self.holdings = custody.holdings
        self.book = custody.book
        self.strays = custody.book.own
        self.broken = custody.broken
        self.metrics = settlement.metrics
        self._kafka = kafka
        self._custody = custody
        self._settlement = settlement
        self._boxes: dict[str, ContainerWriter] = {}
        self.event_ids: RecentKeys[str] = RecentKeys(REMEMBERED)
        self.letter_keys: RecentKeys[bytes] = RecentKeys(only_redelivered=True)
        self.booking_keys: RecentKeys[bytes] = RecentKeys(only_redelivered=True)
        self.alerts = alerts
        self.events: LogWriter[str] = LogWriter(
            logs.events, sink, self.event_ids, settle=settlement.settle_event, fail=fail
        )
        self.letters: LogWriter[bytes] = LogWriter(
            logs.deadletters, sink, self.letter_keys, settle=settlement.settle_letter, fail=fail
        )
        self.ledger: LogWriter[LedgerKey] = LogWriter(
            logs.custody, sink, RecentKeys(), settle=settlement.acknowledge, fail=fail
        )
        self.bookings: LogWriter[bytes] | None = None
        if logs.bookings is not None:
            self.bookings = LogWriter(
                logs.bookings, sink, self.booking_keys, settle=settlement.settle_message, fail=fail
            )
        self.roll_calls: LogWriter[RollCallKey] | None = None
        if logs.roll_calls is not None:
            self.roll_calls = LogWriter(
                logs.roll_calls, sink, RecentKeys(REMEMBERED), settle=settlement.acknowledge, fail=fail
            )
        self.digests: LogWriter[int] | None = None  # by the digest's time, milliseconds
        if logs.digest is not None:
            memory: RecentKeys[int] = RecentKeys(1, only_redelivered=True)  # none comes twice
            self.digests = LogWriter(logs.digest, sink, memory, settle=settlement.acknowledge, fail=fail)
        self.ship = {
            log: DedupWriter(log, sink, kafka.tails, settle=settlement.settle_message, fail=fail)
            for log in (logs.location, logs.environment)
            if log is not None
        }

    def box(self, log: str) -> ContainerWriter:
        """Return the writer of a container's log; create it at first use."""
        writer = self._boxes.get(log)
        if writer is None:
            writer = self._boxes[log] = ContainerWriter(
                log,
                self._kafka.appender,
                self._kafka.tails,
                self._custody,
                settle=self._settlement.settle_reading,
                fail=self._settlement.fail,
            )
        return writer

    def drain_soon(self, log: str) -> None:
        """Drain the strays that wait for a log, if this site holds it, even if no reading follows."""
        if self.holdings.state(log) is CustodyState.HELD and self.book.has_any_for(log):
            writer = self.box(log)
            writer.enqueue(Barrier(writer.prepare))

    def all(self) -> list[LogWriter[Any]]:
        fixed: list[LogWriter[Any]] = [self.events, self.ledger, self.letters, self.alerts, self.strays.writer]
        fixed += [writer for writer in (self.bookings, self.roll_calls, self.digests) if writer is not None]
        return [*self._boxes.values(), *self.ship.values(), *fixed]


def ledger_key(entry: LedgerEntry) -> LedgerKey:
    """Return the key by which a repeat of a ledger entry is recognised."""
    match entry:
        case CustodyEntry():
            return entry.log, f"term {entry.term}"
        case ReturnEntry():
            return entry.log, f"return in term {entry.term} of {entry.marker_offset} to {entry.end_offset}"
        case RefusalEntry():
            return entry.log, f"refusal of {entry.order_id}"
        case ClaimEntry():
            return entry.log, f"claim of {entry.event_id} in term {entry.term}"
