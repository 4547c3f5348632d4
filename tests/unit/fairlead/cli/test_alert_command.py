"""``fairlead alert rules``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.cli.app import run
from fairlead.errors import ExitCode


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return tmp_path


def test_rules_shows_every_threshold_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alert", "rules", "--commodity", "frozen-fish"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "ATP Annex 2" in out
    assert "1:00:00" in out


def test_rules_as_json_are_plain_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("default: {power: {dwell: 10m}}")
    assert run(["alert", "rules", "--thresholds", str(mine), "--json"]) == ExitCode.OK
    body = json.loads(capsys.readouterr().out)
    assert body["groups"]["power"] == {"dwell": 600_000, "source": "set in mine.yaml"}
    assert "bananas" in body["known"]
