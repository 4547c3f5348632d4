"""A customer's booking of a container, as a change event in ``bookings.<site>`` (held by the booking office's site)."""

from __future__ import annotations

from typing import Literal

from fairlead.records.reading import Dated, Time


class Booking(Dated, frozen=True, kw_only=True):
    """One state of one booking; a later record with the same ``booking_reference`` and container replaces it.

    The customer may see the container from its LOAD to its release: from ``valid_from`` (inclusive) until
    ``valid_to`` (exclusive, null while it runs), both in device time; so may the ``consignee``, the recipient of the
    goods (DCSA: document party CN), where the booking names one.
    """

    booking_reference: str
    customer: str
    equipment_reference: str
    status: Literal["CONFIRMED", "COMPLETED", "CANCELLED"] = "CONFIRMED"
    commodity: str = ""
    setpoint_temperature: float | None = None
    port_of_loading: str = ""
    port_of_discharge: str = ""
    valid_from: Time
    valid_to: Time | None = None
    consignee: str = ""
