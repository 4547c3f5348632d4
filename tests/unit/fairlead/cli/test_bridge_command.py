from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from fairlead.cli.app import run
from fairlead.errors import ExitCode


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return tmp_path


def test_a_site_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bridge", "--topology", "minimal"]) == ExitCode.CONFIG
    assert "--site" in capsys.readouterr().err


def test_an_unknown_site_is_refused_with_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bridge", "--site", "tokio", "--topology", "minimal"]) == ExitCode.CONFIG
    assert "did you mean 'tokyo'" in capsys.readouterr().err


def test_a_customers_site_has_no_way_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bridge", "--site", "ducks-hq", "--topology", "big-blue"]) == ExitCode.CONFIG
    assert "site with a way in" in capsys.readouterr().err


def test_a_site_that_was_never_started_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bridge", "--site", "tokyo", "--topology", "minimal"]) == ExitCode.UNAVAILABLE
    assert "fairlead up tokyo" in capsys.readouterr().err


def test_a_second_bridge_of_a_site_is_refused(state_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = state_folder / "minimal" / "run" / "bridge.tokyo.lock"
    path.parent.mkdir(parents=True)
    with FileLock(path):
        assert run(["bridge", "--site", "tokyo", "--topology", "minimal"]) == ExitCode.REFUSED
    assert "running already" in capsys.readouterr().err


def test_a_replay_needs_a_site_with_a_way_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bridge", "replay", "--dry-run", "--site", "tokio", "--topology", "minimal"]) == ExitCode.CONFIG
    assert "did you mean 'tokyo'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--reason", "not-holdr", "did you mean 'not-holder'"),
        ("--since", "yesterday", "this is no time"),
        ("--until", "2026-09-01T25:00", "this is no time"),
    ],
)
def test_what_is_to_be_replayed_is_checked_first(
    option: str, value: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bridge", "replay", "--dry-run", "--site", "tokyo", "--topology", "minimal", option, value]
    assert run(command) == (ExitCode.CONFIG if option == "--reason" else ExitCode.USAGE)
    assert says in capsys.readouterr().err


def test_a_replay_at_a_site_that_was_never_started_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bridge", "replay", "--dry-run", "--site", "tokyo", "--topology", "minimal"]) == ExitCode.UNAVAILABLE
    assert "fairlead up tokyo" in capsys.readouterr().err
