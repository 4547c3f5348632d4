"""What is said of Python, Java, jars, Mosquitto and Docker."""

from __future__ import annotations

import pytest

from fairlead.doctor import programs
from fairlead.doctor.model import Verdict

ALL = {"confluent-kafka": "2.16.1", "rich": "15.0.0"}


@pytest.mark.parametrize(
    ("version", "packages", "verdict", "said"),
    [
        ((3, 11, 0), ALL, Verdict.OK, "all packages"),
        ((3, 14, 2), ALL, Verdict.OK, "3.14.2"),
        ((3, 10, 9), ALL, Verdict.FAILED, "3.10.9"),
        ((3, 12, 1), {**ALL, "rich": None}, Verdict.FAILED, "rich is missing"),
        ((3, 12, 1), {**ALL, "confluent-kafka": "2.14.0"}, Verdict.FAILED, "confluent-kafka 2.14.0, not 2.16.1"),
    ],
)
def test_python(version: tuple[int, int, int], packages: dict[str, str | None], verdict: Verdict, said: str) -> None:
    found = programs.python(version, packages, {"confluent-kafka": "2.16.1"})
    assert found.verdict is verdict and said in found.found
    assert bool(found.todo) == (verdict is Verdict.FAILED)


@pytest.mark.parametrize(
    ("found", "verdict", "said"),
    [
        (programs.Java("/usr/bin/java", 17), Verdict.OK, "17 at /usr/bin/java"),
        (programs.Java("/opt/jdk-21/bin/java", 21, java_home="/opt/jdk-21/"), Verdict.OK, "21"),
        (programs.Java("/usr/bin/java", 17, java_home="/opt/jdk-8"), Verdict.WARNING, "/opt/jdk-8"),
        (programs.Java(error="found only /usr/bin/java (version 11)"), Verdict.FAILED, "version 11"),
        (programs.Java("/usr/bin/java", 11), Verdict.FAILED, "11"),
    ],
)
def test_java(found: programs.Java, verdict: Verdict, said: str) -> None:
    answer = programs.java(found)
    assert answer.verdict is verdict and said in answer.found
    assert bool(answer.todo) == (verdict is not Verdict.OK)


def test_mosquitto() -> None:
    assert programs.mosquitto("2.0.18", "").verdict is Verdict.OK
    missing = programs.mosquitto("", "each site needs Mosquitto 2; it was not found")
    assert missing.verdict is Verdict.FAILED and "apt install mosquitto" in missing.todo


def test_jars() -> None:
    assert programs.jars({"kafka": [], "delta": []}, 48, "/cache", writable=False).verdict is Verdict.OK
    some = programs.jars({"kafka": ["a:b:1"], "delta": ["c:d:2", "c:e:2"]}, 48, "/cache", writable=True)
    assert some.verdict is Verdict.WARNING and some.found.startswith("3 of 48") and "--download" in some.todo
    assert programs.jars({"kafka": ["a:b:1"]}, 48, "/cache", writable=False).verdict is Verdict.FAILED


def test_a_download_that_failed_says_why_and_what_to_do() -> None:
    before = programs.jars({"kafka": ["a:b:1"]}, 48, "/cache", writable=True)
    after = programs.download_failed(before, "Host not found\n  what to do: check the network")
    assert after.verdict is Verdict.FAILED
    assert after.found.endswith("; Host not found") and after.todo == "check the network"


def test_docker_is_nobody_s_failure() -> None:
    assert programs.docker("27.1", "").verdict is Verdict.OK
    assert programs.docker("", "not installed").verdict is Verdict.NOTE
