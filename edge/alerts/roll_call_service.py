"""Holds the roll calls of a ship: gives the tracker events and the ship's clock, writes the records and alerts.

In: transport events of the ship (``apply_event``), its position reports (``tick``), operators' orders, custody, and the
boxes' states in the alert engine. Out: records of ``ships.<IMO>.roll-calls``, and alerts of ``alerts.<ship>``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Set
from typing import Final

from edge.alerts.roll_call import ALL, BoxesAboard, Departure, RollCallResult
from edge.alerts.ship import ShipState
from edge.alerts.state import acknowledged, cleared_by_hand, next_state
from edge.alerts.thresholds import CommodityThresholds
from edge.logwriter.writer import LogEntry, LogWriter
from edge.mqtt.acks import PendingAck
from edge.writer_registry import AlertWriter, RollCallKey
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import encode
from fairlead.records.alert import LEFT_PORT, NOT_HEARD, OVERBOARD, Alert, AlertOrder, Evidence
from fairlead.records.event import Event
from fairlead.records.reading import milliseconds, moment_of
from fairlead.records.ship import RollCall, pack_numbers

log = logging.getLogger(__name__)

_EVERY_MS: Final = 60_000  # of the ship's clock, between two checks of who is missing
_SEVERITY: Final = "ALARM"
_ENDED: Final = {
    "heard": "heard again",
    "left": "no longer aboard by custody",
    "overboard": "overboard; that alert says more",
}


class RollCallService:
    """The roll calls of one ship.

    Args:
        ship: The state of the ship in its alert engine.
        limits: The default thresholds.
        listed: Returns the numbers of the boxes that are aboard by custody now.
    """

    def __init__(
        self,
        site: str,
        imo: str,
        ship: ShipState,
        limits: CommodityThresholds,
        listed: Callable[[], Set[str]],
        alerts: AlertWriter,
        records: LogWriter[RollCallKey],
    ) -> None:
        self._site = site
        self._imo = imo
        self._ship = ship
        self._tracker = ship.roll_call
        self._limits = limits
        self._listed = listed
        self._alerts = alerts
        self._records = records
        self._open: dict[str, Alert] = {}  # by container; the same boxes as in ``tracker.unheard``
        self._checked_ms = 0

    # -- before the first message

    def restore_event(self, event: Event) -> None:
        """Apply an event of the ship's own log. Call it with the oldest first, before the other ``restore`` methods."""
        self._apply(event, BoxesAboard())

    def restore_record(self, record: RollCall) -> None:
        """Apply a record of the ship's own roll calls."""
        self._tracker.restore_result(record.departure_id, record.state)

    def restore_alert(self, alert: Alert) -> None:
        """Apply an alert of the ship's own log. Call it with the oldest first."""
        if alert.kind != NOT_HEARD:
            return
        number, is_open = alert.equipment_reference, alert.state != "CLEARED"
        self._tracker.restore_alert(number, _departure_ms(alert), is_open=is_open)
        if is_open:
            self._open[number] = alert
        elif number in self._open and self._open[number].alert_id == alert.alert_id:
            del self._open[number]

    # -- while the bridge runs

    def apply_event(self, event: Event) -> None:
        """Apply a transport event as it arrives; others, and those of other ships, change nothing."""
        aboard = self._aboard() if event.metadata.event_type == "TRANSPORT" else BoxesAboard()
        result = self._apply(event, aboard)
        if result is not None:
            self._write(result)

    def tick(self, now_ms: int, ack: PendingAck | None = None) -> None:
        """Check who is missing, after the ship's clock has moved. The message of ``ack`` waits for the alerts.

        Args:
            now_ms: The site's wall time, for the time at which alerts are raised.
        """
        at_ms, limits = self._ship.at_ms, self._limits.roll_call
        if not self._tracker.is_due(at_ms, limits) or 0 <= at_ms - self._checked_ms < _EVERY_MS:
            return
        self._checked_ms = at_ms
        change = self._tracker.check(at_ms, limits, self._aboard())
        ended = [self._end(number, why, at_ms, now_ms) for number, why in change.ended if number in self._open]
        opened = [self._raise(number, at_ms, now_ms) for number in change.opened]
        self._alerts.append_alerts((*ended, *opened), ack)
        if change.result is not None:
            self._write(change.result)

    def apply_order(self, order: AlertOrder) -> None:
        """Apply an operator's order to this site: clear or acknowledge the alert that it names, if it is open."""
        opened = self._open.get(order.equipment_reference)
        if opened is None:
            return
        now_ms = time.time_ns() // 1_000_000
        if (seen := acknowledged(opened, order, now_ms)) is not None:
            self._open[order.equipment_reference] = seen
            self._alerts.append_alerts([seen])
            return
        if opened.alert_id != order.alert_id:
            return
        del self._open[order.equipment_reference]
        self._tracker.end_alert(order.equipment_reference, _departure_ms(opened))
        finding = cleared_by_hand(opened, order, self._ship.at_ms)
        at, now = moment_of(finding.at_ms), moment_of(now_ms)
        self._alerts.append_alerts([next_state(opened, "CLEARED", finding.evidence, at=at, raised=now)])

    # -- parts

    def _apply(self, event: Event, aboard: BoxesAboard) -> RollCallResult | None:
        body = event.payload
        if event.metadata.event_type != "TRANSPORT" or not event.happened:
            return None
        if body.vessel_imo_number not in (None, self._imo):
            return None
        at_ms, now_ms = milliseconds(body.event_date_time), self._ship.at_ms
        if body.transport_event_type_code == "ARRI":
            return self._tracker.arrive(at_ms, max(at_ms, now_ms), aboard)
        departure = Departure(event.metadata.event_id, body.un_location_code, at_ms)
        heard = {  # a reading may overtake the event; not of devices whose clock is ahead
            number: box.at_ms
            for number, box in self._ship.aboard.items()
            if box.at_ms >= at_ms and "CLOCK" not in box.open
        }
        return self._tracker.depart(departure, heard, max(at_ms, now_ms), aboard)

    def _aboard(self) -> BoxesAboard:
        listed, boxes = self._listed(), self._ship.aboard
        silence = self._limits.silence
        return BoxesAboard(
            listed,
            frozenset(number for number, box in boxes.items() if OVERBOARD in box.open),
            frozenset(number for number, box in boxes.items() if "SILENCE" in box.open),
            max((box.interval_ms for number, box in boxes.items() if number in listed), default=0),
            silence.suspect_gateway,
        )

    def _write(self, result: RollCallResult) -> None:
        departure = result.departure
        record = RollCall(
            vessel_imo_number=self._imo,
            departure_id=departure.event_id,
            un_location_code=departure.port,
            departure_date_time=moment_of(departure.at_ms),
            called_date_time=moment_of(result.at_ms),
            state=result.state,
            aboard=result.aboard,
            heard=result.heard,
            overboard=result.overboard,
            missing=pack_numbers(result.missing),
            unlisted=pack_numbers(result.unlisted),
            complete_date_time=None if result.complete_ms is None else moment_of(result.complete_ms),
        )
        level = logging.WARNING if result.missing else logging.INFO
        where, of_all = departure.port or "an unknown port", f"{result.heard} of {result.aboard}"
        log.log(level, "%s: roll call after %s: %s boxes heard, %s", self._site, where, of_all, result.state)
        new = NewRecord(encode(record), self._imo.encode(), timestamp_ms=result.at_ms)
        self._records.enqueue(LogEntry(new, (departure.event_id, result.state)))

    def _raise(self, number: str, at_ms: int, now_ms: int) -> Alert:
        """Return the alert about a missing box, or about most boxes at once."""
        departure = self._tracker.departure
        if departure is None:
            raise AssertionError("a box is missing without a departure")
        box = self._ship.aboard.get(number)
        where = f"since {self._site} left {departure.port or 'port'} at {moment_of(departure.at_ms):%Y-%m-%d %H:%M} UTC"
        if number == ALL:
            detail = f"most boxes aboard were not heard {where}: look at the gateway"
        else:
            heard = "never aboard" if box is None or not box.at_ms else f"{moment_of(box.at_ms):%Y-%m-%d %H:%M} UTC"
            detail = f"aboard by custody, and not heard {where}; last reading: {heard}"
        evidence = [Evidence(name="roll-call", weight=1.0, detail=detail)]
        if departure.port is not None:
            evidence.append(Evidence(name=LEFT_PORT, weight=0.0, detail=departure.port))
        alert = self._open[number] = Alert(
            alert_id=f"{NOT_HEARD}.{number or 'ALL'}.{self._site}.{departure.at_ms}",
            kind=NOT_HEARD,
            severity=_SEVERITY,
            state="OPENED",
            equipment_reference=number,
            raised_at=self._site,
            event_date_time=moment_of(at_ms),
            raised_date_time=moment_of(now_ms),
            vessel_imo_number=self._imo,
            geo_location=self._ship.place,
            evidence=tuple(evidence),
            causes=(box.cause(box.newest),) if box is not None and box.newest is not None else (),
        )
        return alert

    def _end(self, number: str, why: str, at_ms: int, now_ms: int) -> Alert:
        opened = self._open.pop(number)
        said = Evidence(name=why, weight=1.0, detail=_ENDED[why])
        at = moment_of(max(at_ms, milliseconds(opened.event_date_time)))
        return next_state(opened, "CLEARED", (said, *opened.evidence[1:]), at=at, raised=moment_of(now_ms))


def _departure_ms(alert: Alert) -> int:
    """Return the time of the departure that an alert is about, which its id ends with; 0 if it has none."""
    last = alert.alert_id.rpartition(".")[2]
    return int(last) if last.isascii() and last.isdecimal() else 0
