"""Which booking a container aboard travels under, from the changes that reach the ship. Pure."""

from __future__ import annotations

from fairlead.records.booking import Booking

_KEPT = 3  # bookings per container; older journeys say nothing about this one


class Bookings:
    """The bookings of all containers that the ship has heard of."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Booking]] = {}

    def apply(self, booking: Booking) -> None:
        """Take in a change; a later one with the same reference replaces it."""
        known = self._of.setdefault(booking.equipment_reference, {})
        known.pop(booking.booking_reference, None)
        if booking.status == "CANCELLED":
            return
        known[booking.booking_reference] = booking
        if len(known) > _KEPT:
            del known[min(known, key=lambda reference: known[reference].valid_from)]

    def of(self, number: str, at_ms: int) -> Booking | None:
        """The booking in force then, else a confirmed one that has not begun (the box is here, and clocks differ)."""
        known = sorted(self._of.get(number, {}).values(), key=lambda booking: booking.valid_from, reverse=True)
        for booking in known:
            ends = booking.valid_to
            if booking.valid_from.timestamp() * 1000 <= at_ms and (ends is None or at_ms < ends.timestamp() * 1000):
                return booking
        return next((booking for booking in known if booking.status == "CONFIRMED" and booking.valid_to is None), None)
