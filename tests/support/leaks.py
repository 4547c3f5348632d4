"""Who is entitled to which bytes, worked out from bookings and readings as they were simulated: shore's tables and
``acl`` have no part in it.

A customer's feed has the readings and alerts of a box whose device time lies in one of its bookings (``valid_from``
inclusive, ``valid_to`` exclusive) as that booking stands last; a cancelled one gives nothing. Owners and lessors read
the logs of boxes as they are. Other kinds of records in feeds are judged by the test's own hook.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fairlead.records import encode, headers
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking
from fairlead.wire.record import NewRecord
from simulators.steps import Kind, Publish, Step

Content = Counter[tuple[str, bytes]]
"""Data records by topic and value, with how often they are there."""


@dataclass(frozen=True, slots=True)
class Told:
    """One reading or alert: the box, the device's time, the log it is in, and its bytes."""

    box: str
    at: dt.datetime
    log: str
    value: bytes

    def record(self) -> NewRecord:
        millis = int(self.at.timestamp() * 1000)
        return NewRecord(
            self.value, self.box.encode(), ((headers.RECEIVED, b"%d" % (millis + 1500)),), timestamp_ms=millis
        )


def readings_of(steps: Iterable[Step]) -> list[Told]:
    """The readings of a voyage as their devices made them; repeats and unusable messages left out."""
    told = []
    for step in steps:
        if isinstance(step, Publish) and step.kind is Kind.READING and step.log is not None:
            written = json.loads(step.payload)["device"]["deviceDateTime"]
            told.append(Told(step.key, dt.datetime.fromisoformat(written), step.log, step.payload))
    return told


def alerts_of(rng: random.Random, readings: Sequence[Told], sites: Sequence[str], count: int) -> list[Told]:
    """Alerts at the very times of some readings, each in the log of some site."""
    told = []
    for reading in rng.sample(readings, count):
        site = rng.choice(sites)
        alert = Alert(
            alert_id=str(uuid.UUID(int=rng.getrandbits(128))),
            kind="OVERBOARD",
            severity="CRITICAL",
            state="OPENED",
            equipment_reference=reading.box,
            raised_at=site,
            event_date_time=reading.at,
            raised_date_time=reading.at,
        )
        told.append(Told(reading.box, reading.at, f"alerts.{site}", encode(alert)))
    return told


def bookings_of(rng: random.Random, customers: Sequence[str], readings: Sequence[Told], count: int) -> list[Booking]:
    """States of bookings in the order in which they are said.

    Boxes go from one customer to the next at the very time of a reading, are shared, booked twice by the same customer,
    booked for good; bookings are corrected and cancelled.
    """
    times: dict[str, list[dt.datetime]] = {}
    for reading in readings:
        times.setdefault(reading.box, []).append(reading.at)
    boxes = sorted(box for box, at in times.items() if len(at) > 4)
    said: list[Booking] = []
    for number in range(count):
        box = rng.choice(boxes)
        first, middle, last = sorted(rng.sample(sorted(times[box]), 3))
        one, other = rng.sample(customers, 2)
        opened = Booking(
            booking_reference=f"L{number:03d}",
            customer=one,
            equipment_reference=box,
            valid_from=first,
            valid_to=middle,
        )
        said.append(opened)
        match rng.randrange(6):
            case 0:  # the next customer has it from the moment the first one gives it back
                said.append(
                    replace(
                        opened, booking_reference=f"N{number:03d}", customer=other, valid_from=middle, valid_to=last
                    )
                )
            case 1:
                said.append(replace(opened, status="CANCELLED"))
            case 2:  # corrected: later, and to no end
                said.append(replace(opened, valid_from=middle, valid_to=None))
            case 3:  # corrected, then done
                said.append(replace(opened, valid_from=middle - dt.timedelta(milliseconds=1), valid_to=last))
                said.append(replace(said[-1], status="COMPLETED"))
            case 4:  # shared
                said.append(replace(opened, booking_reference=f"S{number:03d}", customer=other, valid_to=last))
            case _:
                pass
    return said


def feed_of(customer: str, bookings: Iterable[Booking], told: Iterable[Told]) -> Content:
    """What must be in a customer's feed, once each."""
    newest = {(one.booking_reference, one.equipment_reference): one for one in bookings}
    mine = [one for one in newest.values() if one.customer == customer and one.status != "CANCELLED"]

    def covered(record: Told) -> bool:
        return any(
            one.equipment_reference == record.box
            and one.valid_from <= record.at
            and (one.valid_to is None or record.at < one.valid_to)
            for one in mine
        )

    return Counter((f"feeds.{customer}", record.value) for record in told if covered(record))


def logs_of(told: Iterable[Told], boxes: Callable[[str], bool]) -> Content:
    """What stands in the logs of readings whose names are chosen."""
    return Counter((record.log, record.value) for record in told if boxes(record.log))


def by_log(told: Iterable[Told]) -> dict[str, list[NewRecord]]:
    found: dict[str, list[NewRecord]] = {}
    for record in told:
        found.setdefault(record.log, []).append(record.record())
    return found
