"""Compute what must be in a customer's feed from what was simulated; the rules are in ``tests.support.leaks``.

Records that a feed copies are compared byte by byte. Records that are made for a feed are compared by their claims: an
hour by its box, its readings and their extremes (other tests check minutes), a milestone and a movement by all of their
fields, and a retraction by the record it takes back. ``claim`` brings the records that were read to the same form.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acl.kafka import Received
from fairlead.records.booking import Booking
from tests.support.leaks import Content, Told

HOUR: Final = dt.timedelta(hours=1)
Holds = Callable[[str, str, dt.datetime], bool]
Due = dict[str, bytes]
"""Expected content of a feed, by origin."""


@dataclass(frozen=True, slots=True)
class Sailed:
    """All simulated records by their origin ``<log>@<offset>``."""

    readings: Mapping[str, Told]
    alerts: Mapping[str, Told]
    events: Mapping[str, Told]
    custody: Mapping[str, Told]


def placed(told: Sequence[Told], logs: Mapping[str, Sequence[Told]]) -> dict[str, Told]:
    """Return the records by their origins. Every log begins with a custody marker at offset 0."""
    chosen = set(map(id, told))
    return {f"{log}@{n}": one for log, stood in logs.items() for n, one in enumerate(stood, 1) if id(one) in chosen}


def holds(said: Iterable[Booking]) -> Holds:
    """Return a function that tells whether a customer held a box at a time, from all booking messages in their
    order."""
    states: dict[tuple[str, str], list[Booking]] = {}
    for one in said:
        states.setdefault((one.booking_reference, one.equipment_reference), []).append(one)
    of_box: dict[tuple[str, str], list[tuple[Booking, list[Booking]]]] = {}
    for (_, box), each in states.items():
        last = max((n for n, one in enumerate(each) if one.status != "CANCELLED"), default=None)
        if last is not None:
            for party in {each[last].customer, each[last].consignee} - {""}:
                of_box.setdefault((party, box), []).append((each[last], each[last + 1 :]))

    def within(one: Booking, at: dt.datetime) -> bool:
        return one.valid_from <= at and (one.valid_to is None or at < one.valid_to)

    def held(party: str, box: str, at: dt.datetime) -> bool:
        return any(
            within(one, at) and not any(within(cut, at) for cut in cuts) for one, cuts in of_box.get((party, box), ())
        )

    return held


def detailed(customer: str, held: Holds, sailed: Sailed) -> Due:
    """Return what a detailed feed has: readings, alerts and custody grants, unchanged."""
    return {
        origin: one.value
        for records in (sailed.readings, sailed.alerts, sailed.custody)
        for origin, one in records.items()
        if held(customer, one.box, one.at)
    }


def coarse(customer: str, held: Holds, sailed: Sailed) -> Due:
    """Return what a coarse feed has: alerts unchanged, hours and milestones."""
    due = {origin: one.value for origin, one in sailed.alerts.items() if held(customer, one.box, one.at)}
    newest: dict[str, dt.datetime] = {}
    hours: dict[tuple[str, dt.datetime], list[Any]] = {}
    for reading in sailed.readings.values():
        newest[reading.box] = max(reading.at, newest.get(reading.box, reading.at))
        if held(customer, reading.box, reading.at):
            hour = reading.at.replace(minute=0, second=0, microsecond=0)
            hours.setdefault((reading.box, hour), []).append(json.loads(reading.value)["measurements"])
    for (box, hour), measured in hours.items():
        if hour + HOUR <= newest[box]:
            due[f"hours/{box}@{int(hour.timestamp()) // 3600}"] = _hour(box, hour, measured)
    for box, event in _happened(sailed.events.values()):
        if held(customer, box, event.at):
            said, payload = _parts(event)
            body = {
                "kind": "milestone",
                "equipmentReference": box,
                "eventType": said["eventType"],
                **_event(said, payload),
            }
            due[f"milestones/{box}/{said['eventID']}@0"] = canonical(body)
    return due


def alerts_about(owners: Collection[str], sailed: Sailed) -> Due:
    """Return what a feed of alerts has: every alert about boxes of these owner codes, and nothing by a booking."""
    return {origin: one.value for origin, one in sailed.alerts.items() if one.box[:4] in owners}


def movements(port: str, sailed: Sailed, lines: Mapping[str, str]) -> Due:
    """Return the movements of all ships and boxes at a port, whoever owns them."""
    due: Due = {}
    for event in sailed.events.values():
        said, payload = _parts(event)
        if payload["UNLocationCode"] != port:
            continue
        body = {"kind": "movement", **_event(said, payload)}
        if box := payload.get("equipmentReference"):
            body |= {"equipmentReference": box} | ({"line": lines[box[:4]]} if box[:4] in lines else {})
        due[f"movements/{said['eventID']}@0"] = canonical(body)
    return due


def followed(customer: str, before: Due, after: Due) -> Content:
    """Return everything a feed has had when its content was first this and then that."""
    topic = f"feeds.{customer}"
    given = Counter((topic, value) for value in before.values())
    given += Counter((topic, value) for origin, value in after.items() if before.get(origin) != value)
    return given + Counter((topic, _taken(origin)) for origin in before if origin not in after)


def claims(records: Iterable[Received]) -> Content:
    """Bring the records that a customer has read to the form of the expected ones. Hours that differ only in their
    minutes are one.
    """
    content: Content = Counter()
    at: dict[tuple[str, int], bytes | None] = {}
    for record in records:
        headers, value = dict(record.headers), record.value or b""
        at[record.topic, record.offset] = headers.get("origin")
        body = _object(value)
        if origin := headers.get("retracts"):
            assert body.pop("equipmentReference").encode() == record.key
            assert at[record.topic, body.pop("feedOffset")] == origin, "it takes back another record than it says"
            assert body == {"retracts": origin.decode()}
            content[record.topic, _taken(origin.decode())] += 1
        elif body.get("kind") in ("milestone", "movement"):
            assert body.pop("revision") == 0
            content[record.topic, canonical(body)] += 1
        elif body.get("kind") == "conditions":
            content[record.topic, _claimed(body)] = 1
        else:
            content[record.topic, value] += 1
    return content


def canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps({name: value for name, value in body.items() if value is not None}, sort_keys=True).encode()


def _object(value: bytes) -> dict[str, Any]:
    """Return the JSON object; empty if it is anything else."""
    try:
        body = json.loads(value)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _taken(origin: str) -> bytes:
    return f"takes back {origin}".encode()


def _hour(box: str, hour: dt.datetime, measured: Sequence[Mapping[str, float]]) -> bytes:
    body: dict[str, Any] = {"kind": "conditions", "box": box, "hour": hour.isoformat(), "readings": len(measured)}
    for probe in ("supplyTemperature", "returnTemperature"):
        values = [one[probe] for one in measured if one.get(probe) is not None]
        body[probe] = [round(min(values), 3), round(max(values), 3)] if values else None
    return canonical(body)


def _claimed(body: Mapping[str, Any]) -> bytes:
    """Return an hour of a feed in the form that ``_hour`` makes."""
    begins, ends = (dt.datetime.fromisoformat(body[name]) for name in ("windowStart", "windowEnd"))
    assert ends - begins == HOUR
    said: dict[str, Any] = {
        "kind": "conditions",
        "box": body["equipmentReference"],
        "hour": begins.isoformat(),
        "readings": body["readings"],
    }
    for probe in ("supplyTemperature", "returnTemperature"):
        span = body.get(probe) or {}
        assert not span or span["min"] <= span["mean"] <= span["max"]
        said[probe] = [span["min"], span["max"]] if span else None
    assert 0 <= body["minutesOutOfBand"] <= body["minutesObserved"] <= 60
    assert 0 <= body["minutesWithoutPower"] <= body["minutesObserved"]
    names = {"kind", "equipmentReference", "windowStart", "windowEnd", "readings", "revision", "minutesOutOfBand",
             "minutesWithoutPower", "minutesObserved", "supplyTemperature", "returnTemperature"}  # fmt: skip
    assert set(body) <= names, "more is said of an hour than belongs to it"
    return canonical(said)


def _parts(event: Told) -> tuple[dict[str, Any], dict[str, Any]]:
    body = json.loads(event.value)
    return body["metadata"], body["payload"]


def _event(said: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event that every feed shows; the sender and the booking are shown to nobody."""
    names = ("equipmentEventTypeCode", "transportEventTypeCode", "eventDateTime", "UNLocationCode", "vesselIMONumber",
             "voyageReference")  # fmt: skip
    return {"eventID": said["eventID"], **{name: payload.get(name) for name in names}}


def _happened(events: Iterable[Told]) -> list[tuple[str, Told]]:
    """Return each event once for each box it concerns: the box itself, and those aboard the ship."""
    once = {_parts(event)[0]["eventID"]: event for event in events}
    own: list[tuple[str, Told]] = []
    loaded: list[tuple[str, str, dt.datetime]] = []
    unloaded: dict[str, list[dt.datetime]] = {}
    ships: list[tuple[str, Told]] = []
    for event in once.values():
        _, payload = _parts(event)
        match payload.get("equipmentEventTypeCode"):
            case None:
                ships.append((payload["vesselIMONumber"], event))
                continue
            case "LOAD":
                loaded.append((event.box, payload["vesselIMONumber"], event.at))
            case "DISC":
                unloaded.setdefault(event.box, []).append(event.at)
        own.append((event.box, event))
    for box, imo, since in loaded:
        until = min((at for at in unloaded.get(box, ()) if at > since), default=None)
        own += [
            (box, event)
            for ship, event in ships
            if ship == imo and since <= event.at and (until is None or event.at <= until)
        ]
    return own
