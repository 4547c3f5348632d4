"""``replicate`` and ``audit`` say what is wrong with their options before anything is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.cli import app as cli
from fairlead.errors import ExitCode


@pytest.fixture(autouse=True)
def nothing_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["replicate"], ExitCode.CONFIG, "--site SITE, or --all"),
        (["replicate", "--site", "tokio"], ExitCode.CONFIG, "tokyo"),
        (["replicate", "--site", "new-york", "-t", "fan-in"], ExitCode.CONFIG, "london"),
        (["replicate", "--site", "tokyo"], ExitCode.UNAVAILABLE, "fairlead up"),
        (["audit", "tokyo", "tokyo"], ExitCode.CONFIG, "two different sites"),
        (["audit", "tokyo", "singapur"], ExitCode.CONFIG, "singapore"),
        (["audit", "tokyo", "sydney", "--stream", "container"], ExitCode.CONFIG, "containers"),
        (["audit", "tokyo", "sydney", "--rate", "8MB"], ExitCode.CONFIG, "8MB/s"),
        (["audit", "tokyo", "sydney"], ExitCode.UNAVAILABLE, "fairlead up"),
    ],
)
def test_mistakes(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == code
    assert said in capsys.readouterr().err
