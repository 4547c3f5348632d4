"""Make the payloads that a voyage publishes, apart from readings. Pure functions.

Most are records of ``fairlead.records``. ``bad_message`` makes messages that no bridge can use, each with the reason
code that its dead letter must carry. They name devices of their own (``bad-...``), so that none is mistaken for the
reading of a real device.
"""

from __future__ import annotations

import datetime as dt
import uuid
import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

import msgspec

from fairlead.records import encode
from fairlead.records.booking import Booking
from fairlead.records.event import (
    EquipmentEventType,
    Event,
    EventClassifier,
    EventMetadata,
    EventPayload,
    TransportEventType,
)
from fairlead.records.reading import Device, GeoLocation, Measurements, Reading
from fairlead.records.ship import Environment, Position
from simulators.fleet.plan import OtherMove, PlannedBox, PlannedMove
from simulators.fleet.routes import Fix
from simulators.fleet.timetable import AT_ANCHOR
from simulators.physics import climate
from simulators.physics.climate import Storm
from simulators.steps import position_topic, readings_topic

_EVENT_IDS = uuid.UUID("6f0f3c52-0d5c-5a55-9a3c-3a0c8e6a8f10")


def event_id(voyage: str, what: str) -> str:
    """Return the id of an event; the same ``voyage`` and ``what`` always give the same id."""
    return str(uuid.uuid5(_EVENT_IDS, f"{voyage}/{what}"))


def equipment_event(identity: str, number: str, move: PlannedMove, booking_reference: str | None = None) -> bytes:
    """Return a GTIN, LOAD, DISC or GTOT, published by the holder."""
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
                equipment_reference=number,
                un_location_code=move.unlocode,
                vessel_imo_number=move.imo,
                voyage_reference=move.voyage,
                booking_reference=booking_reference,
            ),
        )
    )


def transport_event(
    identity: str,
    site: str,
    code: TransportEventType,
    time: dt.datetime,
    unlocode: str,
    imo: str,
    voyage: str | None = None,
    *,
    classifier: EventClassifier = "ACT",
    created: dt.datetime | None = None,
) -> bytes:
    """Return an ARRI or DEPA, published by ``site``. One that is planned or estimated says when it was ``created``."""
    return encode(
        Event(
            metadata=EventMetadata(
                event_id=identity, event_created_date_time=created or time, event_type="TRANSPORT", publisher=site
            ),
            payload=EventPayload(
                event_classifier_code=classifier,
                event_date_time=time,
                transport_event_type_code=code,
                un_location_code=unlocode,
                vessel_imo_number=imo,
                voyage_reference=voyage,
            ),
        )
    )


def event_of_another_line(identity: str, seen: OtherMove) -> bytes:
    """Return what a port's terminal says of another line's ship or box."""
    if seen.number is None:
        code = cast(TransportEventType, seen.code)
        return transport_event(identity, seen.port, code, seen.time, seen.unlocode, seen.imo)
    ship = None if seen.code in ("GTIN", "GTOT") else seen.imo
    move = PlannedMove(seen.time, cast(EquipmentEventType, seen.code), seen.port, None, seen.unlocode, ship)
    return equipment_event(identity, seen.number, move)


def booking(box: PlannedBox, status: Literal["CONFIRMED", "COMPLETED"]) -> bytes:
    """Return the booking of a box for its customer, from its first LOAD on; only a completed booking has an end."""
    loaded, asked = box.first_load, box.lot.cold_treatment
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
            cold_treatment_temperature=asked.temperature if asked else None,
            cold_treatment_days=asked.days if asked else None,
            transport_document_reference=transport_document(box),
        )
    )


def transport_document(box: PlannedBox) -> str:
    """Return the number of the bill of lading: the boxes of one customer and recipient that a ship takes on one voyage
    from one port to another share it."""
    loaded = box.first_load
    facts = (box.lot.customer, box.lot.consignee, loaded.imo, loaded.voyage, loaded.unlocode, box.destination)
    return f"BL{zlib.crc32('/'.join(map(str, facts)).encode()):010d}"


def position(imo: str, sequence: int, time: dt.datetime, fix: Fix, status: int, noise: Sequence[float]) -> bytes:
    """Return a ship's position as its AIS sends it, with noise: steps of 0.1 knots and degrees, whole headings.

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
    """Return the readings of the ship's weather station and switchboard; ``reefer_power`` is in kW."""
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


_TOO_LARGE = 300 * 1024  # bytes; more than the bridge accepts (edge.ingest.classifier.MAX_PAYLOAD_BYTES)


class BadMessage(NamedTuple):
    """A message and the ``reason`` of ``fairlead.records.edge.DeadLetter`` that it must get."""

    topic: str
    payload: bytes
    reason: str


def bad_message(nth: int, number: str, time: dt.datetime) -> BadMessage:
    """Return the ``nth`` bad message, each kind in turn; some concern container ``number``.

    A message that is too large for the bridge is small enough for the broker, which would else close the connection.
    """
    reading = Reading(
        equipment_reference=number,
        device=Device(device_id=f"bad-{nth}", boot_id=1, sequence=nth, device_date_time=time),
        measurements=Measurements(supply_temperature=1.0),
    )
    good = encode(reading)
    match nth % 9:
        case 0:
            return BadMessage(readings_topic(number), good[: len(good) // 2], "malformed-json")
        case 1:
            wrong = number[:10] + str((int(number[10]) + 1) % 10)
            payload = encode(msgspec.structs.replace(reading, equipment_reference=wrong))
            return BadMessage(readings_topic(wrong), payload, "wrong-check-digit")
        case 2:
            stranger = "9999993"
            payload = encode(Position(vessel_imo_number=stranger, device=reading.device))
            return BadMessage(position_topic(stranger), payload, "unknown-ship")
        case 3:
            old = msgspec.structs.replace(reading.device, device_date_time=dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
            return BadMessage(
                readings_topic(number), encode(msgspec.structs.replace(reading, device=old)), "device-clock"
            )
        case 4:
            early = msgspec.structs.replace(reading.device, device_date_time=dt.datetime(2099, 1, 1, tzinfo=dt.UTC))
            return BadMessage(
                readings_topic(number), encode(msgspec.structs.replace(reading, device=early)), "device-clock"
            )
        case 5:
            return BadMessage(f"fairlead/v1/containers/{number}/weather", good, "unknown-topic")
        case 6:
            other = "CSQU3054383"  # the example in the standard; no stream here has its owner
            return BadMessage(readings_topic(other), good, "unknown-owner")
        case 7:
            return BadMessage(readings_topic(number), good[:-1] + b" " * _TOO_LARGE + b"}", "too-large")
        case _:
            payload = good.replace(b'"sequence":', b'"sequence":"many","was":')
            return BadMessage(readings_topic(number), payload, "invalid-fields")
