"""Which booking a container aboard travels under, from the changes that reach the ship. Pure.

A cancelled booking means the same here as ashore (``shore.tables.valid_bookings``): it is gone for the times that its
cancellation names, and holds for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.records.booking import Booking

_KEPT = 3  # bookings per container; older journeys say nothing about this one


@dataclass(slots=True)
class _Known:
    """A booking as it was confirmed or completed last, and the cancellations since."""

    booking: Booking
    cancelled: list[Booking] = field(default_factory=list)

    def holds(self, at_ms: float) -> bool:
        return _covers(self.booking, at_ms) and not any(_covers(each, at_ms) for each in self.cancelled)


class Bookings:
    """The bookings of all containers that the ship has heard of."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, _Known]] = {}

    def apply(self, booking: Booking) -> None:
        """Take in a change; one with the same reference replaces another, a cancellation takes its own times away."""
        known = self._of.setdefault(booking.equipment_reference, {})
        if booking.status == "CANCELLED":
            if booking.booking_reference in known:
                known[booking.booking_reference].cancelled.append(booking)
            return
        known.pop(booking.booking_reference, None)
        known[booking.booking_reference] = _Known(booking)
        if len(known) > _KEPT:
            del known[min(known, key=lambda reference: known[reference].booking.valid_from)]

    def of(self, number: str, at_ms: int) -> Booking | None:
        """The booking in force then, else a confirmed one that has not begun (the box is here, and clocks differ)."""
        known = sorted(self._of.get(number, {}).values(), key=lambda each: each.booking.valid_from, reverse=True)
        for each in known:
            if each.holds(at_ms):
                return each.booking
        to_come = (each for each in known if each.booking.status == "CONFIRMED" and each.booking.valid_to is None)
        return next((each.booking for each in to_come if _is_to_come(each, at_ms)), None)


def _is_to_come(known: _Known, at_ms: float) -> bool:
    begins = known.booking.valid_from.timestamp() * 1000
    return begins > at_ms and known.holds(begins)


def _covers(booking: Booking, at_ms: float) -> bool:
    ends = booking.valid_to
    return booking.valid_from.timestamp() * 1000 <= at_ms and (ends is None or at_ms < ends.timestamp() * 1000)
