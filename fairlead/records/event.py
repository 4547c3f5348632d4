"""Port and vessel events in the shape of DCSA Track & Trace v3: ``metadata`` and ``payload``.

Terminals and ships publish them on MQTT topic ``fairlead/v1/events`` of their own site; the bridge appends them to the
site's log ``events.<site>``. An equipment event moves the insert point of the box's log (docs/custody.md). The site
that **holds** the box and gives it away publishes it: GTIN opens the log there (a gate-in at a port), LOAD is published
at the port, DISC on board, GTOT at the port. A transport event (ARRI, DEPA) is published at both the port and the ship,
so that both know which berth links may be used.

An event happened (classifier ACT) unless it is part of a schedule: a transport event may be planned (PLN) or estimated
(EST), with an id of its own. Whatever acts on events asks ``Event.happened`` first.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fairlead.records.reading import Base, Dated, Time

EquipmentEventType = Literal["GTIN", "GTOT", "LOAD", "DISC"]
TransportEventType = Literal["ARRI", "DEPA"]
EventClassifier = Literal["ACT", "PLN", "EST"]


class EventMetadata(Dated, frozen=True, kw_only=True):
    """Who published the event and when it was recorded. ``event_id`` identifies the event; a repeat has the same id."""

    event_id: str = msgspec.field(name="eventID")
    event_created_date_time: Time
    event_type: Literal["EQUIPMENT", "TRANSPORT"]
    publisher: str


class EventPayload(Dated, frozen=True, kw_only=True):
    """The event itself. ``un_location_code`` is the port; ``vessel_imo_number`` the ship, where one is involved."""

    event_classifier_code: EventClassifier = "ACT"
    event_date_time: Time
    equipment_event_type_code: EquipmentEventType | None = None
    transport_event_type_code: TransportEventType | None = None
    equipment_reference: str | None = None
    un_location_code: str | None = msgspec.field(default=None, name="UNLocationCode")
    vessel_imo_number: str | None = msgspec.field(default=None, name="vesselIMONumber")
    voyage_reference: str | None = None
    booking_reference: str | None = None


class Event(Base, frozen=True, kw_only=True):
    """One event, as published and as stored in ``events.<site>``."""

    metadata: EventMetadata
    payload: EventPayload

    @property
    def happened(self) -> bool:
        """Whether the event tells what happened, not what is planned or expected."""
        return self.payload.event_classifier_code == "ACT"
