"""Ctrl-C ends every command with one word and 130, and leaves no site behind that the command started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from fairlead.cli import app as cli
from fairlead.cli.commands.sites import local as command
from fairlead.cli.console import Consent
from fairlead.errors import ExitCode
from fairlead.local.registry import LocalSiteRegistry, SiteProcess
from fairlead.local.sites import LocalSites


def interrupt(*_: Any, **__: Any) -> NoReturn:
    raise KeyboardInterrupt


def test_any_command_says_that_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "open_topology", interrupt)
    assert cli.run(["status"]) == ExitCode.INTERRUPTED
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "interrupted\n")


def test_ctrl_c_instead_of_an_answer_is_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*_: Any, **__: Any) -> NoReturn:
        raise typer.Abort

    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setattr(typer, "confirm", ask)
    monkeypatch.setattr(Consent, "__init__", lambda self, **_: self.__dict__.update(dry_run=False, _yes=False))
    assert cli.run(["down", "--purge"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err.endswith("\ninterrupted\n")


def test_ctrl_c_while_access_rules_are_applied_stops_the_sites_that_this_call_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = SiteProcess("tokyo", True, True, 1, 2, "", "", {"kafka": 1, "mqtt": 2}, {})
    stopped: list[str] = []

    def down(_self: LocalSites, sites: Collection[str] | None, **_: Any) -> None:
        stopped.extend(sites or ())

    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setattr(LocalSiteRegistry, "status", lambda _: {"tokyo": runs})
    monkeypatch.setattr(LocalSites, "up", lambda *_, **__: None)
    monkeypatch.setattr(LocalSites, "down", down)
    monkeypatch.setattr(command, "apply_topology", interrupt)
    assert cli.run(["up", "tokyo", "singapore", "duck-star"]) == ExitCode.INTERRUPTED
    assert sorted(stopped) == ["duck-star", "singapore"]
    said = capsys.readouterr().err
    assert "stopping" in said and said.endswith("interrupted\n")


def test_a_board_says_nothing_of_its_own_after_ctrl_c(tmp_path: Path) -> None:
    """DuckDB's module names what it takes for leaks when the interpreter ends with objects that were frozen."""
    command = [sys.executable, "-m", "fairlead.cli.app", "board", "--port", "0", "--topology", "minimal"]
    home = {**os.environ, "FAIRLEAD_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None and process.stdout.readline().startswith("The board of tokyo is at")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == ExitCode.OK
    assert "leaked" not in said


_INTERRUPTED_WHILE_IMPORTING = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from fairlead.cli import main
main()
"""


def test_the_imports_of_the_command_end_as_quietly() -> None:
    done = subprocess.run(  # noqa: S603  # this Python, with the code above
        [sys.executable, "-c", _INTERRUPTED_WHILE_IMPORTING], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, "", "")
