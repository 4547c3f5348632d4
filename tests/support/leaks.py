"""Who is entitled to which bytes, worked out from bookings, readings and events as they were simulated: shore's tables
and ``acl`` have no part in it.

A booking holds for its customer and its consignee from ``valid_from`` (inclusive) to ``valid_to`` (exclusive) as it was
last said, less the times that cancellations after that name. A detailed feed has the readings, alerts and grants of
custody of those times; a coarse one alerts, milestones and hours; a port authority's has the events at its port. What
was given and is no longer held is taken back, once. Owners and lessors read the logs of boxes as they are.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fairlead.kafka.protocol.record import NewRecord
from fairlead.records import encode, headers
from fairlead.records.alert import Alert
from fairlead.records.booking import Booking
from fairlead.records.custody import CustodyEntry
from simulators.steps import MessageKind, Publish, Step

Content = Counter[tuple[str, bytes]]
"""Data records by topic and value, with how often they are there."""


@dataclass(frozen=True, slots=True)
class Told:
    """One reading, alert, event or grant: the box (a ship's IMO number), the device's time, its log, its bytes."""

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
        if isinstance(step, Publish) and step.kind is MessageKind.READING and step.log is not None:
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


def events_of(steps: Iterable[Step], log_of: Callable[[str], str]) -> list[Told]:
    """What terminals and ships say, in the log of some site."""
    told = []
    for step in steps:
        if isinstance(step, Publish) and step.kind is MessageKind.EVENT:
            body = json.loads(step.payload)["payload"]
            subject = body.get("equipmentReference") or body["vesselIMONumber"]
            at = dt.datetime.fromisoformat(body["eventDateTime"])
            told.append(Told(subject, at, log_of(step.site), step.payload))
    return told


def custody_of(events: Iterable[Told], log_of_box: Mapping[str, str], ledger: str) -> list[Told]:
    """The entries of a ledger that events of boxes bring about, a term for each; nobody reads the ledger itself."""
    terms: Counter[str] = Counter()
    told = []
    for event in sorted(events, key=lambda one: one.at):
        code = json.loads(event.value)["payload"].get("equipmentEventTypeCode")
        log = log_of_box.get(event.box)
        if log is None or code not in ("GTIN", "LOAD", "DISC", "GTOT"):
            continue
        terms[log] += 1
        entry = CustodyEntry(
            log=log,
            term=terms[log],
            marker_offset=terms[log],
            from_site=None if terms[log] == 1 else ledger.partition(".")[2],
            to_site=ledger.partition(".")[2],
            event=code,
            event_id=json.loads(event.value)["metadata"]["eventID"],
            event_date_time=event.at,
            granted_date_time=event.at,
            granted_by=ledger.partition(".")[2],
            marker_batch=b"",
        )
        told.append(Told(event.box, event.at, ledger, encode(entry)))
    return told


def times_of(readings: Iterable[Told]) -> dict[str, list[dt.datetime]]:
    """When each box was read, in order."""
    times: dict[str, list[dt.datetime]] = {}
    for reading in readings:
        times.setdefault(reading.box, []).append(reading.at)
    return {box: sorted(at) for box, at in times.items()}


def bookings_of(
    rng: random.Random, customers: Sequence[str], consignees: Sequence[str], readings: Sequence[Told], count: int
) -> list[Booking]:
    """States of bookings in the order in which they are said.

    Boxes go from one customer to the next at the very time of a reading, are shared, booked twice by the same customer,
    booked for good; bookings are corrected and cancelled.
    """
    times = times_of(readings)
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
            consignee=rng.choice(consignees) if rng.random() < 0.5 else "",
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


def corrections_of(
    rng: random.Random, said: Sequence[Booking], customers: Sequence[str], readings: Sequence[Told]
) -> list[Booking]:
    """What is said of half of the bookings when shore has given what they gave."""
    times = times_of(readings)
    newest = {(one.booking_reference, one.equipment_reference): one for one in said}
    standing = [one for one in newest.values() if one.status != "CANCELLED"]
    corrected: list[Booking] = []
    for one in rng.sample(standing, len(standing) // 2):
        inside = [
            at for at in times[one.equipment_reference] if one.valid_from < at < (one.valid_to or at + dt.timedelta(1))
        ]
        if not inside:
            continue
        moment = rng.choice(inside)
        match len(corrected) % 7:
            case 0:  # ended early
                corrected.append(replace(one, valid_to=moment, status="COMPLETED"))
            case 1:  # corrected back in time: it began later
                corrected.append(replace(one, valid_from=moment))
            case 2:  # corrected back in time: it was long over, and began before
                corrected.append(replace(one, valid_from=times[one.equipment_reference][0], valid_to=moment))
            case 3:
                corrected.append(replace(one, status="CANCELLED"))
            case 4:  # cancelled from a moment on
                corrected.append(replace(one, status="CANCELLED", valid_from=moment, valid_to=None))
            case 5:  # it was another's all the time
                corrected.append(replace(one, customer=rng.choice(customers), consignee=""))
            case _:  # cancelled, which was a mistake for its beginning
                corrected.append(replace(one, status="CANCELLED"))
                corrected.append(replace(one, valid_to=moment))
    return corrected


def logs_of(told: Iterable[Told], boxes: Callable[[str], bool]) -> Content:
    """What stands in the logs of readings whose names are chosen."""
    return Counter((record.log, record.value) for record in told if boxes(record.log))


def by_log(told: Iterable[Told]) -> dict[str, list[Told]]:
    found: dict[str, list[Told]] = {}
    for record in told:
        found.setdefault(record.log, []).append(record)
    return found
