"""Records become record batches: the fast and the strict reader agree, and no value is lost or invented."""

from __future__ import annotations

import datetime as dt
import json
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.kafka.columnar import Stretch, stretch
from fairlead.kafka.convention import filler_batch, marker_record, term_batch
from fairlead.kafka.protocol.errors import CorruptBatch
from fairlead.kafka.protocol.record import NewRecord, encode_batch
from fairlead.records import decoder, encode
from fairlead.records.reading import (
    LATEST_MS,
    Device,
    GeoLocation,
    Measurements,
    Motion,
    Reading,
    ReeferSettings,
    Setpoints,
    moment_of,
)
from shore.source import readings as readings_rows
from shore.source.columns import ROWS_PER_BATCH, RawCollector
from shore.source.parsing import MOST_BYTES, TOO_LONG, read_strict
from shore.source.readings import ONLY_REJECTED, READINGS_SCHEMA, ReadingsCollector

BOX = "BIGU0000016"
LOG = f"containers.{BOX}"


def stored(records: Sequence[NewRecord], base: int, term: int | None = 3) -> Stretch:
    """Return one batch as a broker gives it; without a term it is by another writer than Fairlead."""
    data = bytearray(
        term_batch(records, term=term, offset=base, marker=0)
        if term
        else encode_batch(records, producer_id=-1, epoch=-1, sequence=-1)
    )
    struct.pack_into(">q", data, 0, base)
    return stretch(data, 0, 2**62)


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
    measurements=st.builds(
        Measurements,
        supply_temperature=numbers,
        cargo_probe1_temperature=numbers,
        cargo_probe2_temperature=numbers,
        cargo_probe3_temperature=numbers,
        relative_humidity=numbers,
        o2=numbers,
    ),
    setpoints=st.builds(Setpoints, temperature=numbers, o2=numbers, co2=numbers),
    reefer_settings=st.builds(ReeferSettings, is_defrosting=st.booleans(), is_pre_trip_inspection=st.booleans()),
    is_connected_to_power_source=st.none() | st.booleans(),
    is_powered=st.none() | st.booleans(),
    geo_location=st.none() | st.builds(GeoLocation, latitude=st.floats(-90, 90), longitude=st.floats(-180, 180)),
    motion=st.none() | st.builds(Motion, tilt_degrees=st.floats(0, 180), immersed=st.booleans()),
)


def batch_of(values: Sequence[bytes | None]) -> pa.RecordBatch:
    collector = ReadingsCollector()
    collector.add(LOG, 0, stored([NewRecord(value, timestamp_ms=1_000) for value in values], 0))
    return collector.take_batch()


@settings(deadline=None)
@given(st.lists(readings, min_size=1, max_size=8))
def test_all_ways_to_read_agree(given_readings: list[Reading]) -> None:
    values = [encode(r) for r in given_readings]
    collector = ReadingsCollector()
    fast = collector._fast.read(pa.py_buffer(b"".join(v + b"\n" for v in values)), len(values))  # noqa: SLF001
    assert fast is not None
    found = [a.to_pylist() for a in fast.arrays]
    # A null is as absent: both mean the default.
    plain = [
        msgspec.structs.replace(
            r,
            is_powered=r.is_powered is not False,
            is_connected_to_power_source=r.is_connected_to_power_source is not False,
        )
        for r in given_readings
    ]
    strict = read_strict([encode(r) for r in plain], readings_rows._COLUMNS, decoder(Reading))  # noqa: SLF001
    assert found == [a.to_pylist() for a in strict.arrays]
    tolerant = collector._tolerant  # noqa: SLF001
    assert found == [a.to_pylist() for a in tolerant.read(values).arrays]
    # An unused field has an unexpected type, so only the tolerant reader can read the record.
    newer = [v[:-1] + b',"stowagePosition":{}}' for v in values]
    loose = tolerant.read(newer)
    assert loose.problems.null_count == len(values)
    assert found == [a.to_pylist() for a in loose.arrays]


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
    collector.add(LOG, 0, stored([NewRecord(encode(reading), None, headers, timestamp_ms=1)], 41))
    batch = collector.take_batch()
    assert batch.schema == READINGS_SCHEMA
    (row,) = batch.to_pylist()
    assert (row["log"], row["log_offset"], row["term"], row["equipment_reference"]) == (LOG, 41, 3, BOX)
    assert (row["device_id"], row["boot_id"], row["sequence"], row["device_date_time"]) == ("d1", 2, 7, at)
    assert (row["supply_temperature"], row["setpoint_temperature"], row["return_temperature"]) == (4.5, 4.0, None)
    assert (row["is_powered"], row["is_connected_to_power_source"], row["is_defrosting"]) == (True, True, False)
    assert (row["immersed"], row["tilt_degrees"], row["latitude"]) == (False, 0.0, None)
    assert row["received_date_time"] == dt.datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=dt.UTC)
    assert (row["origin"], row["late"], row["reason"]) == ("strays.tokyo@5", True, None)
    assert [row[column.name] for column in ONLY_REJECTED] == [None] * len(ONLY_REJECTED)
    assert row["payload"] == encode(reading)


@pytest.mark.parametrize(
    ("timestamp_ms", "received", "at_ms", "received_ms"),
    [
        (1_772_366_400_000_000, b"1772366400000000", LATEST_MS, None),
        (1_772_366_400_000_000, b"999999999999999", LATEST_MS, None),
        (2**63 - 1, b"%d" % LATEST_MS, LATEST_MS, LATEST_MS),
        (0, b"-1", 0, None),
        (1_772_366_400_000, b"1772366400000", 1_772_366_400_000, 1_772_366_400_000),
    ],
)
def test_times_of_others_are_within_the_calendar(
    timestamp_ms: int, received: bytes, at_ms: int, received_ms: int | None
) -> None:
    record = NewRecord(b"{broken", None, (("received", received),), timestamp_ms=timestamp_ms)
    parsed, raw = ReadingsCollector(), RawCollector("tokyo")
    for collector in (parsed, raw):
        collector.add(LOG, 0, stored([record], 0, term=None))
    at, got = moment_of(at_ms), moment_of(received_ms) if received_ms is not None else None
    (row,) = parsed.take_batch().to_pylist()
    assert (row["record_date_time"], row["received_date_time"]) == (at, got)
    (row,) = raw.take_batch().to_pylist()
    assert (row["timestamp"], row["received"]) == (at, got)


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
        (b'{"equipmentReference":"BIGU0000016"}', "device"),
        (b"[1,2]", "object"),
        (b'{"equipmentReference":"BIGU0000016","device":{"deviceId":7}}', "deviceId"),
        (encode(Reading(equipment_reference="YELU0000013", device=_device(1))), "YELU0000013"),
        (b"{}\n{}", "equipmentReference"),
        (b" ", "truncated"),
    ],
)
def test_what_cannot_be_read_is_rejected_with_its_reason_and_harms_no_other(bad: bytes | None, told: str) -> None:
    good = encode(Reading(equipment_reference=BOX, device=_device(1)))
    first, second, third = batch_of([good, bad, good]).to_pylist()
    assert first["reason"] is None and third["reason"] is None
    assert first["sequence"] == third["sequence"] == 1
    assert told in second["reason"]
    assert second["payload"] == bad
    assert (second["log_offset"], second["equipment_reference"]) == (1, BOX)
    assert second["device_date_time"] is None and second["sequence"] is None and second["is_powered"] is None


def test_a_rejected_record_keeps_everything_kafka_has_of_it() -> None:
    good = NewRecord(encode(Reading(equipment_reference=BOX, device=_device(1))), timestamp_ms=1)
    headers = (("received", b"2000"), ("origin", b"strays.tokyo@5"), ("trace", None), ("trace", b"\xff"))
    bad = NewRecord(b"\xff", b"key", headers, timestamp_ms=7_000)
    collector = ReadingsCollector()
    collector.add(LOG, 0, stored([good] * 3 + [bad] + [good], 8, term=None))
    rows = collector.take_batch().to_pylist()
    assert [row["reason"] is None for row in rows] == [True, True, True, False, True]
    row = rows[3]
    assert (row["log"], row["log_offset"], row["term"]) == (LOG, 11, None)
    assert (row["record_key"], row["payload"]) == (b"key", b"\xff")
    assert [(h["key"], h["value"]) for h in row["headers"]] == list(headers)
    assert row["origin"] == "strays.tokyo@5"
    assert row["received_date_time"] == dt.datetime(1970, 1, 1, 0, 0, 2, tzinfo=dt.UTC)
    assert row["record_date_time"] == dt.datetime(1970, 1, 1, 0, 0, 7, tzinfo=dt.UTC)


def test_one_bad_record_among_very_many_is_found_and_the_others_are_read() -> None:
    values: list[bytes | None] = [encode(Reading(equipment_reference=BOX, device=_device(i))) for i in range(3_000)]
    values[1_234] = b"{"
    values[2_999] = None
    rows = batch_of(values)
    reasons = rows.column("reason").to_pylist()
    assert [i for i, reason in enumerate(reasons) if reason is not None] == [1_234, 2_999]
    expected = [None if i in (1_234, 2_999) else i for i in range(3_000)]
    assert rows.column("sequence").to_pylist() == expected
    assert rows.column("payload").to_pylist() == values


NEEDED = b'{"equipmentReference":"BIGU0000016","device":{"deviceId":"d","bootId":1,"sequence":2,' + (
    b'"deviceDateTime":"2026-03-01T12:00:00Z"}'
)


inspections = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(inspections)
@example([{"inspectionType": "REMOTE", "inspectionResult": "PASSED"}])
@example(2**70)
def test_inspections_are_kept_whatever_their_form(value: object) -> None:
    told = NEEDED + b',"inspection":' + json.dumps(value).encode() + b"}"
    first, second = batch_of([told, NEEDED + b"}"]).to_pylist()
    assert first["reason"] is None
    assert second["inspection"] is None
    assert value is None or json.loads(first["inspection"]) == value


def test_an_inspection_is_found_beside_a_field_that_is_not_utf_8_and_not_in_what_is_rejected() -> None:
    """A device may write a field that Fairlead does not know in Latin-1."""
    odd = NEEDED + b',"vendorNote":"K\xfchlung","inspection":[7]}'
    broken = NEEDED + b',"inspection":["\xfc"]}'
    foreign = b'{"equipmentReference":"X","inspection":[8]}'
    rows = batch_of([odd, broken, foreign, None]).to_pylist()
    assert [row["inspection"] for row in rows] == ["[7]", None, None, None]
    assert [row["reason"] is None for row in rows] == [True, True, False, False]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (b',"later":[1],"measurements":{"supplyTemperature":4,"newProbe":{}}', {"supply_temperature": 4.0}),
        (b',"measurements":{"supplyTemperature":"4","o2":1}', {"supply_temperature": None, "o2": 1.0}),
        (b',"measurements":[4.0],"isPowered":false', {"supply_temperature": None, "is_powered": False}),
        (b',"isPowered":"YES","setpoints":{"temperature":1}', {"is_powered": None, "setpoint_temperature": 1.0}),
        (b',"motion":{"tiltDegrees":{},"peakG":2}', {"tilt_degrees": None, "peak_g": 2.0, "immersed": False}),
        (b',"motion":null,"geoLocation":{"latitude":1}', {"immersed": None, "latitude": 1.0, "longitude": None}),
        (b',"reeferSettings":"DEFROST"', {"is_defrosting": None, "is_powered": True}),
        (b',"reeferSettings":null,"isPowered":null', {"is_defrosting": False, "is_powered": True}),
        (b',"reeferSettings":null,"isPowered":null,"setpoints":1', {"is_defrosting": False, "is_powered": True}),
    ],
)
def test_what_a_newer_writer_changed_of_optional_fields_rejects_nothing(
    more: bytes, expected: dict[str, object]
) -> None:
    payload = NEEDED + more + b"}"
    (row,) = batch_of([payload]).to_pylist()
    assert row["reason"] is None
    assert (row["device_id"], row["sequence"], row["payload"]) == ("d", 2, payload)
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    "changed",
    [
        NEEDED.replace(b':2,"', b':18446744073709551616,"') + b"}",  # beyond 64 bits
        NEEDED.replace(b'"d"', rb'"\ud800"') + b"}",  # half a character
        NEEDED.replace(b"2026-03-01T12:00:00Z", b"2026-03-01T25:00:00Z") + b"}",
        NEEDED + b',"measurements":{"supplyTemperature":1e999}}',  # not a finite number
        b"[" * 100_000,
    ],
)
def test_what_no_column_can_hold_is_rejected_and_stops_nothing(changed: bytes) -> None:
    first, second = batch_of([changed, NEEDED + b"}"]).to_pylist()
    assert first["reason"] is not None and second["reason"] is None
    assert (first["device_id"], first["sequence"], first["payload"]) == (None, None, changed)
    assert second["sequence"] == 2


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "9999-06-01T00:00:00Z"])
def test_a_time_beyond_the_calendar_is_rejected_by_both_readers(time: str) -> None:
    changed = NEEDED.replace(b"2026-03-01T12:00:00Z", time.encode())
    for beyond in (changed + b"}", changed + b',"isPowered":7}'):
        first, second = batch_of([beyond, NEEDED + b"}"]).to_pylist()
        assert "year" in first["reason"] and first["device_date_time"] is None
        assert second["reason"] is None
        assert "year" in batch_of([beyond]).to_pylist()[0]["reason"]


_TIMES = st.sampled_from(
    "2026-01-01T00:00:00 2026-01-01 2026-01-01T00:00Z 2026-01-01T24:00:00Z 2026-01-01t00:00:00z "
    "2026-01-01T00:00:00.1234567Z 2026-01-01T00:00:00+0200 2026-01-01T00:00:00+02 0000-01-01T00:00:00Z "
    "0001-01-01T00:00:00+05:00 9999-12-31T23:59:59-05:00 9998-12-31T23:59:59-05:00".split()
) | st.datetimes(timezones=st.timezones() | st.none()).map(dt.datetime.isoformat)
_COUNTS = st.sampled_from([-1, 0, 2**63 - 1, 2**63, -(2**63), 1.0, 1.5, True, "1", None]) | st.integers(-5, 5)
_ANY: st.SearchStrategy[Any] = st.sampled_from([None, False, True, -2, 0, 1, -0.5, 1.0, 2e9, "", "1", [], {}])
_RECORDS = st.fixed_dictionaries(
    {
        "equipmentReference": st.just(BOX),
        "device": st.fixed_dictionaries(
            {"deviceId": st.just("d"), "bootId": _COUNTS, "sequence": _COUNTS, "deviceDateTime": _TIMES}
        ),
    },
    optional={"isPowered": _ANY, "motion": _ANY, "measurements": st.fixed_dictionaries({"o2": _ANY}), "alarms": _ANY},
).map(msgspec.json.encode)
_BROKEN = st.builds(
    lambda at, byte: NEEDED[:at] + bytes([byte]) + NEEDED[at + 1 :] + b"}",
    st.integers(0, len(NEEDED) - 1),
    st.integers(0, 255) | st.sampled_from(b'0"-+.,: \x80\\'),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(_RECORDS | _BROKEN, min_size=1, max_size=4))
@example([NEEDED.replace(b"2026-03-01T12:00:00Z", b"2026-03-01T12:00:00") + b"}"])
@example([NEEDED.replace(b'"sequence":2', b'"sequence":-5') + b"}"])
@example([NEEDED.replace(b'"d"', b'"\xff"') + b"}"])
@example([NEEDED + b',"stowagePosition":"\xff"}'])
@example([NEEDED + b',"stowagePosition":{},"later":"\xff","isPowered":false}'])
def test_no_neighbour_decides_whether_a_record_is_rejected(values: list[bytes]) -> None:
    alone = [row for value in values for row in batch_of([value]).to_pylist()]
    together = batch_of(values).to_pylist()
    beside = batch_of([*values, b"{"]).to_pylist()[:-1]  # no fast reader takes this part
    for row in (*alone, *together, *beside):
        del row["log_offset"]
    assert alone == together == beside


def test_pretty_printed_json_and_other_time_zones_are_read() -> None:
    text = (
        b'{\n "equipmentReference": "BIGU0000016",\n "device": {"deviceId": "d", "bootId": 1, "sequence": 2,'
        b' "deviceDateTime": "2026-03-01T14:00:00+02:00"}, "later": [1]}'
    )
    (row,) = batch_of([text]).to_pylist()
    assert row["reason"] is None
    assert row["device_date_time"] == dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def test_raw_rows_keep_everything_kafka_has() -> None:
    collector = RawCollector("tokyo")
    headers = (("received", b"2000"), ("trace", None), ("trace", b"x"))
    collector.add("events.tokyo", 0, stored([NewRecord(b"\xff", None, headers, timestamp_ms=1_000)], 5, term=1))
    collector.add("foreign", 2, stored([NewRecord(None, b"k", timestamp_ms=3_000)], 9, term=None))
    first, second = collector.take_batch().to_pylist()
    assert collector.take_batch().num_rows == 0
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


def test_a_reading_that_is_too_long_is_rejected_whole_and_its_neighbours_are_not() -> None:
    good = encode(Reading(equipment_reference=BOX, device=_device(1)))
    long = good[:-1] + b',"more":"%s"}' % (b"x" * MOST_BYTES)
    rows = batch_of([good, long, good]).to_pylist()
    assert [row["reason"] for row in rows] == [None, TOO_LONG, None]
    assert [row["device_date_time"] is None for row in rows] == [False, True, False]
    assert [row["payload"] for row in rows] == [good, long, good]


def test_markers_and_fillers_are_no_rows_and_a_collector_says_when_it_has_enough() -> None:
    collector = ReadingsCollector()
    collector.add(LOG, 0, stored([marker_record(b"m", timestamp_ms=1)], 0))
    good = NewRecord(encode(Reading(equipment_reference=BOX, device=_device(1))), timestamp_ms=1)
    collector.add(LOG, 0, stored([good], 1))
    assert not collector.full
    fillers = bytearray(filler_batch(ROWS_PER_BATCH, term=3, offset=2, marker=0, timestamp_ms=1))
    struct.pack_into(">q", fillers, 0, 2)
    collector.add(LOG, 0, stretch(fillers, 0, 2**62))
    assert collector.full
    (row,) = collector.take_batch().to_pylist()
    assert row["log_offset"] == 1
    assert not collector.full


def test_a_damaged_batch_is_told_with_its_log() -> None:
    good = NewRecord(encode(Reading(equipment_reference=BOX, device=_device(1))), timestamp_ms=1)
    damaged = bytearray(stored([good], 7).buffer)
    damaged[-9] ^= 1
    collector = ReadingsCollector()
    collector.add(LOG, 0, stored([good], 7))
    collector.add("containers.BIGU0000021", 0, stretch(damaged, 0, 2**62))
    with pytest.raises(CorruptBatch, match="BIGU0000021") as error:
        collector.take_batch()
    assert error.value.fields == {"log": "containers.BIGU0000021", "offset": 7}
