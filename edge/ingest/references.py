"""Which office a booking reference belongs to: the one where it was first seen.

A booking gives a customer the records of a container, and a change with the same reference replaces it. So an office
may change its own bookings only. Each office's bridge reads its own log of bookings and the copies of the others that
links bring there; what no link has brought yet, it cannot know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from edge.alerts.site_alerts import BOOKING_REUSED, AlertSource, SiteCondition
from edge.logwriter import records
from fairlead.kafka.convention import is_data
from fairlead.kafka.protocol.record import Record
from fairlead.records import UNREADABLE, decoder
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking

ALERT_MS = 24 * 3600 * 1000  # an alert stays open for so long after the last attempt
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
        """A record of an office's log of bookings (``bookings.<office>``)."""
        if record.value is None or not is_data(record):
            return
        try:
            booking = _booking.decode(record.value)
        except UNREADABLE:
            return  # nobody can use it; shore keeps it with its problem
        self.learn(booking.booking_reference, topic.partition(".")[2], records.received_ms(record))

    def learn(self, reference: str, office: str, received_ms: int) -> None:
        """An office has used a reference. Of two offices the one that received it first owns it."""
        first = _First(received_ms, office)
        known = self._first.get(reference)
        if known is None or first < known:
            self._first[reference] = first

    def owner(self, reference: str) -> str | None:
        """The office that a reference belongs to; None while nobody has used it."""
        known = self._first.get(reference)
        return known.office if known is not None else None

    def note_attempt(self, booking: Booking, owner: str, now_ms: int) -> None:
        """This site was given a change of another office's booking."""
        before = self._attempts.get(booking.booking_reference)
        first_ms = before.first_ms if before is not None else now_ms
        self._attempts[booking.booking_reference] = _Attempt(first_ms, now_ms, owner, booking.equipment_reference)

    def source(self) -> AlertSource:
        """One alert for each reference that was reused here, until nobody has tried for a day."""
        return AlertSource(
            BOOKING_REUSED, "booking", "ALARM", "reference", self._conditions, "nobody has tried again for a day"
        )

    def _conditions(self, now_ms: int, opened: Mapping[str, Alert]) -> Iterator[SiteCondition]:
        for reference, alert in opened.items():
            raised_ms = int(alert.raised_date_time.timestamp() * 1000)
            if reference not in self._attempts and now_ms - raised_ms < ALERT_MS:  # of before the bridge was started
                yield SiteCondition(reference, raised_ms, "", alert.equipment_reference)
        for reference, attempt in tuple(self._attempts.items()):
            if now_ms - attempt.last_ms >= ALERT_MS:
                del self._attempts[reference]
                continue
            detail = f"a change of booking {reference}, which belongs to {attempt.owner}, was published here"
            yield SiteCondition(reference, attempt.first_ms, f"{detail}; it is a dead letter", attempt.number)
