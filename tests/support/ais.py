"""AIS sentences for tests: recorded ones of other ships, and generated ones of the ship itself."""

from __future__ import annotations

from typing import Any

from pyais import encode_dict

from tests.support.edge.samples import IMO

OWN = "211000001"
# A class A position report as pyais documents it, and the same with a wrong checksum.
REAL = b"!AIVDM,1,1,,A,13HOI:0P0000VOHLCnHQKwvL05Ip,0*23"
DAMAGED = b"!AIVDM,1,1,,A,13HOI:0P0000VOHLCnHQKwvL05Ip,0*24"


def sentences(kind: str = "VDO", **fields: Any) -> list[bytes]:
    """Return a position report as sentences, sent by the ship itself (VDO) unless ``kind`` names another type."""
    body: dict[str, Any] = {
        "type": 1,
        "mmsi": OWN,
        "lat": -33.5,
        "lon": 151.25,
        "speed": 14.2,
        "course": 271.0,
        "heading": 270,
        "status": 0,
    }
    return [line.encode() for line in encode_dict({**body, **fields}, sentence_type=kind)]


def static(imo: str = IMO, mmsi: str = OWN) -> list[bytes]:
    """Return the sentences of a ship's static data: its IMO number and name."""
    body: dict[str, Any] = {"type": 5, "mmsi": mmsi, "imo": int(imo), "shipname": "DUCK STAR"}
    return [line.encode() for line in encode_dict(body, sentence_type="VDM", seq_id=1)]
