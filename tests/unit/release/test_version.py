"""One version: pyproject has it, what is installed tells it, the changelog has a section for it."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

import pytest

from fairlead import cli
from fairlead.errors import ExitCode
from fairlead.jars import jar_set
from fairlead.versions import versions
from tools.release.locks import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_the_command_tells_the_version_of_pyproject(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == ExitCode.OK
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"fairlead {VERSION}"
    kafka, delta = jar_set("kafka").revision_of("kafka-clients"), jar_set("delta").revision_of("delta-storage")
    assert f"Kafka {kafka}, Spark {metadata.version('pyspark')}, Delta {delta}" in second


def test_no_module_says_a_version_of_its_own() -> None:
    assert versions()["fairlead"] == metadata.version("fairlead") == VERSION


def test_the_changelog_has_a_section_for_it() -> None:
    sections = re.findall(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[0] == "Unreleased" and VERSION in sections
