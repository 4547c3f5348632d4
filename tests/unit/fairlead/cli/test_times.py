"""Times and durations are read in one place, and mean the same in every command."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from fairlead.cli.app import run
from fairlead.cli.commands.context import check_order, parse_moment, parse_span
from fairlead.errors import ExitCode, OptionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01", "2026-03-01T00:00:00+00:00"),
        ("2026-03-01T06:00", "2026-03-01T06:00:00+00:00"),
        ("2026-03-01T06:00Z", "2026-03-01T06:00:00+00:00"),
        ("2026-03-01T06:00+09:00", "2026-02-28T21:00:00+00:00"),
    ],
)
def test_a_moment_is_utc_where_it_names_no_zone(text: str, expected: str) -> None:
    found = parse_moment("--since", text)
    assert found is not None and found.isoformat() == expected and found.tzinfo is dt.UTC


def test_a_moment_may_be_so_long_ago() -> None:
    found = parse_moment("--since", "24h")
    assert found is not None
    assert dt.timedelta(hours=24) <= dt.datetime.now(dt.UTC) - found < dt.timedelta(hours=25)
    assert parse_moment("--since", None) is None


@pytest.mark.parametrize(
    "text", ["yesterday", "", "2026-02-30", "2026-03-01T25:00", "9999y", "forever", "0001-01-01T00:00+14:00"]
)
def test_what_is_no_moment_is_said_with_what_would_be(text: str) -> None:
    with pytest.raises(OptionError, match="--since") as caught:
        parse_moment("--since", text)
    assert caught.value.exit_code == ExitCode.USAGE and "2026-03-01T06:00Z" in caught.value.hint


def test_spans() -> None:
    assert parse_span("--keep", "36h") == dt.timedelta(hours=36)
    with pytest.raises(OptionError, match="--keep soon: expected a duration"):
        parse_span("--keep", "soon")


def test_the_end_comes_after_the_beginning() -> None:
    early, late = (dt.datetime(2026, 3, day, tzinfo=dt.UTC) for day in (1, 2))
    for first, end in ((early, late), (None, early), (late, None), (None, None)):
        check_order(first, end, ("--since", "--until"))
    for first, end in ((late, early), (early, early)):
        with pytest.raises(OptionError, match="--since is not before --until"):
            check_order(first, end, ("--since", "--until"))


@pytest.mark.parametrize(
    "command",
    [
        ["bridge", "replay", "--site", "tokyo", "--dry-run", "--since", "soon"],
        ["custody", "strays", "--older-than", "soon"],
        ["shore", "backfill", "--dry-run", "--since", "soon"],
        ["shore", "vacuum", "--dry-run", "--keep", "soon"],
        ["report", "container", "BIGU1000010", "--until", "soon"],
        ["voyage", "size", "10", "minimal", "--interval", "soon"],
        ["shore", "backfill", "--dry-run", "--since", "2026-03-02", "--until", "2026-03-01"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_every_command_ends_with_2_for_what_is_no_time(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    assert run(command) == ExitCode.USAGE
    assert "what to do" in capsys.readouterr().err
