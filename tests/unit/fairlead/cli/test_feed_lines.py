"""What a customer sees on a line of ``fairlead feed``."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json

import pytest

from acl.kafka import Received
from fairlead.cli.commands import feed
from fairlead.cli.commands.feed import as_line
from fairlead.records import encode
from fairlead.records.alert import Alert, Evidence
from fairlead.records.booking import Retraction
from fairlead.records.custody import CustodyEntry, CustodyEvent
from fairlead.records.headers import ORIGIN
from fairlead.records.reading import Device, Measurements, Reading, Setpoints

WHEN = dt.datetime(2026, 9, 21, 16, 51, 12, tzinfo=dt.UTC)
BOX = "BIGU1000016"


def received(value: bytes) -> Received:
    return Received("feeds.ducks", 7, int(WHEN.timestamp() * 1000), BOX.encode(), value, ())


def test_a_reading_in_columns() -> None:
    device = Device(device_id="d", boot_id=0, sequence=1, device_date_time=WHEN)
    reading = Reading(
        equipment_reference=BOX,
        device=device,
        measurements=Measurements(supply_temperature=5.04),
        setpoints=Setpoints(temperature=5.0),
        is_powered=False,
    )
    line = as_line(received(encode(reading)))
    assert line.split() == ["7", "2026-09-21", "16:51:12", BOX, "5.0", "5.0", "OFF", "-"]


@pytest.mark.parametrize(
    ("plugged", "powered", "shown"),
    [(True, True, "on"), (True, False, "OFF"), (False, False, "UNPLUGGED"), (None, False, "OFF"), (None, None, "-")],
)
def test_plugged_and_powered_are_told_apart(plugged: bool | None, powered: bool | None, shown: str) -> None:
    device = Device(device_id="d", boot_id=0, sequence=1, device_date_time=WHEN)
    reading = Reading(equipment_reference=BOX, device=device, is_connected_to_power_source=plugged, is_powered=powered)
    assert as_line(received(encode(reading))).split()[-2] == shown


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
def test_a_time_that_utc_does_not_have_is_told_as_it_is(time: str) -> None:
    device = Device(device_id="d", boot_id=0, sequence=1, device_date_time=dt.datetime.fromisoformat(time))
    line = as_line(received(encode(Reading(equipment_reference=BOX, device=device))))
    assert line.split()[1:3] == time.split("T")


def raised(by: str) -> Alert:
    return Alert(
        alert_id="x",
        kind="OVERBOARD",
        severity="CRITICAL",
        state="OPENED",
        equipment_reference=BOX,
        raised_at=by,
        event_date_time=WHEN,
        raised_date_time=WHEN,
        evidence=(Evidence(name="impact", weight=0.3, detail="15.5 g"), Evidence(name="tilt", weight=0.4)),
    )


def test_an_alert_in_words() -> None:
    line = as_line(received(encode(raised("duck-star"))))
    assert line.endswith(f"{BOX}  CRITICAL OVERBOARD opened by duck-star: impact (15.5 g), tilt")


@pytest.mark.parametrize(
    ("topic", "origin", "claimed", "shown"),
    [
        ("feeds.ducks", b"alerts.duck-star@3", "tokyo", "duck-star"),  # stored by 0.1.0
        ("feeds.ducks", f"alerts/{BOX}/a.1@0".encode(), "shore", "shore"),
        ("feeds.ducks", None, "tokyo", "tokyo"),
        ("alerts.duck-star", b"alerts.tokyo@3", "tokyo", "duck-star"),  # a site's own log
    ],
)
def test_an_alert_is_of_the_site_whose_log_has_it(topic: str, origin: bytes | None, claimed: str, shown: str) -> None:
    record = received(encode(raised(claimed)))
    line = as_line(dataclasses.replace(record, topic=topic, headers=((ORIGIN, origin),)))
    assert f" opened by {shown}: " in line


def moved(event: CustodyEvent, from_site: str | None, to_site: str | None) -> bytes:
    return encode(
        CustodyEntry(
            log=f"containers.{BOX}",
            term=2,
            marker_offset=3,
            from_site=from_site,
            to_site=to_site,
            event=event,
            event_id="e",
            event_date_time=WHEN,
            granted_date_time=WHEN,
            granted_by="tokyo",
            marker_batch=bytes(600),
        )
    )


@pytest.mark.parametrize(
    ("event", "from_site", "to_site", "shown"),
    [
        ("LOAD", "tokyo", "duck-star", "LOAD tokyo -> duck-star, term 2"),
        ("GTIN", None, "tokyo", "GTIN -> tokyo, term 2"),
        ("GTOT", "tokyo", None, "GTOT tokyo ->, term 2"),
    ],
)
def test_a_change_of_custody_in_words(
    event: CustodyEvent, from_site: str | None, to_site: str | None, shown: str
) -> None:
    line = as_line(received(moved(event, from_site, to_site)))
    assert line == f"       7  2026-09-21 16:51:12  {BOX}  {shown}"


def test_a_retraction_in_words() -> None:
    taken = Retraction(retracts=f"digests/{BOX}@0", feed_offset=5, equipment_reference=BOX)
    assert as_line(received(encode(taken))).endswith(f"{BOX}  takes back offset 5 (digests/{BOX}@0)")


def test_anything_else_as_it_is() -> None:
    assert as_line(received(b"what is this?")).endswith("what is this?")


NOT_UTF_8 = b'{"equipmentReference":"BIGU1000016","vendorNote":"K\xfchlung"}'


def test_a_value_that_is_not_utf_8_is_printed_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """A device may write a field that Fairlead does not know in Latin-1. Neither form of the output ends with it."""
    feed._print(received(NOT_UTF_8), as_json=True)  # noqa: SLF001
    assert json.loads(capsys.readouterr().out)["value"] == NOT_UTF_8.decode(errors="replace")
    known = NOT_UTF_8.replace(b"vendorNote", b"raisedAt").replace(b"BIGU1000016", b"BIG\xdc")
    assert as_line(received(known)).endswith(known.decode(errors="replace"))
