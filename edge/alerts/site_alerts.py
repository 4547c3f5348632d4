"""Alerts that a bridge raises about its site: strays that wait too long, blocked logs, ledgers that are not believed.

Each kind of alert has a source, which finds the conditions that hold now. An alert opens when its condition begins and
is cleared when it ends, also across restarts of the bridge.

Alerts about ledgers have another form. A ledger entry that its site is not allowed to write shows a fault of that
site's machine, or that another person has its passwords. There is one alert per such site; its evidence names the
entries, and it stays open until a person clears it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from edge.alerts.state import acknowledged, next_state
from edge.metrics import Metrics
from edge.writer_registry import WriterRegistry
from fairlead.custody.ledger import Told
from fairlead.records.alert import Alert, AlertOrder, Evidence, Severity
from fairlead.records.reading import moment_of
from topologies.ledger_trust import Doubt, Refused, refused
from topologies.model import Topology

log = logging.getLogger(__name__)

EVERY: Final = 1.0  # seconds between checks
LIMIT = 24 * 3600.0  # seconds a stray may wait; after a day at sea a slow link is no longer the reason
STRAYS_WAITING: Final = "STRAYS_WAITING"
LOG_BLOCKED: Final = "LOG_BLOCKED"
BOOKING_REUSED: Final = "BOOKING_REUSED"
DEVICE_FLOOD: Final = "DEVICE_FLOOD"
KINDS: Final = (STRAYS_WAITING, LOG_BLOCKED, BOOKING_REUSED, DEVICE_FLOOD)
"""The kinds of alerts with a source. Operators cannot clear them; they end with their condition."""

KIND: Final = "LEDGER_NOT_BELIEVED"
PATIENCE: Final = 900.0  # seconds that an entry may wait for the entry of the term before it
AGAIN: Final = 60.0  # seconds between two states of one alert, because a forger can write very many entries
_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class SiteCondition:
    """A condition that calls for an alert now.

    ``subject`` identifies it in alert ids; ``number`` is that of the container concerned, if there is one.
    """

    subject: str
    since_ms: int
    detail: str
    number: str = ""


@dataclass(frozen=True, slots=True)
class AlertSource:
    """The source of alerts of one kind.

    Args:
        prefix: Prefix of the alerts' ids.
        evidence: Name of the alerts' evidence.
        find: Takes the time now in milliseconds and the open alerts by subject; returns the conditions that hold now.
        ended: Text of the evidence when an alert is cleared.
    """

    kind: str
    prefix: str
    severity: Severity
    evidence: str
    find: Callable[[int, Mapping[str, Alert]], Iterable[SiteCondition]]
    ended: str


class SiteAlerts:
    """Opens and clears the alerts of some sources, and stores the alerts about ledgers.

    Args:
        ledgers: The alerts about ledgers.
        doubtful: Returns the ledger entries that are not believed yet, because they need others that are not here, each
            with its doubt.
    """

    def __init__(
        self,
        site: str,
        writers: WriterRegistry,
        sources: Sequence[AlertSource],
        ledgers: LedgerAlerts | None = None,
        doubtful: Callable[[], Iterable[tuple[Told, Doubt]]] = tuple,
    ) -> None:
        self._site = site
        self._writers = writers
        self._sources = {source.kind: source for source in sources}
        self._ledgers = ledgers
        self._doubtful = doubtful
        self._open: dict[str, dict[str, Alert]] = {source.kind: {} for source in sources}

    def restore(self, alert: Alert) -> None:
        """Restore an alert from this site's alerts log. Call it with the oldest first."""
        if self._ledgers is not None:
            self._ledgers.restore(alert)
        source = self._sources.get(alert.kind)
        if source is None:
            return
        subject = alert.alert_id.removeprefix(f"{source.prefix}-{self._site}-").rpartition("-")[0]
        if alert.state == "CLEARED":
            self._open[alert.kind].pop(subject, None)
        else:
            self._open[alert.kind][subject] = alert

    def counts(self) -> dict[str, int]:
        """Return how many alerts of each kind are open."""
        return {kind: len(opened) for kind, opened in self._open.items()}

    async def run(self) -> None:
        """Update the alerts every ``EVERY`` seconds, until cancelled."""
        while True:
            self.update_alerts(time.time_ns() // 1_000_000)
            if self._ledgers is not None:
                self._writers.alerts.append_alerts(self._ledgers.new_alerts(self._doubtful()))
            await asyncio.sleep(EVERY)

    def apply_order(self, order: AlertOrder) -> None:
        """Apply an operator's order to this site: acknowledge an alert of the site, or clear one about a ledger."""
        if order.acknowledges:
            books: list[dict[str, Alert]] = [*self._open.values()]
            if self._ledgers is not None:
                books.append(self._ledgers.opened)
            self._writers.alerts.append_alerts(_acknowledge(books, order, time.time_ns() // 1_000_000))
        elif self._ledgers is not None:
            self._writers.alerts.append_alerts(self._ledgers.clear_by_hand(order))

    def update_alerts(self, now_ms: int) -> None:
        """Open alerts for the sources' new conditions, and clear those whose conditions have ended."""
        for kind, source in self._sources.items():
            opened = self._open[kind]
            found = {condition.subject: condition for condition in source.find(now_ms, opened)}
            for subject, condition in found.items():
                if subject not in opened:
                    opened[subject] = self._open_alert(source, condition, now_ms)
            for subject in opened.keys() - found.keys():
                was, now = opened.pop(subject), moment_of(now_ms)
                said = Evidence(name=source.evidence, weight=1.0, detail=source.ended)
                ended = next_state(was, "CLEARED", [said], at=max(now, was.event_date_time), raised=now)
                self._writers.alerts.append_alerts([ended])

    def _open_alert(self, source: AlertSource, condition: SiteCondition, now_ms: int) -> Alert:
        alert = Alert(
            alert_id=f"{source.prefix}-{self._site}-{condition.subject}-{condition.since_ms}",
            kind=source.kind,
            severity=source.severity,
            state="OPENED",
            equipment_reference=condition.number,
            raised_at=self._site,
            event_date_time=moment_of(condition.since_ms),
            raised_date_time=moment_of(now_ms),
            evidence=(Evidence(name=source.evidence, weight=1.0, detail=condition.detail),),
        )
        self._writers.alerts.append_alerts([alert])
        return alert


def _acknowledge(books: Iterable[dict[str, Alert]], order: AlertOrder, now_ms: int) -> list[Alert]:
    for opened in books:
        for subject, alert in opened.items():
            if (seen := acknowledged(alert, order, now_ms)) is not None:
                opened[subject] = seen
                return [seen]
    return []


def strays_waiting(writers: WriterRegistry, *, limit: float = LIMIT) -> AlertSource:
    """Return the source of alerts: one per log for which a reading or event has waited here for ``limit`` seconds."""
    return AlertSource(
        STRAYS_WAITING,
        "strays",
        "WARNING",
        "age",
        partial(_waiting_too_long, writers, limit),
        "all waiting records are in their log",
    )


def _waiting_too_long(
    writers: WriterRegistry, limit: float, now_ms: int, _open: Mapping[str, Alert]
) -> Iterator[SiteCondition]:
    strays = writers.strays
    for topic in strays.index.logs() | strays.events.keys():
        events = strays.events.get(topic, ())
        came = [event.received_ms for event in events]
        if (oldest_reading := strays.index.oldest_ms(topic)) is not None:
            came.append(oldest_reading)
        oldest = min(came, default=now_ms)
        if not came or now_ms - oldest < limit * 1000:
            continue
        number = topic.partition(".")[2]
        readings = len(tuple(strays.index.offsets(topic)))
        detail = f"{readings} readings and {len(events)} events for {topic} wait in {strays.log}"
        yield SiteCondition(number, oldest, f"{detail}; see fairlead custody strays", number)


# -- ledgers that are not believed


class LedgerAlerts:
    """The alerts of one site about the ledgers of others; ``SiteAlerts`` stores them.

    Args:
        patience: Seconds that an entry may wait for others before an alert is raised.
    """

    def __init__(
        self,
        topology: Topology,
        site: str,
        metrics: Metrics,
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._topology = topology
        self._site = site
        self._metrics = metrics
        self._patience = patience
        self.opened: dict[str, Alert] = {}  # by the site whose ledger the alert is about
        self._reached: dict[str, int] = {}  # by ledger: the last offset that an alert has reported
        self._news: dict[str, list[Refused]] = defaultdict(list)
        self._raised: dict[str, float] = {}
        self._waiting: dict[tuple[str, int], float] = {}  # by ledger and offset: since when (monotonic); inf: reported

    def restore(self, alert: Alert) -> None:
        """Restore an alert from this site's alerts log, so that its entries are not reported again."""
        if alert.kind != KIND:
            return
        for each in alert.evidence:
            ledger, at, offset = each.name.rpartition("@")
            if at and offset.isdecimal():
                self._reached[ledger] = max(int(offset), self._reached.get(ledger, -1))
                site = ledger.partition(".")[2]
                if alert.state == "CLEARED":
                    self.opened.pop(site, None)
                else:
                    self.opened[site] = alert

    def refuse(self, entry: Refused) -> None:
        """Count and log an entry that is not believed, and have an alert report it."""
        self._metrics.entries_refused += 1
        log.error("%s: %s", self._site, entry)
        if entry.offset > self._reached.get(entry.ledger, -1):
            self._news[entry.site].append(entry)

    def new_alerts(self, doubtful: Iterable[tuple[Told, Doubt]]) -> list[Alert]:
        """Return the alerts that are due now. ``doubtful``: entries that wait; refused after ``patience``."""
        now = time.monotonic()
        still: dict[tuple[str, int], float] = {}
        for told, doubt in doubtful:
            key = told.ledger, told.offset
            since = still[key] = self._waiting.get(key, now)
            if now - since >= self._patience:
                still[key] = float("inf")
                self.refuse(refused(told, doubt))
        self._waiting = still
        due: list[Alert] = []
        for site, news in self._news.items():
            if news and now - self._raised.get(site, -AGAIN) >= AGAIN:
                self._raised[site] = now
                due.append(self._raise(site, news))
                self._reached |= {each.ledger: max(each.offset, self._reached.get(each.ledger, -1)) for each in news}
                news.clear()
        return due

    def clear_by_hand(self, order: AlertOrder) -> list[Alert]:
        """Return the CLEARED state of the alert that an operator's order names; nothing if it is not open."""
        for site, opened in self.opened.items():
            if opened.alert_id == order.alert_id:
                del self.opened[site]
                said = Evidence(name="by-hand", weight=1.0, detail=f"{order.ordered_by}: {order.reason}")
                done = Evidence(name="order", weight=1.0, detail=order.order_id)
                now = dt.datetime.now(dt.UTC)
                return [next_state(opened, "CLEARED", (said, done, *opened.evidence), at=now, raised=now)]
        return []

    def _raise(self, site: str, news: list[Refused]) -> Alert:
        shown = news[-_SHOWN:]
        evidence = [Evidence(name=f"{e.ledger}@{e.offset}", weight=1.0, detail=f"{e.tried}: {e.why}") for e in shown]
        if len(news) > _SHOWN:
            evidence.insert(0, Evidence(name="entries", weight=float(len(news)), detail=f"{len(news)} entries in all"))
        opened, now = self.opened.get(site), dt.datetime.now(dt.UTC)
        if opened is None:
            self.opened[site] = Alert(
                alert_id=f"ledger-{self._site}-{site}-{shown[0].offset}",
                kind=KIND,
                severity="CRITICAL",
                state="OPENED",
                equipment_reference="",
                raised_at=self._site,
                event_date_time=now,
                raised_date_time=now,
                vessel_imo_number=self._topology.sites[site].imo if site in self._topology.sites else None,
                evidence=tuple(evidence),
            )
        else:
            self.opened[site] = next_state(opened, "UPDATED", evidence, at=now, raised=now)
        return self.opened[site]
