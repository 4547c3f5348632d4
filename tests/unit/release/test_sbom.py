"""The bill of materials is what its schema asks for, holds every locked package and jar, and is the same each time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools.release import locks, notices, sbom

EPOCH = 1_790_000_000
PINS = locks.read()


@pytest.fixture(scope="module")
def text() -> str:
    return sbom.bom("0.1.0", PINS, "abc", EPOCH)


@pytest.fixture(scope="module")
def bill(text: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(text)
    return read


def test_its_schema_has_nothing_against_it(text: str) -> None:
    assert sbom.mistakes(text) == ""
    assert sbom.mistakes(text.replace('"bomFormat"', '"bombFormat"')) != ""


def test_it_has_every_locked_package_and_jar_and_nothing_else(bill: dict[str, Any]) -> None:
    found = sorted(each["purl"] for each in bill["components"])
    wanted = [f"pkg:pypi/{pin.name}@{pin.version}" for pin in PINS]
    wanted += [f"pkg:maven/{jar.organisation}/{jar.name}@{jar.revision}" for jar in notices.jars()]
    assert found == sorted(wanted)
    assert all(each["licenses"] for each in bill["components"])


def test_jars_have_their_sums(bill: dict[str, Any]) -> None:
    sums = {each["purl"]: each["hashes"][0]["content"] for each in bill["components"] if "maven" in each["purl"]}
    assert sums == {f"pkg:maven/{j.organisation}/{j.name}@{j.revision}": j.sha256 for j in notices.jars()}


def test_who_needs_whom_reaches_everything_from_fairlead(bill: dict[str, Any]) -> None:
    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    assert set(needs) == {"pkg:pypi/fairlead@0.1.0"} | {each["bom-ref"] for each in bill["components"]}
    reached, waiting = set(), ["pkg:pypi/fairlead@0.1.0"]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting += needs[one]
    assert reached == set(needs)


def test_the_same_source_gives_the_same_text(text: str) -> None:
    assert sbom.bom("0.1.0", PINS, "abc", EPOCH) == text
    assert sbom.bom("0.1.0", PINS, "abd", EPOCH) != text
