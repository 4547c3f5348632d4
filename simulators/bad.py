"""Messages that no bridge can use, each with the reason code that its dead letter must carry. Pure functions.

They carry device names of their own (``bad-…``), so that none is mistaken for a reading of a real device.
"""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

import msgspec

from fairlead.records import encode
from fairlead.records.reading import Device, Measurements, Reading
from fairlead.records.ship import Position
from simulators.messages import position_topic, readings_topic

_TOO_LARGE = 300 * 1024  # bytes, more than the bridge takes (edge.classifier.MAX_PAYLOAD_BYTES)


class BadMessage(NamedTuple):
    """A message and the ``reason`` of ``fairlead.records.edge.DeadLetter`` that it must get."""

    topic: str
    payload: bytes
    reason: str


def bad_message(nth: int, number: str, time: dt.datetime) -> BadMessage:
    """The ``nth`` bad message, in turn of every kind; it concerns container ``number`` where it concerns one.

    What is too large is so for the bridge only; a broker that refuses a packet closes the connection.
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
            other = "CSQU3054383"  # the standard's own example, nobody's here
            return BadMessage(readings_topic(other), good, "unknown-owner")
        case 7:
            return BadMessage(readings_topic(number), good[:-1] + b" " * _TOO_LARGE + b"}", "too-large")
        case _:
            payload = good.replace(b'"sequence":', b'"sequence":"many","was":')
            return BadMessage(readings_topic(number), payload, "invalid-fields")
