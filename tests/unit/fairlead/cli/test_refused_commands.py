"""Commands that cannot be carried out: each ends with its exit code and says what to do, before any site is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from fairlead.cli.app import run
from fairlead.errors import ExitCode

BRIDGE = ["bridge", "--topology", "minimal"]
REPLAY = ["bridge", "replay", "--dry-run", "--topology", "minimal"]
ON_SHIP = ["--site", "duck-star", "--topology", "big-blue"]
AUDIT = ["audit", "tokyo"]


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["upp"], ExitCode.USAGE, "upp"),
        (BRIDGE, ExitCode.CONFIG, "--site"),
        ([*BRIDGE, "--site", "tokio"], ExitCode.CONFIG, "did you mean 'tokyo'"),
        (["bridge", "--site", "ducks-hq", "--topology", "big-blue"], ExitCode.CONFIG, "site with a way in"),
        ([*BRIDGE, "--site", "tokyo"], ExitCode.UNAVAILABLE, "fairlead up tokyo"),
        (["bridge", "--site", "tokyo", "--topology", "big-blue", "--ais", "udp://:10110"], ExitCode.CONFIG, "one ship"),
        (["bridge", *ON_SHIP, "--site", "blue-marlin", "--ais", "udp://:10110"], ExitCode.CONFIG, "one ship"),
        (["bridge", *ON_SHIP, "--ais", "antenna"], ExitCode.CONFIG, "tcp://HOST:PORT"),
        ([*REPLAY, "--site", "tokio"], ExitCode.CONFIG, "did you mean 'tokyo'"),
        ([*REPLAY, "--site", "tokyo"], ExitCode.UNAVAILABLE, "fairlead up tokyo"),
        ([*REPLAY, "--site", "tokyo", "--reason", "not-holdr"], ExitCode.CONFIG, "did you mean 'not-holder'"),
        ([*REPLAY, "--site", "tokyo", "--since", "yesterday"], ExitCode.USAGE, "this is no time"),
        ([*REPLAY, "--site", "tokyo", "--until", "2026-09-01T25:00"], ExitCode.USAGE, "this is no time"),
        (["alert", "list", *ON_SHIP], ExitCode.UNAVAILABLE, "does not run"),
        (["alert", "report", "BIGU1000005", *ON_SHIP], ExitCode.UNAVAILABLE, "does not run"),
        (["alert", "ack", "X", "--yes", *ON_SHIP], ExitCode.UNAVAILABLE, "does not run"),
        (["alert", "clear", "X", "--reason", "y", "--yes", *ON_SHIP], ExitCode.UNAVAILABLE, "does not run"),
        (["alert", "report", "X", "--type", "last"], ExitCode.CONFIG, "follow-up"),
        (["replicate"], ExitCode.CONFIG, "--site SITE, or --all"),
        (["replicate", "--site", "tokio"], ExitCode.CONFIG, "tokyo"),
        (["replicate", "--site", "new-york", "-t", "fan-in"], ExitCode.UNAVAILABLE, "fairlead up"),
        (["replicate", "--site", "tokyo"], ExitCode.UNAVAILABLE, "fairlead up"),
        (["replicate", "--site", "tokyo", "--memory", "much"], ExitCode.CONFIG, "256MB"),
        (["replicate", "--site", "tokyo", "--memory", "31MB"], ExitCode.CONFIG, "at least 32 MB"),
        (["replicate", "--site", "tokyo", "--metrics-port", "65536"], ExitCode.USAGE, "65535"),
        ([*AUDIT, "tokyo"], ExitCode.CONFIG, "two different sites"),
        ([*AUDIT, "singapur"], ExitCode.CONFIG, "singapore"),
        ([*AUDIT, "sydney", "--stream", "container"], ExitCode.CONFIG, "containers"),
        ([*AUDIT, "sydney", "--rate", "8MB"], ExitCode.CONFIG, "8MB/s"),
        ([*AUDIT, "sydney"], ExitCode.UNAVAILABLE, "fairlead up"),
        (["custody", "list", "--topology", "minimal"], ExitCode.UNAVAILABLE, "fairlead up"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_command_that_cannot_be_carried_out_says_what_to_do(
    command: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == code
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_second_bridge_of_a_site_is_refused(state_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = state_folder / "minimal" / "run" / "bridge.tokyo.lock"
    lock.parent.mkdir(parents=True)
    with FileLock(lock):
        assert run([*BRIDGE, "--site", "tokyo"]) == ExitCode.REFUSED
    assert "running already" in capsys.readouterr().err


def test_a_site_without_links_that_keeps_everything_needs_no_replicator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "name: mine\nsites: {a: {kind: datacentre}, b: {kind: datacentre}}\nstreams: {metrics: {}}\n"
        "links: [{from: a, to: b, streams: {metrics: all}}]\n"
    )
    assert run(["replicate", "--site", "a", "--topology", str(mine)]) == ExitCode.CONFIG
    assert "sites with a replicator: b" in " ".join(capsys.readouterr().err.split())


def test_a_mistake_in_thresholds_stops_the_bridge_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("default: {power: {dwell: soon}}")
    assert run(["bridge", *ON_SHIP, "--thresholds", str(mine)]) == ExitCode.CONFIG
    assert "default.power.dwell" in " ".join(capsys.readouterr().err.split())
