"""A customer's booking of a container, and the retraction of a record that the bookings no longer give the customer.

Bookings are change events in ``bookings.<site>`` (held by the booking office's site), retractions are in
``feeds.<customer>``.
"""

from __future__ import annotations

from typing import Literal

from fairlead.records.reading import Base, Dated, Time


class Booking(Dated, frozen=True, kw_only=True):
    """One state of one booking; a later record with the same ``booking_reference`` and container replaces it.

    The customer may see the container from its LOAD to its release: from ``valid_from`` (inclusive) until ``valid_to``
    (exclusive, null while the booking runs), both in device time. The same applies to the ``consignee``, the recipient
    of the goods (DCSA: document party CN), if the booking names one.

    A booking that asks for a cold treatment says for how many days without a break (``cold_treatment_days``) the cargo
    must be at or below ``cold_treatment_temperature``, in degrees Celsius.

    ``transport_document_reference`` is the number of the bill of lading or sea waybill (DCSA); empty until it is
    issued. Bookings and containers of one transport document share it.
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
    cold_treatment_temperature: float | None = None
    cold_treatment_days: float | None = None
    transport_document_reference: str = ""


class Retraction(Base, frozen=True, kw_only=True):
    """Asks the customer to delete a record that its bookings no longer give it.

    Args:
        retracts: The record's header ``origin``: ``<log>@<offset>``. Header ``retracts`` has it too.
        feed_offset: The record's offset in this feed.
    """

    retracts: str
    feed_offset: int
    equipment_reference: str
