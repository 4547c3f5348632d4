"""Finds the office that owns a booking reference: the one that received it first.

A booking gives a customer the records of a container, and a change with the same reference replaces it. So an office
may change its own bookings only. Each office's bridge reads its own log of bookings and the copies of the others that
links bring there. It cannot know a reference that no link has brought yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from edge.alerts.site_alerts import BOOKING_REUSED, AlertSource, SiteCondition
from fairlead.kafka.convention import is_data, received_ms
from fairlead.kafka.protocol.record import Record
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking

ALERT_MS = 24 * 3600 * 1000  # an alert is cleared this long after the last attempt
_booking = decoder(Booking)


class _First(NamedTuple):
    received_ms: int
    office: str


class _Attempt(NamedTuple):
    first_ms: int
    last_ms: int
    owner: str
    number: str


class BookingReferences:
    """The owners of all booking references that this site knows of."""

    def __init__(self) -> None:
        self._first: dict[str, _First] = {}
        self._attempts: dict[str, _Attempt] = {}

    def add_record(self, topic: str, record: Record, _at_start: bool = False) -> None:
        """Learn the reference in a record of an office's log of bookings (``bookings.<office>``)."""
        if record.value is None or not is_data(record):
            return
        try:
            booking = _booking.decode(record.value)
        except UNREADABLE:
            return  # no program can use it; shore's tables show it as a problem
        self.learn(booking.booking_reference, topic.partition(".")[2], received_ms(record))

    def learn(self, reference: str, office: str, received_ms: int) -> None:
        """Note that an office has used a reference. Of two offices the one that received it first owns it."""
        first = _First(received_ms, office)
        known = self._first.get(reference)
        if known is None or first < known:
            self._first[reference] = first

    def owner(self, reference: str) -> str | None:
        """Return the office that owns a reference; None while no office has used it."""
        known = self._first.get(reference)
        return known.office if known is not None else None

    def note_attempt(self, booking: Booking, owner: str, now_ms: int) -> None:
        """Note that a change of another office's booking was published at this site."""
        before = self._attempts.get(booking.booking_reference)
        first_ms = before.first_ms if before is not None else now_ms
        self._attempts[booking.booking_reference] = _Attempt(first_ms, now_ms, owner, booking.equipment_reference)

    def source(self) -> AlertSource:
        """Return the source of alerts: one per reference that was reused here, until a day after the last attempt."""
        return AlertSource(
            BOOKING_REUSED, "booking", "ALARM", "reference", self._conditions, "no further attempt for a day"
        )

    def _conditions(self, now_ms: int, opened: Mapping[str, Alert]) -> Iterator[SiteCondition]:
        for reference, alert in opened.items():
            raised_ms = int(alert.raised_date_time.timestamp() * 1000)
            if reference not in self._attempts and now_ms - raised_ms < ALERT_MS:  # raised before a restart
                yield SiteCondition(reference, raised_ms, "", alert.equipment_reference)
        for reference, attempt in tuple(self._attempts.items()):
            if now_ms - attempt.last_ms >= ALERT_MS:
                del self._attempts[reference]
                continue
            detail = f"a change of booking {reference}, which belongs to {attempt.owner}, was published here"
            yield SiteCondition(reference, attempt.first_ms, f"{detail}; it is a dead letter", attempt.number)
