"""The lock files of Python packages, read: which package at which version, for which machines, with which hashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EVERYTHING = ROOT / "requirements.lock"  # what those who work on Fairlead install
RUN_TIME = ROOT / "requirements-run.lock"  # what images and installs need: a part of it


@dataclass(frozen=True, slots=True)
class Pin:
    """One locked package.

    Attributes:
        marker: On which machines this version is the one; empty: on all.
        needed_by: The packages that ask for it; Fairlead itself is ``fairlead``.
    """

    name: str
    version: str
    marker: str
    hashes: frozenset[str]
    needed_by: tuple[str, ...] = ()

    def applies(self, environment: Mapping[str, str] | None = None) -> bool:
        """Whether it is installed here, or in an environment of markers (``python_version``, …)."""
        marker = Requirement(f"{self.name}; {self.marker}").marker if self.marker else None
        return marker is None or marker.evaluate(None if environment is None else dict(environment))


def parse(text: str) -> list[Pin]:
    """What a lock file in pip's form says, in its order.

    Raises:
        ValueError: a line fixes no version, or names no hash.
    """
    pins: list[Pin] = []
    lines: list[str] = []
    askers: list[str] = []
    for line in [*text.splitlines(), "end"]:
        comment = line.strip().startswith("#")
        if comment:
            askers.append(line.strip().lstrip("# ").removeprefix("via").strip())
        elif not line.startswith(" ") and lines:
            pins.append(_pin(" ".join(lines), askers))
            lines, askers = [], []
        if not comment and line.strip():
            lines.append(line.strip().removesuffix("\\"))
    return pins


def _pin(text: str, askers: list[str]) -> Pin:
    wanted, *hashes = text.split("--hash=")
    requirement = Requirement(wanted.strip())
    fixed = [each.version for each in requirement.specifier if each.operator == "=="]
    if len(fixed) != 1 or not hashes:
        raise ValueError(f"not locked: {wanted.strip()}")
    names = tuple(canonicalize_name(each.partition(" ")[0]) for each in askers if each and not each.startswith("-"))
    marker = str(requirement.marker or "")
    return Pin(canonicalize_name(requirement.name), fixed[0], marker, frozenset(map(str.strip, hashes)), names)


def read(file: Path = RUN_TIME) -> list[Pin]:
    """What a lock file of this repository says."""
    return parse(file.read_text(encoding="utf-8"))
