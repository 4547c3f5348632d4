"""Commands say that another topology is meant: another one runs, or another one's data are in the state folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.app import run
from fairlead.cli.commands.sites import local as command
from fairlead.errors import ExitCode
from fairlead.local.registry import LocalSiteRegistry, SiteProcess
from fairlead.local.state import LocalState, SiteState, write_state
from topologies.loader.load import shipped

MINIMAL = shipped()["minimal"].read_text(encoding="utf-8")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(command, "bring_up", lambda context, names, **_: [])
    return tmp_path / "home"


def started(home: Path, topology: str, *sites: str) -> Path:
    """Store these sites as started once."""
    folder = home / topology
    folder.mkdir(parents=True)
    site = SiteState(kafka_port=1, controller_port=2, mqtt_port=3, cluster_id="c")
    write_state(folder / "state.json", LocalState(sites=dict.fromkeys(sites, site)))
    return folder


def runs(monkeypatch: pytest.MonkeyPatch, *topologies: str) -> None:
    """Let these topologies' stored sites seem to run."""

    def status(registry: LocalSiteRegistry) -> dict[str, Any]:
        up = registry.folder.name in topologies
        return {"tokyo": SiteProcess("tokyo", up, up, 1, 2, "", "", {}, {})}

    monkeypatch.setattr(LocalSiteRegistry, "status", status)
    found: dict[str, Any] = {"topology": "", "folder": "", "sites": [], "workers": []}
    monkeypatch.setattr(command, "fleet_status", lambda *_: found)


def test_status_names_the_topologies_that_run_where_the_asked_one_does_not(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in ("big-blue", "minimal", "mine", "two-way"):
        started(home, each, "tokyo")
    (home / "two-way" / "state.json").write_text("{")  # damaged: its own commands say so
    runs(monkeypatch, "minimal", "mine")
    assert run(["status", "--topology", "big-blue"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert "minimal runs: fairlead status --topology minimal" in lines
    assert "mine runs: fairlead status --topology FILE, with the file of mine" in lines
    assert run(["status", "--topology", "minimal"]) == ExitCode.OK
    assert "runs:" not in capsys.readouterr().out


def test_a_file_without_the_sites_of_the_state_folder_is_noted(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINIMAL.replace("name: minimal", "name: mine"))
    folder = started(home, "mine", "tokyo", "oslo")
    told = f"{folder} has data of oslo, which {file} does not have; if it is another topology's, rename this one"
    assert run(["topology", "check", str(file), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["warnings"] == [told]
    assert run(["up", "--topology", str(file)]) == ExitCode.OK
    assert f"warning: {told}" in capsys.readouterr().err
    assert run(["down", "--purge", "--dry-run", "--topology", str(file)]) == ExitCode.OK
    assert f"warning: {told}" in capsys.readouterr().err
    assert run(["down", "--topology", str(file)]) == ExitCode.OK
    assert capsys.readouterr().err == ""


def test_a_file_with_the_name_of_a_shipped_topology_that_has_data_is_noted(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(MINIMAL)
    assert run(["topology", "check", str(file), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["warnings"] == []
    folder = started(home, "minimal", "tokyo")
    assert run(["topology", "check", str(file)]) == ExitCode.OK
    told = f"{file} and the shipped topology minimal have one name, and so share the data in {folder}"
    assert f"warning: {told}; rename this one" in capsys.readouterr().out
    assert run(["topology", "check", "minimal"]) == ExitCode.OK
    assert "warning" not in capsys.readouterr().out
    (folder / "state.json").write_text("{")
    assert run(["down", "--purge", "--yes", "--topology", str(file)]) == ExitCode.OK
