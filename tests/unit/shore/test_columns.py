"""Records into record batches: the fast and the strict way agree, nothing is lost, nothing invented."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.records import decoder, encode
from fairlead.records.reading import Device, GeoLocation, Measurements, Motion, Reading, ReeferSettings, Setpoints
from shore.parsing import read_strict
from shore.source import columns
from shore.source.columns import READINGS_SCHEMA, RawCollector, ReadingsCollector

BOX = "BIGU0000013"
LOG = f"containers.{BOX}"


class Rec(NamedTuple):
    offset: int
    value: bytes | None
    timestamp_ms: int = 1_000
    key: bytes | None = BOX.encode()
    headers: tuple[tuple[str, bytes | None], ...] = ()


numbers = st.none() | st.floats(-60, 60)
readings = st.builds(
    Reading,
    equipment_reference=st.just(BOX),
    device=st.builds(
        Device,
        device_id=st.text(min_size=1, max_size=8),
        boot_id=st.integers(0, 2**40),
        sequence=st.integers(0, 2**40),
        device_date_time=st.datetimes(
            dt.datetime(2001, 1, 1),  # noqa: DTZ001  # Hypothesis adds the zone itself
            dt.datetime(2098, 1, 1),  # noqa: DTZ001
            timezones=st.just(dt.UTC),
        ),
    ),
    measurements=st.builds(Measurements, supply_temperature=numbers, relative_humidity=numbers, o2=numbers),
    setpoints=st.builds(Setpoints, temperature=numbers),
    reefer_settings=st.builds(ReeferSettings, is_defrosting=st.booleans(), is_pre_trip_inspection=st.booleans()),
    is_connected_to_power_source=st.booleans(),
    is_powered=st.booleans(),
    geo_location=st.none() | st.builds(GeoLocation, latitude=st.floats(-90, 90), longitude=st.floats(-180, 180)),
    motion=st.none() | st.builds(Motion, tilt_degrees=st.floats(0, 180), immersed=st.booleans()),
)


def batch_of(values: list[bytes | None]) -> pa.RecordBatch:
    collector = ReadingsCollector()
    collector.add(LOG, 0, 3, [Rec(i, value) for i, value in enumerate(values)])
    return collector.take()


@settings(deadline=None)
@given(st.lists(readings, min_size=1, max_size=8))
def test_fast_and_strict_reading_agree(given_readings: list[Reading]) -> None:
    values: list[bytes | None] = [encode(r) for r in given_readings]
    collector = ReadingsCollector()
    fast = collector._fast.read(values)  # noqa: SLF001
    strict = read_strict(values, columns._COLUMNS, decoder(Reading))  # noqa: SLF001
    assert fast is not None
    assert [a.to_pylist() for a in fast.arrays] == [a.to_pylist() for a in strict.arrays]


def test_a_reading_becomes_one_documented_row() -> None:
    at = dt.datetime(2026, 3, 1, 12, 0, 0, 500, tzinfo=dt.UTC)
    reading = Reading(
        equipment_reference=BOX,
        device=Device(device_id="d1", boot_id=2, sequence=7, device_date_time=at),
        measurements=Measurements(supply_temperature=4.5),
        setpoints=Setpoints(temperature=4.0),
        motion=Motion(),
    )
    collector = ReadingsCollector()
    headers = (("received", b"1772366400123"), ("origin", b"strays.tokyo@5"), ("late", b"1"))
    collector.add(LOG, 0, 3, [Rec(41, encode(reading), headers=headers)])
    batch = collector.take()
    assert batch.schema == READINGS_SCHEMA
    (row,) = batch.to_pylist()
    assert (row["log"], row["log_offset"], row["term"], row["equipment_reference"]) == (LOG, 41, 3, BOX)
    assert (row["device_id"], row["boot_id"], row["sequence"], row["device_date_time"]) == ("d1", 2, 7, at)
    assert (row["supply_temperature"], row["setpoint_temperature"], row["return_temperature"]) == (4.5, 4.0, None)
    assert (row["is_powered"], row["is_connected_to_power_source"], row["is_defrosting"]) == (True, True, False)
    assert (row["immersed"], row["tilt_degrees"], row["latitude"]) == (False, 0.0, None)
    assert row["received_date_time"] == dt.datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=dt.UTC)
    assert (row["origin"], row["late"], row["problem"]) == ("strays.tokyo@5", True, None)
    assert row["payload"] == encode(reading)


def test_no_motion_sensor_is_not_a_box_at_rest() -> None:
    reading = encode(Reading(equipment_reference=BOX, device=_device(1)))
    (row,) = batch_of([reading]).to_pylist()
    assert (row["immersed"], row["tilt_degrees"]) == (None, None)


def _device(sequence: int) -> Device:
    at = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    return Device(device_id="d1", boot_id=1, sequence=sequence, device_date_time=at)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (b"{not json", "JSON"),
        (b"", "truncated"),
        (None, "no value"),
        (b"\xff\xfe", "JSON"),
        (b'{"equipmentReference":"BIGU0000013"}', "device"),
        (b"[1,2]", "object"),
        (b'{"equipmentReference":"BIGU0000013","device":{"deviceId":7}}', "deviceId"),
        (encode(Reading(equipment_reference="YELU0000018", device=_device(1))), "YELU0000018"),
        (b"{}\n{}", "equipmentReference"),
        (b" ", "truncated"),
    ],
)
def test_what_cannot_be_read_is_a_row_with_its_problem_and_harms_no_other(bad: bytes | None, told: str) -> None:
    good = encode(Reading(equipment_reference=BOX, device=_device(1)))
    first, second, third = batch_of([good, bad, good]).to_pylist()
    assert first["problem"] is None and third["problem"] is None
    assert first["sequence"] == third["sequence"] == 1
    assert told in second["problem"]
    assert second["payload"] == bad
    assert (second["log_offset"], second["equipment_reference"]) == (1, BOX)
    assert second["device_date_time"] is None and second["sequence"] is None and second["is_powered"] is None


def test_pretty_printed_json_and_other_time_zones_are_read() -> None:
    text = (
        b'{\n "equipmentReference": "BIGU0000013",\n "device": {"deviceId": "d", "bootId": 1, "sequence": 2,'
        b' "deviceDateTime": "2026-03-01T14:00:00+02:00"}, "later": [1]}'
    )
    (row,) = batch_of([text]).to_pylist()
    assert row["problem"] is None
    assert row["device_date_time"] == dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def test_raw_rows_keep_everything_kafka_has() -> None:
    collector = RawCollector("tokyo")
    headers = (("received", b"2000"), ("trace", None), ("trace", b"x"))
    collector.add("events.tokyo", 0, 1, [Rec(5, b"\xff", key=None, headers=headers)])
    collector.add("foreign", 2, None, [Rec(9, None, timestamp_ms=3_000)])
    assert len(collector) == 2
    first, second = collector.take().to_pylist()
    assert len(collector) == 0
    assert (first["topic"], first["stream"], first["log_key"], first["site"]) == (
        "events.tokyo",
        "events",
        "tokyo",
        "tokyo",
    )
    assert (first["offset"], first["term"], first["key"], first["value"]) == (5, 1, None, b"\xff")
    assert first["received"] == dt.datetime(1970, 1, 1, 0, 0, 2, tzinfo=dt.UTC)
    assert first["headers"] == [{"key": k, "value": v} for k, v in headers]
    assert (second["stream"], second["log_key"], second["partition"], second["term"]) == (None, None, 2, None)
    assert second["timestamp"] == dt.datetime(1970, 1, 1, 0, 0, 3, tzinfo=dt.UTC)
