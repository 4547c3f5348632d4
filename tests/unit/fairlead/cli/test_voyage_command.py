"""``fairlead voyage``: the report of a voyage that took hours is not lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli import app as cli
from fairlead.cli.commands import board
from fairlead.cli.commands.voyage import app as voyage
from fairlead.errors import ExitCode
from fairlead.local.workers import Worker, Workers
from topologies.context import open_topology


@pytest.mark.parametrize("below", ["", "further/down"])
def test_a_report_that_cannot_be_written_is_refused_before_the_voyage_sails(
    below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    sailed: list[Any] = []
    monkeypatch.setattr(voyage, "_sail", lambda *given, **_: sailed.append(given))
    file = tmp_path / "file"
    file.write_text("not a folder", encoding="utf-8")
    assert cli.run(["voyage", "run", "minimal", "--report", str(file / below)]) == ExitCode.UNAVAILABLE
    assert not sailed
    said = capsys.readouterr().err
    assert "name another folder with --report" in said and str(file / below) in said


def test_a_report_that_cannot_be_written_in_the_end_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    folder = tmp_path / "report"

    class Made:
        ok = True

        def to_json(self) -> bytes:
            return b'{"ok": true}'

    def sail(*_: Any, **__: Any) -> tuple[Made, str]:
        (folder / "report.json").mkdir(parents=True)
        return Made(), "<p>page</p>"

    monkeypatch.setattr(voyage, "_sail", sail)
    assert cli.run(["voyage", "run", "minimal", "--report", str(folder), "--json"]) == ExitCode.UNAVAILABLE
    printed = capsys.readouterr()
    assert '"ok": true' in printed.out and "cannot be written" in printed.err


def test_the_address_of_a_board_that_runs_is_not_that_of_another_server_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    context, log = open_topology("minimal"), tmp_path / "board.log"
    log.write_text(
        "The board of tokyo is at http://127.0.0.1:4711\nSign in: http://127.0.0.1:4711/local/secret\n"
        "table voyages cannot be opened: no answer of http://127.0.0.1:9000/tables\n"
    )
    monkeypatch.setattr(Workers, "all", lambda _: [Worker("board.tokyo", 1, log)])
    assert board.start_in_background(context, "/voyages") == "http://127.0.0.1:4711/voyages"


def test_a_scenario_on_the_wrong_topology_names_the_right_one_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    command = ["voyage", "run", "minimal", "--scenario", "busy-loop", "--dry-run"]
    assert cli.run(command) == ExitCode.CONFIG
    what, hint = capsys.readouterr().err.splitlines()
    assert what.startswith("error: scenario busy-loop does not fit topology minimal: ") and len(what) < 200
    assert " more" in what and "no topology" in hint
    assert hint.endswith(": pacific-loop")
    assert cli.run([*command, "--json"]) == ExitCode.CONFIG
    assert len(json.loads(capsys.readouterr().err)["fields"]["mistakes"]) > 10


def test_a_recording_is_replayed_on_the_topology_that_ships_with_its_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    file = tmp_path / "loop.gz"
    record = ["voyage", "record", str(file), "--scenario", "busy-loop", "--containers", "20", "--interval", "7d"]
    assert cli.run(record) == ExitCode.OK
    assert cli.run(["voyage", "replay", str(file), "--dry-run"]) == ExitCode.OK
    assert "messages of scenario busy-loop" in capsys.readouterr().out
    assert cli.run(["voyage", "replay", str(file), "minimal", "--dry-run"]) == ExitCode.CONFIG
    assert capsys.readouterr().err.rstrip().endswith(" pacific-loop")


def test_a_voyage_that_names_nothing_is_on_the_topology_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not on big-blue's seven sites. A scenario brings its own topology."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal")
    assert cli.run(["voyage", "run", "--dry-run"]) == ExitCode.OK
    assert "start what does not run yet: tokyo, duck-star\n" in capsys.readouterr().out
    assert cli.run(["voyage", "run", "--scenario", "lost-headquarters", "--dry-run"]) == ExitCode.OK
    assert "yet: los-angeles, tokyo, singapore, duck-star\n" in capsys.readouterr().out
