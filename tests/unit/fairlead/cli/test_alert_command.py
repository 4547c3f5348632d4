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


def test_a_mistake_in_thresholds_stops_the_bridge_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("default: {power: {dwell: soon}}")
    asked = ["bridge", "--site", "duck-star", "--topology", "big-blue", "--thresholds", str(mine)]
    assert run(asked) == ExitCode.CONFIG
    assert "default.power.dwell" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("sites", [["tokyo"], ["duck-star", "blue-marlin"]])
def test_ais_is_for_one_ship(sites: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    at = [part for site in sites for part in ("--site", site)]
    assert run(["bridge", *at, "--topology", "big-blue", "--ais", "udp://:10110"]) == ExitCode.CONFIG
    assert "one ship" in capsys.readouterr().err


def test_what_is_no_source_of_ais_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bridge", "--site", "duck-star", "--topology", "big-blue", "--ais", "antenna"]) == ExitCode.CONFIG
    assert "tcp://HOST:PORT" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("asked", [["list"], ["report", "BIGU1000005"], ["clear", "X", "--reason", "y", "--yes"]])
def test_a_site_that_does_not_run_is_said(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alert", *asked, "--site", "duck-star", "--topology", "big-blue"]) == ExitCode.UNAVAILABLE
    assert "does not run" in capsys.readouterr().err


def test_a_report_is_of_a_known_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alert", "report", "X", "--type", "last"]) == ExitCode.CONFIG
    assert "follow-up" in capsys.readouterr().err
