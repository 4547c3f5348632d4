"""Digests: a round trip keeps everything, each stands alone, and damage has a name."""

from __future__ import annotations

import datetime as dt
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.errors import FairleadError
from fairlead.names import container_check_digit
from fairlead.records import UNREADABLE
from fairlead.records.alert import SEVERITIES
from fairlead.records.digest import Digest, DigestBox, DigestError, decode_digest, encode_digest
from fairlead.records.reading import moment_of

AS_OF = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
STAR = "9074729"


def number(owner: str, serial: int) -> str:
    ten = f"{owner}{serial:06d}"
    return ten + container_check_digit(ten)


numbers = st.builds(number, st.sampled_from(("BIGU", "REDU", "AAAJ", "ZZZU")), st.integers(0, 999_999))
celsius = st.none() | st.integers(-30_000, 30_000).map(lambda hundredths: hundredths / 100)
moments = st.integers(0, 4_102_444_800_000).map(moment_of)
severities = st.sampled_from((None, *SEVERITIES))
boxes = st.builds(
    DigestBox,
    equipment_reference=numbers,
    reading_date_time=moments | st.integers(-100_000, 100_000).map(lambda s: AS_OF + dt.timedelta(seconds=s)),
    setpoint_temperature=celsius,
    supply_temperature=celsius,
    return_temperature=celsius,
    is_connected_to_power_source=st.booleans(),
    is_powered=st.booleans(),
    in_band=st.none() | st.booleans(),
    is_disturbed=st.booleans(),
    door_open=st.booleans(),
    immersed=st.booleans(),
    open_alerts=st.integers(0, 100),
    worst_severity=severities,
)
digests = st.builds(
    Digest,
    vessel_imo_number=st.sampled_from((STAR, "9321483", "0000000")),
    as_of_date_time=moments,
    whole=st.booleans(),
    boxes=st.lists(boxes, max_size=8, unique_by=lambda box: box.equipment_reference).map(
        lambda found: tuple(sorted(found, key=lambda box: box.equipment_reference))
    ),
)


def digest(*found: DigestBox) -> Digest:
    return Digest(vessel_imo_number=STAR, as_of_date_time=AS_OF, boxes=found)


def box(serial: int = 1, **more: object) -> DigestBox:
    plain = DigestBox(equipment_reference=number("BIGU", serial), reading_date_time=AS_OF)
    return msgspec.structs.replace(plain, **more)


@given(digests)
def test_a_round_trip_keeps_everything(one: Digest) -> None:
    assert decode_digest(encode_digest(one)) == one


@given(st.data(), digests)
def test_every_changed_byte_and_every_cut_is_found(data: st.DataObject, one: Digest) -> None:
    value = encode_digest(one)
    place, bits = data.draw(st.integers(0, len(value) - 1)), data.draw(st.integers(1, 255))
    changed = value[:place] + bytes((value[place] ^ bits,)) + value[place + 1 :]
    for damaged in (changed, value[:place], value + b"\0"):
        with pytest.raises(DigestError):
            decode_digest(damaged)


@given(st.binary(max_size=200), st.integers(0, 255))
def test_no_bytes_raise_another_error(body: bytes, flags: int) -> None:
    """Bytes with a right check sum, as a writer that does not keep the form would make them."""
    head = bytes((1, flags)) + int(STAR).to_bytes(4, "little") + (0).to_bytes(8, "little")
    for value in (body, head + body):
        try:
            found = decode_digest(value + zlib.crc32(value).to_bytes(4, "little"))
        except DigestError as error:
            assert isinstance(error, UNREADABLE)
            assert isinstance(error, FairleadError)
            assert error.hint
        else:
            assert decode_digest(encode_digest(found)) == found


def test_a_version_that_is_not_known_has_its_own_message() -> None:
    body = b"\2" + encode_digest(digest(box()))[1:-4]
    with pytest.raises(DigestError, match="of version 2; this Fairlead reads version 1") as caught:
        decode_digest(body + zlib.crc32(body).to_bytes(4, "little"))
    assert caught.value.fields == {"version": 2}


def test_values_are_rounded_to_what_sensors_report() -> None:
    warm = box(supply_temperature=4.126, return_temperature=4.0, setpoint_temperature=1e9)
    late = box(2, reading_date_time=AS_OF - dt.timedelta(microseconds=1))
    first, second = decode_digest(encode_digest(digest(late, warm))).boxes
    assert (first.supply_temperature, first.return_temperature, first.setpoint_temperature) == (4.13, 4.0, None)
    assert second.reading_date_time == AS_OF - dt.timedelta(milliseconds=1), "rounded down"


@pytest.mark.parametrize(
    "wrong",
    [
        digest(box(), box()),
        digest(box(equipment_reference="BIGU0000010")),
        msgspec.structs.replace(digest(), vessel_imo_number="9074728"),
    ],
    ids=["a box twice", "no container", "no ship"],
)
def test_what_is_no_digest_is_not_written(wrong: Digest) -> None:
    with pytest.raises(DigestError):
        encode_digest(wrong)


def test_it_takes_a_few_bytes_a_box() -> None:
    """Compressed by the batch; ``make bench-edge`` has the figures of a large ship."""
    found = [
        box(serial * 37, supply_temperature=4 + serial % 7 / 10, return_temperature=4.5, setpoint_temperature=4.0)
        for serial in range(1000)
    ]
    assert len(encode_digest(digest(*found))) < 10 * len(found)
