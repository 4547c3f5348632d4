from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edge.ingest.classifier import Classifier
from edge.messages import ShipMessage
from fairlead.records.ship import Position
from tests.support.edge.samples import IMO, NOW_MS, device, topology

TOPIC = f"fairlead/v1/ships/{IMO}/position"
SHIP = Classifier(topology(), "star")
FULL: dict[str, Any] = {
    "geoLocation": {"latitude": 1.2, "longitude": 103.8},
    "speedOverGround": 12.5,
    "courseOverGround": 90.0,
    "heading": 88,
}


def classified(**fields: Any) -> tuple[bytes, ShipMessage]:
    payload = msgspec.json.encode({"vesselIMONumber": IMO, "device": device(), **fields})
    message = SHIP.classify(TOPIC, payload, NOW_MS)
    assert isinstance(message, ShipMessage)
    return payload, message


def test_a_position_that_has_everything_is_stored_as_it_came() -> None:
    """A complete position is stored unchanged."""
    _, message = classified(**FULL)
    assert message.payload is None


@pytest.mark.parametrize(
    "change",
    [
        {"speedOverGround": 102.3},
        {"courseOverGround": 360.0},
        {"heading": 511},
        {"geoLocation": {"latitude": 91.0, "longitude": 181.0}},
        {"geoLocation": {"latitude": 0.0, "longitude": 0.0}},
    ],
)
def test_a_sentinel_is_stored_as_null_and_nothing_else_is_changed(change: dict[str, Any]) -> None:
    """AIS's "not available" value of a field is stored as null; no other field changes."""
    _, message = classified(**{**FULL, **change}, pilot="aboard")
    assert message.payload is not None
    [name] = change
    stored = msgspec.json.decode(message.payload)
    assert stored == {"vesselIMONumber": IMO, "device": device(), **FULL, name: None, "pilot": "aboard"}
    assert isinstance(message.report, Position)
    assert msgspec.json.decode(message.payload, type=Position) == message.report


@pytest.mark.parametrize(
    "fields", [{"speedOverGround": 102.2}, {"speedOverGround": 0.0}, {"courseOverGround": 0.0}, {"heading": 0}, {}]
)
def test_the_values_beside_the_sentinels_are_values(fields: dict[str, Any]) -> None:
    """The values next to AIS's "not available" values are stored as measured."""
    assert classified(**fields)[1].payload is None
