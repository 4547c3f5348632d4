"""Compute who is entitled to which bytes from the simulated bookings, readings and events alone.

Neither shore's tables nor ``acl`` take part in it. A booking holds for its customer and its consignee from
``valid_from`` (inclusive) to ``valid_to`` (exclusive) as last published, minus the periods that later cancellations
name. A detailed feed has the readings, alerts and custody grants of those periods; a coarse one alerts, milestones and
hours; a port authority's has the events at its port. A record that was delivered and whose booking no longer holds is
retracted, once. Owners and lessors read the logs of boxes unchanged.
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
"""Data records by topic and value, with the number of times that each occurs."""


@dataclass(frozen=True, slots=True)
class Told:
    """One reading, alert, event or grant: the box (or a ship's IMO number), the device's time, its log, its bytes."""

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
    """Return the readings of a voyage as their devices made them, without repeats and unusable messages."""
    told = []
    for step in steps:
        if isinstance(step, Publish) and step.kind is MessageKind.READING and step.log is not None:
            written = json.loads(step.payload)["device"]["deviceDateTime"]
            told.append(Told(step.key, dt.datetime.fromisoformat(written), step.log, step.payload))
    return told


def alerts_of(rng: random.Random, readings: Sequence[Told], sites: Sequence[str], count: int) -> list[Told]:
    """Return alerts at the times of some readings, each in the log of some site."""
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
    """Return the events that terminals and ships publish, in the log of some site."""
    told = []
    for step in steps:
        if isinstance(step, Publish) and step.kind is MessageKind.EVENT:
            body = json.loads(step.payload)["payload"]
            subject = body.get("equipmentReference") or body["vesselIMONumber"]
            at = dt.datetime.fromisoformat(body["eventDateTime"])
            told.append(Told(subject, at, log_of(step.site), step.payload))
    return told


def custody_of(events: Iterable[Told], log_of_box: Mapping[str, str], ledger: str) -> list[Told]:
    """Return the ledger entries that events of boxes bring about, one term for each; no customer may read the ledger
    itself.
    """
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
    """Return the times of each box's readings, in order."""
    times: dict[str, list[dt.datetime]] = {}
    for reading in readings:
        times.setdefault(reading.box, []).append(reading.at)
    return {box: sorted(at) for box, at in times.items()}


def bookings_of(
    rng: random.Random, customers: Sequence[str], consignees: Sequence[str], readings: Sequence[Told], count: int
) -> list[Booking]:
    """Return booking states in the order in which they are published.

    Boxes pass from one customer to the next at the exact time of a reading, are shared, are booked twice by the same
    customer, or are booked without an end; bookings are corrected and cancelled.
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
            case 0:  # the next customer's booking begins when the first one's ends
                said.append(
                    replace(
                        opened, booking_reference=f"N{number:03d}", customer=other, valid_from=middle, valid_to=last
                    )
                )
            case 1:
                said.append(replace(opened, status="CANCELLED"))
            case 2:  # corrected: begins later, without an end
                said.append(replace(opened, valid_from=middle, valid_to=None))
            case 3:  # corrected, then completed
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
    """Return corrections of half of the bookings, published after shore has delivered their records."""
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
            case 1:  # corrected backwards: it began later than first published
                corrected.append(replace(one, valid_from=moment))
            case 2:  # corrected backwards: it ended long ago, and began earlier
                corrected.append(replace(one, valid_from=times[one.equipment_reference][0], valid_to=moment))
            case 3:
                corrected.append(replace(one, status="CANCELLED"))
            case 4:  # cancelled from a moment on
                corrected.append(replace(one, status="CANCELLED", valid_from=moment, valid_to=None))
            case 5:  # it belonged to another customer all along
                corrected.append(replace(one, customer=rng.choice(customers), consignee=""))
            case _:  # cancelled by mistake: the cancellation covers only its beginning
                corrected.append(replace(one, status="CANCELLED"))
                corrected.append(replace(one, valid_to=moment))
    return corrected


def logs_of(told: Iterable[Told], boxes: Callable[[str], bool]) -> Content:
    """Return the logs of readings whose names are chosen, as a Kafka topic would store them."""
    return Counter((record.log, record.value) for record in told if boxes(record.log))


def by_log(told: Iterable[Told]) -> dict[str, list[Told]]:
    found: dict[str, list[Told]] = {}
    for record in told:
        found.setdefault(record.log, []).append(record)
    return found
