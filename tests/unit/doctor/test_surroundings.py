"""What is said of ports, clock, letters, paths and certificates."""

from __future__ import annotations

import datetime as dt

import pytest

from fairlead.doctor import surroundings
from fairlead.doctor.model import Verdict
from fairlead.doctor.surroundings import Certificate, Clock, Letters, Place

RANGE = (20_000, 32_000)
NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("taken", "free", "ephemeral", "verdict", "said"),
    [
        ({}, 3, (32_768, 60_999), Verdict.OK, ""),
        ({}, 3, None, Verdict.OK, ""),
        ({}, 0, (32_768, 60_999), Verdict.FAILED, "none is free"),
        ({}, 3, (1_024, 60_999), Verdict.WARNING, "1024 to 60999"),
        ({"tokyo's Kafka, 23456": "nginx (pid 8)"}, 3, None, Verdict.FAILED, "tokyo's Kafka, 23456 is held by nginx"),
    ],
)
def test_ports(
    taken: dict[str, str], free: int, ephemeral: tuple[int, int] | None, verdict: Verdict, said: str
) -> None:
    found = surroundings.ports(taken, free, ephemeral, RANGE)
    assert found.verdict is verdict and said in found.found


@pytest.mark.parametrize(
    ("clock", "verdict", "said"),
    [
        (Clock(True), Verdict.OK, "synchronised"),
        (Clock(False), Verdict.WARNING, "not synchronised"),
        (Clock(None), Verdict.NOTE, "does not say"),
        (Clock(True, ahead=3600.0), Verdict.FAILED, "3,600 s in the future"),
        (Clock(True, ahead=0.5), Verdict.OK, "synchronised"),
        (Clock(True, foreign=("hull",)), Verdict.NOTE, "clocks of hull cannot be asked"),
    ],
)
def test_clock(clock: Clock, verdict: Verdict, said: str) -> None:
    found = surroundings.clock(clock)
    assert found.verdict is verdict and said in found.found


@pytest.mark.parametrize(
    ("letters", "folder", "verdict"),
    [
        (Letters("utf-8", "utf-8", "C.UTF-8"), "/home/jürgen", Verdict.OK),
        (Letters("utf-8", "UTF8", "en_US.utf8"), "/home/jürgen", Verdict.OK),
        (Letters("utf-8", "utf-8", ""), "/home/a", Verdict.OK),
        (Letters("utf-8", "ascii", "C"), "/home/a", Verdict.WARNING),
        (Letters("utf-8", "utf-8", "POSIX"), "/home/jürgen", Verdict.FAILED),
        (Letters("ascii", "ascii", "C"), "/home/a", Verdict.FAILED),
    ],
)
def test_letters(letters: Letters, folder: str, verdict: Verdict) -> None:
    assert surroundings.letters(letters, folder).verdict is verdict


@pytest.mark.parametrize(
    ("place", "verdict"),
    [
        (Place("/home/a/.local/state/fairlead/big-blue", 255, 4_096), Verdict.OK),
        (Place("/home/a", None, None), Verdict.OK),
        (Place("/home/a", 143, 4_096), Verdict.WARNING),  # eCryptfs
        (Place("/" + "a" * 700, 255, 1_024), Verdict.FAILED),  # macOS
    ],
)
def test_paths(place: Place, verdict: Verdict) -> None:
    assert surroundings.paths(place).verdict is verdict


@pytest.mark.parametrize(
    ("days", "verdict", "said"),
    [
        ((400, 90), Verdict.OK, "2, the first expires on 2027-02-20"),
        ((400, 20), Verdict.WARNING, "1.pem on 2026-12-12"),
        ((400, -1), Verdict.FAILED, "1.pem has expired"),
        ((), Verdict.OK, "no site speaks TLS"),
    ],
)
def test_certificates(days: tuple[int, ...], verdict: Verdict, said: str) -> None:
    found = [Certificate(f"{number}.pem", NOW + dt.timedelta(days=each)) for number, each in enumerate(days)]
    answer = surroundings.certificates(found, NOW)
    assert answer.verdict is verdict and said in answer.found


def test_a_certificate_that_cannot_be_read_is_a_failure() -> None:
    answer = surroundings.certificates([Certificate("a.pem", None, "Permission denied")], NOW)
    assert answer.verdict is Verdict.FAILED and "a.pem: Permission denied" in answer.found
