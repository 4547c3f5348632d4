"""Findings about programs: Python and its packages, Java, the jars, Mosquitto, Docker. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.doctor.model import Finding, Verdict
from fairlead.jars.java import INSTALL as GET_JAVA
from fairlead.jars.java import OLDEST
from fairlead.local.mosquitto import INSTALL as GET_MOSQUITTO

_PYTHON = (3, 11)


@dataclass(frozen=True, slots=True)
class Java:
    """``path`` and ``version`` of the Java that is used, or ``error``, why there is none; and what JAVA_HOME says."""

    path: str = ""
    version: int = 0
    error: str = ""
    java_home: str = ""


def python(version: tuple[int, int, int], packages: Mapping[str, str | None], pinned: Mapping[str, str]) -> Finding:
    """Of the Python that runs this, and the packages that it must have.

    Args:
        packages: Which version of each needed package is installed; None: not there.
        pinned: The exact version of those that need one.
    """
    text = ".".join(map(str, version))
    needed, why = f"{'.'.join(map(str, _PYTHON))} or later, {len(packages)} packages", "Fairlead runs on it"
    if version[:2] < _PYTHON:
        return Finding("python", Verdict.FAILED, text, needed, why, "install Fairlead with a newer Python")
    missing = sorted(name for name, found in packages.items() if found is None)
    other = sorted(
        f"{name} {packages[name]}, not {pin}" for name, pin in pinned.items() if packages[name] not in (None, pin)
    )
    if missing or other:
        found = "; ".join([*(f"{name} is missing" for name in missing), *other])
        todo = "install them: pip install fairlead again, or make .venv/.ready in a checkout"
        return Finding("python", Verdict.FAILED, f"{text}; {found}", needed, "every command imports some of them", todo)
    return Finding("python", Verdict.OK, f"{text}, all packages", needed, why)


def java(found: Java) -> Finding:
    """Of Java, which the brokers and Spark run on."""
    needed, why = f"{OLDEST} or later", "Kafka's brokers and Spark run on it"
    if found.error or found.version < OLDEST:
        return Finding("java", Verdict.FAILED, found.error or f"{found.path} ({found.version})", needed, why, GET_JAVA)
    text = f"{found.version} at {found.path}"
    if found.java_home and not found.path.startswith(found.java_home.rstrip("/") + "/"):
        todo = "unset JAVA_HOME, or let it name a Java 17 or later: other programs will take the one it names"
        text += f"; JAVA_HOME={found.java_home} was of no use"
        return Finding("java", Verdict.WARNING, text, needed, why, todo)
    return Finding("java", Verdict.OK, text, needed, why)


def mosquitto(version: str, error: str) -> Finding:
    """Of Mosquitto: its version, or why there is none."""
    needed, why = "2.0 or later, with mosquitto_passwd", "each site's devices publish to one"
    if error:
        return Finding("mosquitto", Verdict.FAILED, error, needed, why, GET_MOSQUITTO)
    return Finding("mosquitto", Verdict.OK, version, needed, why)


def jars(missing: Mapping[str, Sequence[str]], total: int, store: str, writable: bool) -> Finding:
    """Of the locked jars of Kafka and Delta in the user's cache.

    Args:
        missing: Those of each set that are not there, or not what the lock says.
        total: How many there should be.
    """
    needed, why = f"{total} jars with the SHA-256 of jars.lock", "the brokers, and Delta inside Spark"
    absent = sum(map(len, missing.values()))
    if not absent:
        return Finding("jars", Verdict.OK, f"{total} verified in {store}", needed, why)
    text = f"{absent} of {total} are not in {store} or not verified"
    if not writable:
        todo = "make that folder writable, or set FAIRLEAD_CACHE to one that is"
        return Finding("jars", Verdict.FAILED, f"{text}, which cannot be written", needed, why, todo)
    todo = "fairlead doctor --download fetches them now, fairlead up when it needs them; both need a network"
    return Finding("jars", Verdict.WARNING, text, needed, why, todo)


def download_failed(before: Finding, reason: str) -> Finding:
    """What ``jars`` found, when fetching them was tried and failed."""
    what, _, todo = reason.partition("\n  what to do: ")
    return Finding(before.name, Verdict.FAILED, f"{before.found}; {what}", before.needed, before.why, todo)


def docker(version: str, error: str) -> Finding:
    """Of Docker, which only containers need: its version, or why there is none."""
    needed, why = "optional", "fairlead compose runs sites as containers"
    if error:
        return Finding("docker", Verdict.NOTE, error, needed, why)
    return Finding("docker", Verdict.OK, version, needed, why)
