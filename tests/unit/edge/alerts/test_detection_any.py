"""The alert engine judges every reading that the classifier accepts, and its alerts can be stored."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edge.logwriter import records
from fairlead.records import decoder
from fairlead.records.alert import Alert
from fairlead.records.reading import GeoLocation
from tests.support.edge.detecting import NEIGHBOURS, Voyage, booking
from tests.support.edge.samples import BOX

NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.floats(-40, 40)
PLACES = st.fixed_dictionaries({"latitude": st.floats(-95, 95), "longitude": st.floats(-190, 190)})
READINGS = st.fixed_dictionaries(
    {},
    optional={
        "setpoints": st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("temperature", "relativeHumidity", "o2", "co2"), NUMBERS)
        ),
        "measurements": st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(
                ("supplyTemperature", "returnTemperature", "relativeHumidity", "o2", "co2"), NUMBERS
            ),
        ),
        "reeferSettings": st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("isDefrosting", "isPreTripInspection"), st.booleans())
        ),
        "isPowered": st.booleans(),
        "isConnectedToPowerSource": st.booleans(),
        "geoLocation": PLACES,
        "motion": st.fixed_dictionaries(
            {},
            optional={
                **dict.fromkeys(("tiltDegrees", "peakG", "freeFallSeconds"), st.floats(0, 400)),
                **dict.fromkeys(("immersed", "doorOpen"), st.booleans()),
            },
        ),
        "stowagePosition": st.text(max_size=9),
    },
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reading"), st.integers(-90_000, 400_000), st.sampled_from([BOX, *NEIGHBOURS]), READINGS),
        st.tuples(st.just("ship"), st.integers(-90_000, 400_000), st.floats(0, 110), PLACES),
        st.tuples(st.just("leaves"), st.just(0), st.sampled_from([BOX, *NEIGHBOURS]), st.just({})),
        st.tuples(st.just("booked"), st.just(0), st.sampled_from([BOX, *NEIGHBOURS]), st.just({})),
    ),
    max_size=30,
)


@given(STEPS)
def test_no_reading_is_too_odd(steps: list[tuple[str, int, Any, dict[str, Any]]]) -> None:
    """No accepted reading makes the alert engine raise an error."""
    voyage = Voyage()
    for what, after_s, who, fields in steps:
        if what == "reading":
            voyage.see(min(after_s, 80_000), number=who, **fields)
        elif what == "ship":
            voyage.ship(after_s, speed=who, place=GeoLocation(**fields))
        elif what == "leaves":
            voyage.said += voyage.engine.forget(who, 1)
        else:
            voyage.engine.booked(booking(who, commodity="bananas"))
    assert voyage.engine.failures == 0
    alert = decoder(Alert)
    states: dict[str, list[str]] = {}
    for said in voyage.said:
        stored = records.alert(said).value
        assert stored is not None and alert.decode(stored) == said
        assert said.causes
        states.setdefault(said.alert_id, []).append(said.state)
    for story in states.values():
        assert story[0] == "OPENED" and "OPENED" not in story[1:] and "CLEARED" not in story[:-1]
