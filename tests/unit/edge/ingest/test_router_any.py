"""Every MQTT message ends in exactly one log: whole in its own log, or with its reason and bytes as a dead letter."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.messages import RejectReason
from fairlead.records import decoder
from fairlead.records.edge import DeadLetter
from tests.support.edge.router_harness import RouterHarness, sample_messages
from tests.support.edge.samples import BOX, IMO, NOW, reading, readings_topic

SAMPLES = list(sample_messages())
LETTER = decoder(DeadLetter)

ODD_NUMBERS = st.sampled_from(
    [0, -1, 1 << 31, 1 << 63, -(1 << 63), 1 << 200, 10**400, 1e308, -1e308, 5e-324, -0.0, 0.1]
) | st.floats(allow_nan=False, allow_infinity=False)
ODD_TEXT = st.sampled_from(
    [
        "",
        "\0",
        "\ufeff",
        "9",
        "NaN",
        "\u202e",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59.999999-23:59",
        "1969-12-31T23:59:59Z",
        "2026-02-30T00:00:00Z",
        "2026-03-01T12:00:60Z",
        "2026-03-01T12:00:00",
        "2026-03-01",
        "BIGU1000001",
        "BIGU1000010",
        "x" * 300,
        "\U0001f986" * 100,
    ]
) | st.text(max_size=20)
ODD = st.recursive(
    st.none() | st.booleans() | ODD_NUMBERS | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a JSON value."""
    found = [at]
    for key, inner in value.items() if isinstance(value, dict) else ():
        found += places(inner, (*at, key))
    return found


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """Return a valid message in which values are exchanged, left out or repeated, or bytes are damaged."""
    topic, payload = draw(st.sampled_from(SAMPLES[:-1]))
    body: Any = json.loads(payload)
    for _ in range(draw(st.integers(0, 3))):
        where = draw(st.sampled_from(places(body)))
        if not where:
            body = draw(ODD) if draw(st.integers(0, 9)) == 0 else body
            continue
        inner = body
        for key in where[:-1]:
            inner = inner[key]
        if draw(st.booleans()):
            inner[where[-1]] = draw(ODD)
        else:
            del inner[where[-1]]
        if not isinstance(body, dict):
            break
    text = json.dumps(body, ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 4)) == 0 and text.startswith("{") and len(text) > 2:
        text = text[:-1] + "," + text[1:]  # every key twice
    raw = text.encode(draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"])), "surrogatepass")
    if draw(st.integers(0, 3)) == 0 and raw:
        harmed = bytearray(raw)
        for _ in range(draw(st.integers(1, 4))):
            harmed[draw(st.integers(0, len(harmed) - 1))] = draw(st.integers(0, 255))
        raw = bytes(harmed)
    return draw(st.sampled_from([topic, topic, topic, *(each for each, _ in SAMPLES)])), raw


def star() -> RouterHarness:
    harness = RouterHarness("star")
    harness.take(*SAMPLES[3])  # the ship has reported its position
    return harness


@given(st.lists(mutated(), min_size=1, max_size=5))
def test_a_message_that_went_wrong_somewhere_ends_in_exactly_one_log(messages: list[tuple[str, bytes]]) -> None:
    for harness in (star(), RouterHarness("tokyo")):
        for topic, payload in messages:
            harness.take(topic, payload)


@given(st.text(max_size=80) | st.sampled_from([topic for topic, _ in SAMPLES]), st.binary(max_size=300))
@example("fairlead/v1/containers/" + "/" * 60_000, b"")
@example("", b"")
@example("fairlead/v1/containers/BIGU1000005/readings/", b"{}")
@example("fairlead/v1/containers/BIGU100000５/readings", b"{}")  # noqa: RUF001 - a digit that is none
def test_bytes_of_any_kind_on_any_topic_end_in_exactly_one_log(topic: str, payload: bytes) -> None:
    for harness in (RouterHarness("star"), RouterHarness("tokyo")):
        harness.take(topic, payload)


def letter(harness: RouterHarness, topic: str, payload: bytes) -> DeadLetter:
    assert harness.take(topic, payload).startswith("deadletters.")
    [entry] = [each for log, each in harness.puts if log.startswith("deadletters.")]  # an alert may be stored with it
    return LETTER.decode(entry.record.value or b"")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\xef\xbb\xbf" + reading(1), RejectReason.MALFORMED_JSON),  # a byte order mark
        (reading(1).decode().encode("utf-16"), RejectReason.MALFORMED_JSON),
        (reading(1) + b"\0", RejectReason.MALFORMED_JSON),
        (reading(1) + reading(2), RejectReason.MALFORMED_JSON),
        (reading(1).replace(b'"sequence":1', b'"sequence":NaN'), RejectReason.MALFORMED_JSON),
        (reading(1).replace(b'"sequence":1', b'"sequence":"1"'), RejectReason.INVALID_FIELDS),
        (reading(1).replace(b'"sequence":1', b'"sequence":1.5'), RejectReason.INVALID_FIELDS),
        (reading(1).replace(b'"sequence":1', b'"sequence":' + b"9" * 5000), RejectReason.INVALID_FIELDS),
        (reading(1, name="\0" * 200), RejectReason.INVALID_FIELDS),
        (reading(1, name=""), RejectReason.INVALID_FIELDS),
        (reading(1, name="d" * 300), RejectReason.INVALID_FIELDS),
        (reading(1, measurements={"supplyTemperature": "4"}), RejectReason.INVALID_FIELDS),
        (reading(1, number="BIGU1000010"), RejectReason.NUMBER_MISMATCH),
        (reading(1, at=NOW.replace(year=1970)), RejectReason.DEVICE_CLOCK),
        (reading(1).replace(b"2026-03-01T12:00:00+00:00", b"0001-01-01T00:00:00+23:59"), RejectReason.DEVICE_CLOCK),
        (reading(1).replace(b"2026-03-01T12:00:00+00:00", b"9999-12-31T23:59:59-23:59"), RejectReason.DEVICE_CLOCK),
    ],
)
def test_bad_payloads_have_their_reason_and_their_bytes(payload: bytes, reason: RejectReason) -> None:
    """Invalid payloads become dead letters with their reason and their bytes."""
    found = letter(star(), readings_topic(), payload)
    assert (found.reason, found.payload) == (reason, payload)


def test_a_device_whose_name_has_no_end_cannot_fill_the_alerts_that_name_it() -> None:
    """A device with a very long name cannot make the alerts that name it too large.

    An alert names up to three readings; with a name of 250 kB each it was larger than a log accepts.
    """
    harness = star()
    for sequence in range(3):
        payload = reading(sequence, name="d" * 250_000, motion={"freeFallSeconds": 1.9, "immersed": True})
        assert letter(harness, readings_topic(), payload).reason == RejectReason.INVALID_FIELDS


def test_an_event_whose_id_has_no_end_is_refused() -> None:
    """An event with an overlong id is refused."""
    topic, payload = SAMPLES[5]
    body = msgspec.json.decode(payload)
    body["metadata"]["eventID"] = "e" * 200_000
    assert letter(RouterHarness("tokyo"), topic, msgspec.json.encode(body)).reason == RejectReason.INVALID_FIELDS


def test_a_ship_s_clock_that_leaps_ahead_does_not_stop_the_alert_engine_s_time() -> None:
    """A ship's clock that jumps ahead does not stop the alert engine's time.

    The alert engine uses the time of the ship's position reports; after one that was 20 h ahead it ignored all that
    followed.
    """
    harness = RouterHarness("star")
    now = dt.datetime.now(dt.UTC)
    for sequence, at in enumerate((now, now + dt.timedelta(hours=20), now + dt.timedelta(minutes=1))):
        body = {
            "vesselIMONumber": IMO,
            "device": {"deviceId": "gps", "bootId": 1, "sequence": sequence, "deviceDateTime": at.isoformat()},
            "geoLocation": {"latitude": -30.0, "longitude": 155.0 + sequence},
        }
        assert harness.take(f"fairlead/v1/ships/{IMO}/position", msgspec.json.encode(body)).startswith("ships.")
    assert harness.engine.ship.place is not None and harness.engine.ship.place.longitude == 157.0
    assert abs(harness.engine.ship.at_ms - now.timestamp() * 1000) < 10 * 60_000


def test_samples_are_all_right() -> None:
    """The unmodified samples are valid."""
    harness = star()
    assert [harness.take(topic, payload).partition(".")[0] for topic, payload in SAMPLES[:5]] == [
        "containers",
        "containers",
        "yellow",
        "ships",
        "ships",
    ]
    port = RouterHarness("tokyo")
    taken = [port.take(topic, payload) for topic, payload in SAMPLES[5:10]]
    assert taken == [f"containers.{BOX}"] * 4 + ["events.tokyo"]
    assert port.take(*SAMPLES[10]) == "bookings.tokyo"
