"""Payloads and topics of everything that a voyage publishes, in the shapes of ``fairlead.records``. Pure functions."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from typing import Literal

from fairlead.records import encode
from fairlead.records.booking import Booking
from fairlead.records.event import Event, EventMetadata, EventPayload, TransportEventType
from fairlead.records.reading import Device, GeoLocation
from fairlead.records.ship import Environment, Position
from simulators import climate
from simulators.climate import Storm
from simulators.plan import Box, Move
from simulators.routes import Fix
from simulators.timetable import AT_ANCHOR

EVENTS_TOPIC = "fairlead/v1/events"
BOOKINGS_TOPIC = "fairlead/v1/bookings"
_EVENT_IDS = uuid.UUID("6f0f3c52-0d5c-5a55-9a3c-3a0c8e6a8f10")


def readings_topic(number: str) -> str:
    return f"fairlead/v1/containers/{number}/readings"


def position_topic(imo: str) -> str:
    return f"fairlead/v1/ships/{imo}/position"


def environment_topic(imo: str) -> str:
    return f"fairlead/v1/ships/{imo}/environment"


def event_id(voyage: str, what: str) -> str:
    """The same id for the same event of the same voyage, whoever says it."""
    return str(uuid.uuid5(_EVENT_IDS, f"{voyage}/{what}"))


def equipment_event(identity: str, box: Box, move: Move) -> bytes:
    """A GTIN, LOAD, DISC or GTOT, as the holder says it."""
    return encode(
        Event(
            metadata=EventMetadata(
                event_id=identity,
                event_created_date_time=move.time,
                event_type="EQUIPMENT",
                publisher=move.site,
            ),
            payload=EventPayload(
                event_date_time=move.time,
                equipment_event_type_code=move.code,
                equipment_reference=box.number,
                un_location_code=move.unlocode,
                vessel_imo_number=move.imo,
                voyage_reference=move.voyage,
                booking_reference=box.booking_reference,
            ),
        )
    )


def transport_event(
    identity: str, site: str, code: TransportEventType, time: dt.datetime, unlocode: str, imo: str, voyage: str
) -> bytes:
    """An ARRI or DEPA, as ``site`` says it."""
    return encode(
        Event(
            metadata=EventMetadata(
                event_id=identity, event_created_date_time=time, event_type="TRANSPORT", publisher=site
            ),
            payload=EventPayload(
                event_date_time=time,
                transport_event_type_code=code,
                un_location_code=unlocode,
                vessel_imo_number=imo,
                voyage_reference=voyage,
            ),
        )
    )


def booking(box: Box, status: Literal["CONFIRMED", "COMPLETED"]) -> bytes:
    """The booking of a box for its customer. It begins when the box is loaded; only a completed one says its end."""
    loaded = box.first_load
    return encode(
        Booking(
            booking_reference=str(box.booking_reference),
            customer=str(box.lot.customer),
            equipment_reference=box.number,
            status=status,
            commodity=box.lot.commodity,
            setpoint_temperature=box.unit.setpoint,
            port_of_loading=loaded.unlocode,
            port_of_discharge=box.destination,
            valid_from=loaded.time,
            valid_to=box.released if status == "COMPLETED" else None,
            consignee=box.lot.consignee or "",
        )
    )


def position(imo: str, sequence: int, time: dt.datetime, fix: Fix, status: int, noise: Sequence[float]) -> bytes:
    """A ship's position as its AIS sends it: steps of 0.1 knots and degrees, headings whole, all with noise.

    Args:
        noise: Five independent standard normal numbers: north and east (5 m of GPS; a ship at anchor swings 60 m),
            speed (0.1 knots), course (1 degree), and heading (2 degrees of wind and current).
    """
    north, east, speed, course, heading = noise
    moving = fix.speed > 0
    metres = 60.0 if status == AT_ANCHOR else 5.0
    return encode(
        Position(
            vessel_imo_number=imo,
            device=Device(device_id=f"ais-{imo}", boot_id=1, sequence=sequence, device_date_time=time),
            geo_location=GeoLocation(
                latitude=round(fix.point.latitude + 1e-5 * metres * north, 5),
                longitude=round(fix.point.longitude + 1e-5 * metres * east, 5),
            ),
            speed_over_ground=round(max(0.0, fix.speed + 0.1 * speed), 1) if moving else 0.0,
            course_over_ground=round((fix.course + course) % 360, 1) % 360 if moving else None,
            heading=int(fix.course + 2 * heading) % 360 if moving else None,
            navigation_status=status,
        )
    )


def environment(
    imo: str, sequence: int, time: dt.datetime, fix: Fix, storms: tuple[Storm, ...], reefer_power: float
) -> bytes:
    """What the ship's weather station and its switchboard show; ``reefer_power`` in kW."""
    wind = climate.wind_speed(fix.point, time, storms)
    return encode(
        Environment(
            vessel_imo_number=imo,
            device=Device(device_id=f"env-{imo}", boot_id=1, sequence=sequence, device_date_time=time),
            wind_speed=round(wind, 1),
            significant_wave_height=round(climate.wave_height(wind), 1) if fix.speed > 0 else 0.3,
            air_temperature=round(climate.air_temperature(fix.point, time, ashore=False), 1),
            sea_temperature=round(climate.sea_temperature(fix.point, time), 1),
            air_pressure=round(climate.air_pressure(wind), 1),
            reefer_power=round(reefer_power, 1),
        )
    )
