"""Durations, rates and addresses as people write them."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies.model import Shore
from topologies.values import (
    FOREVER,
    format_duration,
    format_rate,
    parse_bootstrap,
    parse_duration,
    parse_rate,
    parse_start,
    start_time_ms,
)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 7776000), ("12 h", 43200), ("1y", 31536000), ("2w", 1209600), ("0s", 0), ("5m", 300)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == dt.timedelta(seconds=seconds)


@given(st.integers(0, 10**9).map(lambda seconds: dt.timedelta(seconds=seconds)) | st.just(FOREVER))
def test_durations_are_written_so_that_they_can_be_read(duration: dt.timedelta) -> None:
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(
    "text", ["", "90", "d", "-1d", "1.5d", "1d2h", "for ever", "999999999999999y", "\u0663d", 90, None]
)
def test_invalid_durations_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("64 kbit/s", 8000), ("8 kB/s", 8000), ("2Mbit/s", 250000), ("1.5 MB/s", 1500000), ("1 bit/s", 1), (4000, 4000)],
)
def test_rates_are_bytes_per_second(text: object, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "64", "64 kbps", "0 kbit/s", "-1 kB/s", 0, -5, True, None, "9" * 400 + " kB/s", 10**30]
)
def test_invalid_rates_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="expected a rate"):
        parse_rate(text)


@pytest.mark.parametrize(("rate", "text"), [(8000, "64 kbit/s"), (12_500_000, "100 Mbit/s"), (1, "8 bit/s")])
def test_rates_are_shown_in_bits(rate: int, text: str) -> None:
    assert format_rate(rate) == text


def test_addresses() -> None:
    assert parse_bootstrap("a:1, b.c:65535,[::1]:2") == (("a", 1), ("b.c", 65535), ("::1", 2))


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:0", "a:65536", "a:1,", "a:1;b:2", "u:p@a:1", "a:\u0661"])
def test_invalid_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_bootstrap(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("earliest", None), ("latest", None), ("end", None), ("2026-09-01T00:00:00Z", 1_788_220_800_000)],
)
def test_starts(text: str, milliseconds: int | None) -> None:
    assert start_time_ms(parse_start(text)) == milliseconds


@pytest.mark.parametrize("text", ["", "newest", "2026-09-01T00:00:00", 5, None])
def test_invalid_starts_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="earliest, latest, end"):
        parse_start(text)


def test_settings_of_spark_are_text_as_spark_writes_it() -> None:
    given = {"spark.executor.cores": 2, "spark.speculation": True, "spark.executor.memory": "2g"}
    shore = Shore.model_validate({"at": "tokyo", "settings": given, "packages": ["org.apache.hadoop:hadoop-aws:3.5.0"]})
    assert shore.settings == {
        "spark.executor.cores": "2",
        "spark.speculation": "true",
        "spark.executor.memory": "2g",
    }
