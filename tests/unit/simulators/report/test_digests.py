"""Digest against bulk: what a digest says is held against the reading of that time in the box's log."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from fairlead.kafka.protocol.record import Record
from fairlead.records import encode, headers
from fairlead.records.digest import Digest, DigestBox
from fairlead.records.reading import Device, Measurements, Reading, Setpoints, milliseconds
from simulators.report.digests import DigestFigures, StoredDigest, add_readings, digest_figures, told_times
from tests.support.simulators.worlds import small_plan

PLAN = small_plan()
STAR = PLAN.timetables["duck-star"]
SAILS = STAR.calls[0].departs
MINUTE = dt.timedelta(minutes=1)
BOX = PLAN.boxes[0].number
LOG = f"ships.{STAR.imo}.digest"


def said(**changes: object) -> DigestBox:
    box = DigestBox(
        equipment_reference=BOX,
        reading_date_time=SAILS + MINUTE,
        setpoint_temperature=4.0,
        supply_temperature=4.12,
        return_temperature=4.5,
    )
    return msgspec.structs.replace(box, **changes)


def stored(*boxes: DigestBox, after: dt.timedelta = 2 * MINUTE, size: int = 120) -> StoredDigest:
    return StoredDigest(LOG, size, Digest(vessel_imo_number=STAR.imo, as_of_date_time=SAILS + after, boxes=boxes))


def record(supply: float = 4.12, *, ahead: dt.timedelta = dt.timedelta(), powered: bool = True) -> Record:
    """Return the reading's record. Its device's clock is ``ahead`` of the moment of receipt, which the digest names."""
    time = SAILS + MINUTE + ahead
    reading = Reading(
        equipment_reference=BOX,
        device=Device(device_id="d", boot_id=1, sequence=1, device_date_time=time),
        measurements=Measurements(supply_temperature=supply, return_temperature=4.5),
        setpoints=Setpoints(temperature=4.0),
        is_powered=powered,
    )
    received = b"%d" % milliseconds(SAILS + (MINUTE if ahead else 2 * MINUTE))
    return Record(7, milliseconds(time), BOX.encode(), encode(reading), ((headers.RECEIVED, received),))


def figures(digests: list[StoredDigest], *records: Record) -> tuple[DigestFigures, ...]:
    times = told_times(digests)
    add_readings(times, {f"containers.{BOX}": records, "containers.XXXU0000000": [record(9.0)]})
    return digest_figures(PLAN, digests, times)


def test_the_digests_of_a_passage_are_counted_and_compared() -> None:
    (found,) = figures([stored(said()), stored(said(), after=20 * MINUTE), stored(said(), after=-MINUTE)], record())
    assert (found.passage, found.digests, found.bytes) == ("duck-star, tokyo to singapore", 2, 240), "not one in port"
    assert (found.told, found.equal, found.kelvin_apart) == (2, 2, 0.0)


@pytest.mark.parametrize(
    ("box", "found", "apart"),
    [
        (said(), record(4.62), 0.5),
        (said(), record(powered=False), 0.0),
        (said(supply_temperature=None), record(), 0.0),
        (said(reading_date_time=SAILS + 2 * MINUTE), record(), 0.0),
    ],
    ids=["temperature", "power", "no temperature", "no reading of that time"],
)
def test_a_digest_that_says_something_else_is_found(box: DigestBox, found: Record, apart: float) -> None:
    (of_passage,) = figures([stored(box)], found)
    assert (of_passage.told, of_passage.equal) == (1, 0)
    assert of_passage.kelvin_apart == pytest.approx(apart)


def test_of_two_readings_of_one_time_either_counts() -> None:
    (found,) = figures([stored(said())], record(9.0), record())
    assert (found.equal, found.kelvin_apart) == (1, 0.0)


def test_a_clock_that_is_ahead_counts_as_the_moment_of_receipt() -> None:
    (found,) = figures([stored(said())], record(ahead=dt.timedelta(hours=1)))
    assert found.equal == 1


def test_a_digest_that_cannot_be_read_makes_the_figures_unequal() -> None:
    found = figures([StoredDigest(LOG, 10, None)])
    assert found
    assert all((each.told, each.equal) == (1, 0) for each in found)


def test_what_sank_with_the_ship_is_nowhere_else() -> None:
    digests = [stored(said()), stored(said(reading_date_time=SAILS + 2 * MINUTE))]
    times = told_times(digests)
    add_readings(times, {f"containers.{BOX}": [record()]})
    (found,) = digest_figures(PLAN, digests, times, {"duck-star"})
    assert (found.told, found.equal, found.sunk, found.ok) == (2, 1, 1, True)
    (of_another,) = digest_figures(PLAN, digests, times, {"blue-marlin"})
    assert (of_another.sunk, of_another.ok) == (0, False)


def test_a_ship_without_digests_has_no_figures() -> None:
    assert figures([]) == ()
