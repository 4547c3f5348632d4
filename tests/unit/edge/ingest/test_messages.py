from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.ingest.classifier import MAX_PAYLOAD_BYTES, Classifier
from edge.messages import (
    BookingMessage,
    EventMessage,
    Message,
    MessageId,
    ReadingMessage,
    Rejected,
    RejectReason,
    ShipMessage,
)
from tests.support.edge.samples import BOX, BOX_LOG, IMO, NOW, NOW_MS, device, event, reading, readings_topic, topology

TOPOLOGY = topology()
PORT = Classifier(TOPOLOGY, "tokyo")
SHIP = Classifier(TOPOLOGY, "star")


def reason(found: Message | Rejected) -> RejectReason:
    assert isinstance(found, Rejected), found
    assert found.detail
    return found.reason


def test_a_reading_goes_to_the_log_of_its_owner() -> None:
    """A reading goes to the log of its owner's stream."""
    found = PORT.classify(readings_topic(), reading(7, boot=2), NOW_MS + 60_000)
    assert isinstance(found, ReadingMessage)
    assert found.log == BOX_LOG
    assert found.identity == MessageId("d1", 2, 7)
    assert found.device_ms == NOW_MS


def test_a_box_of_another_owner_has_its_own_stream() -> None:
    found = PORT.classify(readings_topic("YELU1000002"), reading(number="YELU1000002"), NOW_MS)
    assert isinstance(found, ReadingMessage)
    assert found.log == "yellow.YELU1000002"


@pytest.mark.parametrize(
    ("topic", "payload", "expected"),
    [
        (readings_topic(), b"{", RejectReason.MALFORMED_JSON),
        (readings_topic(), b"", RejectReason.MALFORMED_JSON),
        (readings_topic(), b"\xff\xfe{}", RejectReason.MALFORMED_JSON),
        (readings_topic(), b'{"x":' + b"[" * 100_000, RejectReason.MALFORMED_JSON),
        (readings_topic(), b"{}", RejectReason.INVALID_FIELDS),
        (readings_topic(), reading(-1), RejectReason.INVALID_FIELDS),
        (readings_topic(), reading(1 << 63), RejectReason.INVALID_FIELDS),
        (readings_topic("BIGU1000001"), reading(number="BIGU1000001"), RejectReason.WRONG_CHECK_DIGIT),
        (readings_topic(), reading(number="BIGU1000010"), RejectReason.NUMBER_MISMATCH),
        (readings_topic("CSQU3054383"), reading(number="CSQU3054383"), RejectReason.UNKNOWN_OWNER),
        (readings_topic("../../etc"), reading(), RejectReason.UNKNOWN_TOPIC),
        (readings_topic("bigu1000005"), reading(number="bigu1000005"), RejectReason.UNKNOWN_TOPIC),
        ("fairlead/v1/containers", reading(), RejectReason.UNKNOWN_TOPIC),
        ("fairlead/v2/events", event("GTIN"), RejectReason.UNKNOWN_TOPIC),
        ("fairlead/v1/ships/9074720/position", b"{}", RejectReason.UNKNOWN_SHIP),
        ("fairlead/v1/ships/9321483/position", b"{}", RejectReason.UNKNOWN_SHIP),
        (f"fairlead/v1/ships/{IMO}/position", b"{}", RejectReason.NOT_HOLDER),
        (f"fairlead/v1/ships/{IMO}/cargo", b"{}", RejectReason.UNKNOWN_TOPIC),
        ("fairlead/v1/events", event("LOAD", vesselIMONumber="9321483"), RejectReason.UNKNOWN_SHIP),
        ("fairlead/v1/events", event("LOAD"), RejectReason.UNKNOWN_SHIP),
        ("fairlead/v1/events", event("DISC", UNLocationCode="NLRTM"), RejectReason.UNKNOWN_PORT),
        ("fairlead/v1/events", event("GTIN", number="BIGU1000001"), RejectReason.WRONG_CHECK_DIGIT),
        ("fairlead/v1/events", event("GTIN", number=None), RejectReason.INVALID_FIELDS),
        ("fairlead/v1/events", event("GTIN", event_id=""), RejectReason.INVALID_FIELDS),
        ("fairlead/v1/events", event("ARRI", vesselIMONumber="1111111"), RejectReason.UNKNOWN_SHIP),
    ],
)
def test_bad_input_is_rejected_with_its_reason(topic: str, payload: bytes, expected: RejectReason) -> None:
    """Invalid input is rejected with its reason."""
    assert reason(PORT.classify(topic, payload, NOW_MS)) is expected


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), RejectReason.DEVICE_CLOCK),
        (dt.datetime(2014, 12, 31, 23, 59, 59, tzinfo=dt.UTC), RejectReason.DEVICE_CLOCK),
        (dt.datetime(2099, 1, 1, tzinfo=dt.UTC), RejectReason.DEVICE_CLOCK),
        (NOW + dt.timedelta(hours=24, milliseconds=1), RejectReason.DEVICE_CLOCK),
        (NOW.replace(tzinfo=None), RejectReason.INVALID_FIELDS),
    ],
)
def test_a_device_clock_that_is_far_off_is_rejected(at: dt.datetime, expected: RejectReason) -> None:
    assert reason(PORT.classify(readings_topic(), reading(at=at), NOW_MS)) is expected


@pytest.mark.parametrize("at", [NOW + dt.timedelta(hours=24), NOW - dt.timedelta(days=365)])
def test_a_device_clock_within_bounds_is_taken(at: dt.datetime) -> None:
    """A device clock within the limits is accepted."""
    assert isinstance(PORT.classify(readings_topic(), reading(at=at), NOW_MS), ReadingMessage)


def test_the_largest_payload_is_taken_and_one_byte_more_is_not() -> None:
    """The largest payload is accepted, and one byte more is rejected."""
    padding = MAX_PAYLOAD_BYTES - len(reading(extra=""))
    assert isinstance(PORT.classify(readings_topic(), reading(extra="x" * padding), NOW_MS), ReadingMessage)
    assert reason(PORT.classify(readings_topic(), reading(extra="x" * (padding + 1)), NOW_MS)) is RejectReason.TOO_LARGE


def test_a_ships_reports_go_to_its_two_logs() -> None:
    """A ship's position and weather reports go to two logs."""
    payload = msgspec.json.encode({"vesselIMONumber": IMO, "device": device(3)})
    for what, log in (("position", f"ships.{IMO}.location"), ("environment", f"ships.{IMO}.environment")):
        found = SHIP.classify(f"fairlead/v1/ships/{IMO}/{what}", payload, NOW_MS)
        assert isinstance(found, ShipMessage)
        assert found.log == log


def test_a_ships_report_about_another_ship_is_rejected() -> None:
    payload = msgspec.json.encode({"vesselIMONumber": "9321483", "device": device(3)})
    assert reason(SHIP.classify(f"fairlead/v1/ships/{IMO}/position", payload, NOW_MS)) is RejectReason.NUMBER_MISMATCH


@pytest.mark.parametrize(
    ("code", "more", "to_site"),
    [
        ("GTIN", {}, "tokyo"),
        ("GTOT", {}, None),
        ("LOAD", {"vesselIMONumber": IMO}, "star"),
        ("DISC", {"UNLocationCode": "AUSYD"}, "sydney"),
    ],
)
def test_an_equipment_event_says_who_gets_custody(code: str, more: dict[str, Any], to_site: str | None) -> None:
    """An equipment event names the site that gets custody."""
    found = PORT.classify("fairlead/v1/events", event(code, **more), NOW_MS)
    assert isinstance(found, EventMessage)
    assert (found.log, found.to_site) == (BOX_LOG, to_site)


@pytest.mark.parametrize("code", ["GTIN", "GTOT"])
def test_a_ship_has_no_gate(code: str) -> None:
    """A ship rejects gate events."""
    assert reason(SHIP.classify("fairlead/v1/events", event(code), NOW_MS)) is RejectReason.NOT_HOLDER


def test_a_port_sees_ships_of_other_lines() -> None:
    """A port accepts reports of ships of other lines."""
    found = PORT.classify("fairlead/v1/events", event("ARRI", vesselIMONumber="9811000"), NOW_MS)
    assert isinstance(found, EventMessage)
    assert found.log is None


OTHERS_BOX = "CSQU3054383"  # of an owner that no stream here has


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("GTIN", {}),
        ("LOAD", {"vesselIMONumber": "9811000"}),
        ("LOAD", {"vesselIMONumber": IMO}),
        ("DISC", {"vesselIMONumber": "9811000", "UNLocationCode": "NLRTM"}),
        ("GTOT", {}),
    ],
)
def test_an_event_of_another_lines_box_moves_no_log(code: str, more: dict[str, Any]) -> None:
    found = PORT.classify("fairlead/v1/events", event(code, number=OTHERS_BOX, **more), NOW_MS)
    assert isinstance(found, EventMessage)
    assert (found.log, found.to_site) == (None, None)


def test_an_event_of_another_lines_box_is_checked() -> None:
    """Check digits of containers and ships count for other lines, too."""
    mistyped = event("GTIN", number=OTHERS_BOX[:-1] + "4")
    assert reason(PORT.classify("fairlead/v1/events", mistyped, NOW_MS)) is RejectReason.WRONG_CHECK_DIGIT
    nowhere = event("LOAD", number=OTHERS_BOX, vesselIMONumber="1111111")
    assert reason(PORT.classify("fairlead/v1/events", nowhere, NOW_MS)) is RejectReason.UNKNOWN_SHIP


# -- schedules


def schedule(code: str = "ARRI", days: float = 9, **changes: Any) -> bytes:
    """Return an estimate that is written down now of a call in some days."""
    body: dict[str, Any] = {"vesselIMONumber": IMO, "UNLocationCode": "SGSIN", "voyageReference": "V7"}
    body["eventDateTime"] = (NOW + dt.timedelta(days=days)).isoformat()
    body |= {"eventClassifierCode": "EST"} | changes
    return event(code, **body)


@pytest.mark.parametrize("classifier", ["PLN", "EST"])
@pytest.mark.parametrize("days", [-30, 0, 9, 200])
def test_a_schedule_is_stored_under_the_time_at_which_it_was_written(classifier: str, days: float) -> None:
    for bridge in (PORT, SHIP):
        found = bridge.classify("fairlead/v1/events", schedule(days=days, eventClassifierCode=classifier), NOW_MS)
        assert isinstance(found, EventMessage)
        assert (found.log, found.to_site, found.device_ms, found.event.happened) == (None, None, NOW_MS, False)


@pytest.mark.parametrize("code", ["GTIN", "LOAD", "DISC", "GTOT"])
@pytest.mark.parametrize("classifier", ["PLN", "EST"])
def test_a_planned_event_of_a_box_moves_no_custody(code: str, classifier: str) -> None:
    planned = event(code, eventClassifierCode=classifier, vesselIMONumber=IMO, UNLocationCode="SGSIN")
    assert reason(PORT.classify("fairlead/v1/events", planned, NOW_MS)) is RejectReason.INVALID_FIELDS


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"voyageReference": ""}, RejectReason.INVALID_FIELDS),
        ({"voyageReference": None}, RejectReason.INVALID_FIELDS),
        ({"UNLocationCode": None}, RejectReason.INVALID_FIELDS),
        ({"vesselIMONumber": None}, RejectReason.INVALID_FIELDS),
        ({"vesselIMONumber": "1111111"}, RejectReason.UNKNOWN_SHIP),
        ({"eventDateTime": "2026-04-01T00:00:00"}, RejectReason.INVALID_FIELDS),
        ({"eventClassifierCode": "REQ"}, RejectReason.INVALID_FIELDS),
    ],
)
def test_a_bad_schedule_is_rejected(changes: dict[str, Any], expected: RejectReason) -> None:
    assert reason(PORT.classify("fairlead/v1/events", schedule(**changes), NOW_MS)) is expected


def booking(**changes: str) -> bytes:
    whole = {
        "bookingReference": "B1",
        "customer": "ducks",
        "equipmentReference": BOX,
        "validFrom": "2026-04-01T00:00:00Z",
        **changes,
    }
    return msgspec.json.encode(whole)


def test_a_booking_may_begin_in_the_future() -> None:
    assert isinstance(PORT.classify("fairlead/v1/bookings", booking(), NOW_MS), BookingMessage)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"customer": "nobody"}, RejectReason.UNKNOWN_CUSTOMER),
        ({"equipmentReference": "BIGU1000001"}, RejectReason.WRONG_CHECK_DIGIT),
        ({"equipmentReference": OTHERS_BOX}, RejectReason.UNKNOWN_OWNER),  # no customer gets another line's events
        ({"validFrom": "2026-04-01T00:00:00"}, RejectReason.INVALID_FIELDS),
        ({"validFrom": "soon"}, RejectReason.INVALID_FIELDS),
        ({"transportDocumentReference": "B/L\n7"}, RejectReason.INVALID_FIELDS),
    ],
)
def test_a_bad_booking_is_rejected(changes: dict[str, str], expected: RejectReason) -> None:
    assert reason(PORT.classify("fairlead/v1/bookings", booking(**changes), NOW_MS)) is expected


def test_a_booking_may_name_its_transport_document() -> None:
    found = PORT.classify("fairlead/v1/bookings", booking(transportDocumentReference="B/L 7"), NOW_MS)
    assert isinstance(found, BookingMessage)
    assert found.booking.transport_document_reference == "B/L 7"


def test_a_ship_takes_no_bookings() -> None:
    """A ship rejects bookings."""
    assert reason(SHIP.classify("fairlead/v1/bookings", booking(), NOW_MS)) is RejectReason.NOT_HOLDER


TOPICS = st.sampled_from(
    [readings_topic(), f"fairlead/v1/ships/{IMO}/position", "fairlead/v1/events", "fairlead/v1/bookings"]
) | st.text(max_size=60)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["equipmentReference", "device", "deviceId", "bootId", "sequence", "metadata", "payload"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(TOPICS, st.binary(max_size=200) | JSON.map(lambda value: msgspec.json.encode(value)))
def test_garbage_of_any_kind_is_classified_and_never_raises(topic: str, payload: bytes) -> None:
    """Any input is classified, and none raises an error."""
    for site in (PORT, SHIP):
        assert site.classify(topic, payload, NOW_MS) is not None


@given(st.data())
def test_any_damage_to_a_reading_is_either_harmless_or_rejected(data: st.DataObject) -> None:
    """A damaged reading is either still valid or rejected."""
    good = bytearray(reading(5))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    found = PORT.classify(readings_topic(), bytes(good), NOW_MS)
    assert isinstance(found, Rejected) or (isinstance(found, ReadingMessage) and found.number == BOX)


def test_a_message_on_which_the_code_itself_fails_is_kept_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that makes the code itself fail is kept as a dead letter with the reason.

    Otherwise it would come again and fail again; a dead letter can be replayed when the code is fixed.
    """
    made = Classifier(topology(), "tokyo")

    def fails(*_: object) -> None:
        raise IndexError("a fault of ours")

    monkeypatch.setattr(made, "_classify_reading", fails)
    found = made.classify(readings_topic(), reading(), NOW_MS)
    assert isinstance(found, Rejected)
    assert found.reason is RejectReason.INTERNAL_ERROR
    assert "IndexError: a fault of ours" in found.detail
    assert "Traceback" in caplog.text
