"""Finds the booking of a container aboard, from the changes of bookings that reach the ship. Pure.

A cancellation means the same as ashore (``shore.tables.valid_bookings``): the booking is void for the times that the
cancellation names, and valid for all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from fairlead.records.booking import Booking

_KEPT = 3  # bookings per container; older ones concern earlier journeys


@dataclass(slots=True)
class _KnownBooking:
    """The newest state of a booking that is not CANCELLED, and the cancellations since."""

    booking: Booking
    cancelled: list[Booking] = field(default_factory=list)

    def holds(self, at_ms: float) -> bool:
        return _covers(self.booking, at_ms) and not any(_covers(each, at_ms) for each in self.cancelled)


class Bookings:
    """The bookings that have reached the site, by container.

    Args:
        kept: How many of a container's to keep; None: all.
    """

    def __init__(self, kept: int | None = _KEPT) -> None:
        self._kept = kept
        self._of: dict[str, dict[str, _KnownBooking]] = {}

    def apply(self, booking: Booking) -> None:
        """Apply a change. It replaces the booking with the same reference; a cancellation only voids its own times."""
        known = self._of.setdefault(booking.equipment_reference, {})
        if booking.status == "CANCELLED":
            if booking.booking_reference in known:
                known[booking.booking_reference].cancelled.append(booking)
            return
        known.pop(booking.booking_reference, None)
        known[booking.booking_reference] = _KnownBooking(booking)
        if self._kept is not None and len(known) > self._kept:
            del known[min(known, key=lambda reference: known[reference].booking.valid_from)]

    def of(self, number: str, at_ms: int) -> Booking | None:
        """Return the booking in force at ``at_ms``, or else a confirmed one that has not begun; None if there is none.

        A container may be aboard before its booking begins, because clocks differ.
        """
        known = sorted(self._of.get(number, {}).values(), key=lambda each: each.booking.valid_from, reverse=True)
        for each in known:
            if each.holds(at_ms):
                return each.booking
        to_come = (each for each in known if each.booking.status == "CONFIRMED" and each.booking.valid_to is None)
        return next((each.booking for each in to_come if _is_to_come(each, at_ms)), None)

    def same_within(self, number: str, at_ms: int) -> tuple[float, float]:
        """Return the times around ``at_ms`` for which ``of`` returns the same: from the first, before the second."""
        changes = [
            moment.timestamp() * 1000
            for known in self._of.get(number, {}).values()
            for each in (known.booking, *known.cancelled)
            for moment in (each.valid_from, each.valid_to)
            if moment is not None
        ]
        begins = max((each for each in changes if each <= at_ms), default=-math.inf)
        return begins, min((each for each in changes if each > at_ms), default=math.inf)

    def parties(self, number: str, at_ms: float) -> frozenset[str]:
        """Return the customers and consignees of all bookings of a container that hold at a time, as
        ``shore.feeds.periods`` has them for feeds."""
        held = [each.booking for each in self._of.get(number, {}).values() if each.holds(at_ms)]
        return frozenset(name for each in held for name in (each.customer, each.consignee) if name)


def _is_to_come(known: _KnownBooking, at_ms: float) -> bool:
    begins = known.booking.valid_from.timestamp() * 1000
    return begins > at_ms and known.holds(begins)


def _covers(booking: Booking, at_ms: float) -> bool:
    ends = booking.valid_to
    return booking.valid_from.timestamp() * 1000 <= at_ms and (ends is None or at_ms < ends.timestamp() * 1000)
