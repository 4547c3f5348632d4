"""All log writers of a site. When an entry is stored, its message is counted and acknowledged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from edge.holdings import Holdings
from edge.logwriter import records
from edge.logwriter.container import ContainerWriter, Drain
from edge.logwriter.dedup import RecentKeys
from edge.logwriter.dedup_writer import DedupWriter
from edge.logwriter.tail_reader import TailReader
from edge.logwriter.writer import EntryOutcome, LogEntry, LogWriter, Sink
from edge.metrics import Metrics
from edge.mqtt.acks import PendingAck
from edge.site_logs import FixedLogs
from edge.strays.index import StrayBook
from fairlead.errors import FairleadError
from fairlead.records.alert import Alert
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, RefusalEntry, ReturnEntry

AlertKey = tuple[str, str]  # alert id and state
LedgerKey = tuple[str, str]  # log, and which entry about it
REMEMBERED = 20_000
FIRST_LOOK = 1.0  # seconds until a broken log that could not be looked at is looked at again
log = logging.getLogger(__name__)


@dataclass(slots=True)
class BrokenLog:
    """When a log that cannot be appended to is looked at next, on the monotonic clock."""

    due: float
    retriable: bool  # whether it broke by an error that passes
    delay: float  # seconds until the next look after that


class BrokenLogs:
    """Containers' logs that cannot be appended to, or not be read, until the log itself has told who holds it."""

    def __init__(self) -> None:
        self.looks: dict[str, BrokenLog] = {}
        self.added = asyncio.Event()

    def add(self, topic: str, error: Exception) -> None:
        """Have a log looked at as soon as possible."""
        retriable = isinstance(error, FairleadError) and error.retriable
        self.looks[topic] = BrokenLog(time.monotonic(), retriable, FIRST_LOOK)
        self.added.set()


class WriterRegistry:
    """The writers of one site's bridge.

    Args:
        sink, urgent: Where writers append; ``urgent`` waits for no batch and is for alerts only.
        book: The strays that this site can see.
        drain: Brings strays into containers' logs.
        fail: Called when one of the site's own logs cannot be appended to.
    """

    def __init__(
        self,
        logs: FixedLogs,
        sink: Sink,
        urgent: Sink,
        tails: TailReader,
        holdings: Holdings,
        book: StrayBook,
        drain: Drain,
        *,
        metrics: Metrics,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.strays = book.own
        self.book = book
        self._drain = drain
        self.fixed_logs = frozenset(logs.all())  # the site's own
        self._sink = sink
        self._tails = tails
        self._holdings = holdings
        self.metrics = metrics
        self._fail = fail
        self.broken = BrokenLogs()
        self._boxes: dict[str, ContainerWriter] = {}
        self.event_ids: RecentKeys[str] = RecentKeys(REMEMBERED)
        self.alert_keys: RecentKeys[AlertKey] = RecentKeys(REMEMBERED)
        self.letter_keys: RecentKeys[bytes] = RecentKeys(only_redelivered=True)
        self.booking_keys: RecentKeys[bytes] = RecentKeys(only_redelivered=True)
        self.events: LogWriter[str] = LogWriter(logs.events, sink, self.event_ids, settle=self._event, fail=fail)
        self.alerts: LogWriter[AlertKey] = LogWriter(
            logs.alerts, urgent, self.alert_keys, settle=self._alert, fail=fail
        )
        self.letters: LogWriter[bytes] = LogWriter(
            logs.deadletters, sink, self.letter_keys, settle=self._letter, fail=fail
        )
        self.ledger: LogWriter[LedgerKey] = LogWriter(
            logs.custody, sink, RecentKeys(), settle=self._acknowledge, fail=fail
        )
        self.bookings: LogWriter[bytes] | None = None
        if logs.bookings is not None:
            self.bookings = LogWriter(logs.bookings, sink, self.booking_keys, settle=self._message, fail=fail)
        self.ship = {
            topic: DedupWriter(topic, sink, tails, settle=self._message, fail=fail)
            for topic in (logs.location, logs.environment)
            if topic is not None
        }

    def box(self, topic: str) -> ContainerWriter:
        """The writer of a container's log."""
        writer = self._boxes.get(topic)
        if writer is None:
            writer = self._boxes[topic] = ContainerWriter(
                topic,
                self._sink,
                self._tails,
                self._holdings,
                self.strays,
                self.book,
                self._drain,
                on_lost=self.broken.add,
                settle=self._reading,
                fail=self._fail,
            )
        return writer

    def all(self) -> list[LogWriter[Any]]:
        fixed: list[LogWriter[Any]] = [self.events, self.ledger, self.letters, self.alerts, self.strays.writer]
        if self.bookings is not None:
            fixed.append(self.bookings)
        return [*self._boxes.values(), *self.ship.values(), *fixed]

    # -- an entry is stored, or was already

    def _message(self, entry: LogEntry[Any], outcome: EntryOutcome) -> None:
        if outcome is EntryOutcome.APPENDED:
            self.metrics.appended += 1
        else:
            self.metrics.repeats += 1
        if entry.ack is not None:
            entry.ack.finish()

    def _reading(self, entry: LogEntry[Any], outcome: EntryOutcome) -> None:
        if entry.kept:
            return  # it counts, and was acknowledged, as a stray
        if outcome is EntryOutcome.APPENDED:
            self.metrics.readings += 1
        self._message(entry, outcome)

    def _event(self, entry: LogEntry[str], outcome: EntryOutcome) -> None:
        if outcome is EntryOutcome.APPENDED:
            self.metrics.events += 1
        self._message(entry, outcome)

    def _alert(self, entry: LogEntry[AlertKey], outcome: EntryOutcome) -> None:
        if outcome is EntryOutcome.APPENDED:
            self.metrics.alerts += 1
        self._acknowledge(entry, outcome)

    def _letter(self, entry: LogEntry[bytes], outcome: EntryOutcome) -> None:
        if outcome is EntryOutcome.APPENDED:
            self.metrics.dead_letters += 1
        else:
            self.metrics.repeats += 1
        self._acknowledge(entry, outcome)

    def _acknowledge(self, entry: LogEntry[Any], outcome: EntryOutcome) -> None:
        if entry.ack is not None:
            entry.ack.finish()


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


def put_alerts(writers: WriterRegistry, alerts: Iterable[Alert], ack: PendingAck | None = None) -> None:
    """Put alerts on their way; the message that caused them, if one did, is acknowledged when they are stored too."""
    for alert in alerts:
        if ack is not None:
            ack.parts += 1
        writers.alerts.put(LogEntry(records.alert(alert), records.alert_key(alert), ack=ack))
