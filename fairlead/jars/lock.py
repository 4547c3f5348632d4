"""Read and write the lock file of Java artifacts, ``jars.lock``: exact coordinates and their SHA-256. Pure."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fairlead.errors import ConfigurationError, UnknownNameError

LOCK_FILE = Path(__file__).with_name("jars.lock")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PART = re.compile(r"[A-Za-z0-9_.\-]+")


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    """One artifact. ``path`` is its place in the store of jars."""

    organisation: str
    name: str
    revision: str
    sha256: str = ""

    @property
    def coordinates(self) -> str:
        return f"{self.organisation}:{self.name}:{self.revision}"

    @property
    def path(self) -> str:
        return f"{self.organisation}/{self.name}-{self.revision}.jar"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are used together. A person chose the ``requested`` coordinates; the rest are their dependencies."""

    name: str
    requested: tuple[str, ...]
    transitive: bool
    jars: tuple[Jar, ...]

    def revision_of(self, artifact: str) -> str:
        """Return the locked revision of an artifact of this set (``kafka-clients`` gives ``4.3.1``)."""
        for jar in self.jars:
            if jar.name == artifact:
                return jar.revision
        raise UnknownNameError(f"jar in the set {self.name}", artifact, (jar.name for jar in self.jars))


def parse_coordinates(text: str, sha256: str = "") -> Jar:
    """Parse ``organisation:name:revision`` into a jar.

    Raises:
        ConfigurationError: not of that form.
    """
    parts = text.split(":")
    if len(parts) != 3 or not all(_PART.fullmatch(part) for part in parts):
        raise ConfigurationError(f"{text!r} is no jar", hint="expected organisation:name:revision")
    organisation, name, revision = parts
    return Jar(organisation, name, revision, sha256)


def parse_lock(text: str) -> dict[str, JarSet]:
    """Parse the text of a lock file.

    Raises:
        ConfigurationError: not TOML, or a value is invalid.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"jars.lock cannot be read: {error}", hint=_RENEW) from error
    sets: dict[str, JarSet] = {}
    for name, body in data.items():
        jars: list[Jar] = []
        for coordinates, digest in body["jars"].items():
            if not _SHA256.fullmatch(digest):
                raise ConfigurationError(f"jars.lock: {coordinates} has no SHA-256", hint=_RENEW)
            jars.append(parse_coordinates(coordinates, digest))
        sets[name] = JarSet(name, tuple(body["requested"]), bool(body["transitive"]), tuple(jars))
    return sets


@cache
def read_lock() -> dict[str, JarSet]:
    """Read the lock file that ships with this package."""
    return parse_lock(LOCK_FILE.read_text(encoding="utf-8"))


def jar_set(name: str) -> JarSet:
    """Return a set of the shipped lock file by name (``kafka``, ``delta``)."""
    sets = read_lock()
    if name not in sets:
        raise UnknownNameError("set of jars", name, sets)
    return sets[name]


_RENEW = "renew it: .venv/bin/python tools/lock_jars.py"
