"""A small topology and messages for it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from topologies.model import DEFAULT_STREAMS, Customer, InsertPoint, Site, SiteKind, Stream, Topology

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
NOW_MS = int(NOW.timestamp() * 1000)
BOX = "BIGU1000005"
BOX_LOG = f"containers.{BOX}"
IMO = "9074729"


def topology() -> Topology:
    """Return a topology of two ports, a headquarters and a ship, with boxes of BIGU (containers) and YELU (yellow)."""
    return Topology(
        name="samples",
        sites={
            "tokyo": Site(kind=SiteKind.PORT, unlocode="JPTYO"),
            "sydney": Site(kind=SiteKind.PORT, unlocode="AUSYD"),
            "head": Site(kind=SiteKind.HQ, unlocode="USLAX"),
            "star": Site(kind=SiteKind.SHIP, imo=IMO),
        },
        streams={
            **DEFAULT_STREAMS,
            "containers": Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",)),
            "yellow": Stream(insert_point=InsertPoint.MOVES, owners=("YELU",)),
        },
        customers={"ducks": Customer()},
    )


def device(sequence: int = 0, *, boot: int = 1, at: dt.datetime = NOW, name: str = "d1") -> dict[str, Any]:
    return {"deviceId": name, "bootId": boot, "sequence": sequence, "deviceDateTime": at.isoformat()}


def reading(sequence: int = 0, *, number: str = BOX, **more: Any) -> bytes:
    """Return a reading as published; ``boot``, ``at`` and ``name`` are fields of the device, the rest of the
    reading."""
    own = {key: more.pop(key) for key in ("boot", "at", "name") if key in more}
    return msgspec.json.encode({"equipmentReference": number, "device": device(sequence, **own), **more})


def event(code: str, *, number: str | None = BOX, event_id: str = "e1", at: dt.datetime = NOW, **more: Any) -> bytes:
    """Return an event as published; ARRI and DEPA are transport events, the others equipment events."""
    transport = code in ("ARRI", "DEPA")
    body: dict[str, Any] = {"eventClassifierCode": "ACT", "eventDateTime": at.isoformat(), **more}
    body["transportEventTypeCode" if transport else "equipmentEventTypeCode"] = code
    if number is not None and not transport:
        body["equipmentReference"] = number
    metadata = {
        "eventID": event_id,
        "eventCreatedDateTime": at.isoformat(),
        "eventType": "TRANSPORT" if transport else "EQUIPMENT",
        "publisher": "terminal",
    }
    return msgspec.json.encode({"metadata": metadata, "payload": body})


def readings_topic(number: str = BOX) -> str:
    return f"fairlead/v1/containers/{number}/readings"
