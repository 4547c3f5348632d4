"""Decode AIS sentences into positions for the ship's log. Sentences of other ships are recorded ones, the ship's own
are generated.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.ais.decoder import EVERY_MS, AisDecoder
from fairlead.records.reading import GeoLocation
from tests.support.ais import DAMAGED, OWN, REAL, sentences, static
from tests.support.edge.samples import IMO, NOW_MS


def decoder() -> AisDecoder:
    return AisDecoder(IMO, boot=7)


def test_an_own_report_becomes_a_position() -> None:
    [line] = sentences()
    position = decoder().decode_line(line + b"\r\n", NOW_MS)
    assert position is not None
    assert position.vessel_imo_number == IMO
    assert position.geo_location == GeoLocation(latitude=-33.5, longitude=151.25)
    assert (position.speed_over_ground, position.course_over_ground, position.heading) == (14.2, 271.0, 270)
    assert position.navigation_status == 0
    assert (position.device.device_id, position.device.boot_id, position.device.sequence) == (f"ais-{OWN}", 7, 0)
    assert position.device.device_date_time.timestamp() * 1000 == NOW_MS


def test_what_is_not_available_is_null() -> None:
    """AIS's "not available" values become null."""
    [line] = sentences(lat=91.0, lon=181.0, speed=102.3, course=360.0, heading=511, status=15)
    position = decoder().decode_line(line, NOW_MS)
    assert position is not None
    assert (position.geo_location, position.speed_over_ground) == (None, None)
    assert (position.course_over_ground, position.heading, position.navigation_status) == (None, None, 15)


def test_other_ships_are_passed_over_until_one_says_that_it_is_this_one() -> None:
    """Reports from a radio (VDM) count as the ship's own only after a static report has linked their sender to the
    ship's IMO number.
    """
    ais = decoder()
    [line] = sentences("VDM")
    assert ais.decode_line(REAL, NOW_MS) is None
    assert ais.decode_line(line, NOW_MS) is None
    assert [ais.decode_line(part, NOW_MS) for part in static()] == [None, None]
    assert ais.decode_line(line, NOW_MS) is not None
    assert ais.decode_line(REAL, NOW_MS) is None
    assert ais.counts == {"others": 4, "taken": 1}


def test_another_ship_s_static_report_does_not_make_it_this_one() -> None:
    """A static report with another IMO number does not make its sender the ship itself."""
    ais = decoder()
    for part in static(imo="9321483"):
        ais.decode_line(part, NOW_MS)
    assert ais.decode_line(sentences("VDM")[0], NOW_MS) is None


def test_reports_are_thinned_but_a_change_of_status_is_kept() -> None:
    """Only some of the reports are kept, but always one that changes the navigation status."""
    ais = decoder()
    [sailing], [moored] = sentences(), sentences(status=5)
    taken = [
        ais.decode_line(line, NOW_MS + after) is not None
        for line, after in (
            (sailing, 0),
            (sailing, 2_000),
            (moored, 4_000),
            (moored, 6_000),
            (moored, 4_000 + EVERY_MS),
        )
    ]
    assert taken == [True, False, True, False, True]
    assert ais.counts == {"taken": 3, "thinned": 2}


def test_a_damaged_sentence_is_counted_and_passed_over() -> None:
    ais = decoder()
    assert ais.decode_line(DAMAGED, NOW_MS) is None
    assert ais.decode_line(b"!" * 5_000, NOW_MS) is None
    assert ais.counts["damaged"] == 2


@given(st.binary(max_size=120) | st.binary(max_size=60).map(lambda tail: REAL[:30] + tail))
def test_no_bytes_are_too_odd(line: bytes) -> None:
    """No sequence of bytes makes the decoder raise an error."""
    ais = decoder()
    for _ in range(2):
        ais.decode_line(line, NOW_MS)
    assert ais.decode_line(sentences()[0], NOW_MS) is not None


@pytest.mark.parametrize("line", [b"", b"$GPGGA,,,,,,0,,,M,,M,,*66", b"\\g:1-2-73874*A\\"])
def test_other_sentences_of_the_bus_are_none_of_its_business(line: bytes) -> None:
    """Other NMEA sentences on the ship's bus are ignored."""
    ais = decoder()
    assert ais.decode_line(line, NOW_MS) is None
    assert ais.counts["taken"] == 0


def test_a_message_that_the_radio_cut_short_is_damaged_and_nothing_more() -> None:
    """A message that the radio cut short counts as damaged and raises no error.

    Found by fuzzing: pyais gives None for missing fields, including the sender's number.
    """
    ais = AisDecoder(IMO, 1)
    for line in (b"!AIVDM,1,1,1,,A,E33,2*7C", b"!AIVDO,1,1,,,1,0*54", b"!AIVDO,1,1,,,5,0*50"):
        assert ais.decode_line(line, NOW_MS) is None
    assert ais.counts == {"damaged": 3}


def test_a_position_report_without_all_its_fields_is_damaged_and_counts_for_nothing_else() -> None:
    """The two parts make a position report (class B) that ends before the speed."""
    ais = decoder()
    parts = (b"!AIVDO,2,1,,1,C,2*16", b"!AIVDO,2,2,,1,1=gW7,5*5A")
    assert [ais.decode_line(part, NOW_MS) for part in parts] == [None, None]
    assert ais.counts == {"damaged": 1}
    [line] = sentences()
    position = ais.decode_line(line, NOW_MS)
    assert position is not None and position.device.sequence == 0
