"""Commands that cannot be carried out: each ends with its exit code and says what to do, before any site is asked."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from filelock import FileLock

from fairlead.cli.app import run
from fairlead.errors import ExitCode

BRIDGE = ["bridge", "--topology", "minimal"]
REPLAY = ["bridge", "replay", "--dry-run", "--topology", "minimal"]
ON_SHIP = ["--site", "duck-star", "--topology", "big-blue"]
AUDIT = ["audit", "tokyo"]
STREAM_SET = ["stream", "set", "orders", "-t", "two-way", "--dry-run"]


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["upp"], ExitCode.USAGE, "upp"),
        (BRIDGE, ExitCode.USAGE, "--site"),
        ([*BRIDGE, "--site", "tokio"], ExitCode.CONFIG, "did you mean 'tokyo'"),
        (["bridge", "--site", "ducks-hq", "--topology", "big-blue"], ExitCode.CONFIG, "site with a bridge"),
        ([*BRIDGE, "--site", "tokyo"], ExitCode.UNAVAILABLE, "fairlead up tokyo"),
        (["bridge", "--site", "tokyo", "--topology", "big-blue", "--ais", "udp://:10110"], ExitCode.CONFIG, "one ship"),
        (["bridge", *ON_SHIP, "--site", "blue-marlin", "--ais", "udp://:10110"], ExitCode.USAGE, "one ship"),
        (["bridge", *ON_SHIP, "--ais", "antenna"], ExitCode.USAGE, "tcp://HOST:PORT"),
        ([*REPLAY, "--site", "tokio"], ExitCode.CONFIG, "did you mean 'tokyo'"),
        ([*REPLAY, "--site", "tokyo"], ExitCode.UNAVAILABLE, "fairlead up tokyo"),
        ([*REPLAY, "--site", "tokyo", "--reason", "not-holdr"], ExitCode.CONFIG, "did you mean 'not-holder'"),
        ([*REPLAY, "--site", "tokyo", "--since", "yesterday"], ExitCode.USAGE, "this is no time"),
        ([*REPLAY, "--site", "tokyo", "--until", "2026-09-01T25:00"], ExitCode.USAGE, "this is no time"),
        (["alert", "list", *ON_SHIP], ExitCode.UNAVAILABLE, "does not run"),
        (["alert", "report", "BIGU1000005", *ON_SHIP], ExitCode.UNAVAILABLE, "does not run"),
        (["alert", "ack", "X", "--yes", *ON_SHIP], ExitCode.UNAVAILABLE, "does not run"),
        (["alert", "clear", "X", "--reason", "y", "--yes", *ON_SHIP], ExitCode.UNAVAILABLE, "does not run"),
        (["alert", "report", "X", "--type", "last"], ExitCode.USAGE, "follow-up"),
        (["replicate"], ExitCode.USAGE, "--site SITE, or --all"),
        (["replicate", "--site", "tokio"], ExitCode.CONFIG, "tokyo"),
        (["replicate", "--site", "new-york", "-t", "fan-in"], ExitCode.UNAVAILABLE, "fairlead up"),
        (["replicate", "--site", "tokyo"], ExitCode.UNAVAILABLE, "fairlead up"),
        (["replicate", "--site", "tokyo", "--memory", "much"], ExitCode.USAGE, "256MB"),
        (["replicate", "--site", "tokyo", "--memory", "31MB"], ExitCode.USAGE, "at least 32 MB"),
        (["replicate", "--site", "tokyo", "--metrics-port", "65536"], ExitCode.USAGE, "65535"),
        ([*AUDIT, "tokyo"], ExitCode.USAGE, "two different sites"),
        ([*AUDIT, "singapur"], ExitCode.CONFIG, "singapore"),
        ([*AUDIT, "sydney", "--stream", "container"], ExitCode.CONFIG, "containers"),
        ([*AUDIT, "sydney", "--rate", "8MB"], ExitCode.USAGE, "8MB/s"),
        ([*AUDIT, "sydney"], ExitCode.UNAVAILABLE, "fairlead up"),
        (["custody", "list", "--topology", "minimal"], ExitCode.UNAVAILABLE, "fairlead up"),
        (["replicate", "--site", "tokyo", "--group", "a b"], ExitCode.USAGE, "letters, digits"),
        (["acl", "apply", "--max-removals", "many", "--dry-run"], ExitCode.USAGE, "from 0% to 100%"),
        (["acl", "audit", "BIGU1000004"], ExitCode.CONFIG, "its check digit would be"),
        (["board", "--host", "192.168.1.20"], ExitCode.USAGE, "--certificate and --key"),
        (["board", "--certificate", "x.pem"], ExitCode.USAGE, "--certificate and --key"),
        (["certs", "issue", "../x", "--name", "x.example"], ExitCode.USAGE, "cannot name a file"),
        (["compose", "render", "x", "--brokers", "2"], ExitCode.USAGE, "1 or 3"),
        (["custody", "seize", "--reason", "fire", "--dry-run"], ExitCode.USAGE, "either one log or --holder"),
        (["devices", "enrol", "--dry-run"], ExitCode.USAGE, "--file FILE"),
        (["devices", "enrol", "--dry-run", "BIGU1000004"], ExitCode.CONFIG, "cannot be a device's name"),
        (["devices", "enrol", "--dry-run", "--file", "no-such-file"], ExitCode.CONFIG, "cannot be read"),
        (["feed", "ducks", "--group", "geese.x"], ExitCode.USAGE, "begin with 'ducks.'"),
        (["feed", "ducks", "--out", "x"], ExitCode.USAGE, "--client kcat"),
        (["feed", "ducks", "--revoke"], ExitCode.USAGE, "--client delta-sharing"),
        (["feed", "ducks", "--client", "delta-sharing"], ExitCode.USAGE, "--board"),
        (["feed", "ducks", "--client", "kact"], ExitCode.USAGE, "kcat"),
        (["feed", "geese"], ExitCode.CONFIG, "no customer"),
        (["link", "pause", "--dry-run"], ExitCode.USAGE, "which link"),
        (["link", "resolve", "orders.x", "--site", "tokyo", "--keep", "--rebuild"], ExitCode.USAGE, ""),
        (["sql", "select", "--csv", "--json"], ExitCode.USAGE, "exclude each other"),
        (["report", "container", "BIGU1000004"], ExitCode.CONFIG, "check digit must be"),
        (["stream", "delete", "Orders", "--dry-run"], ExitCode.CONFIG, "cannot be a stream's name"),
        (["stream", "set", "Orders", "--priority", "bulk", "--dry-run"], ExitCode.CONFIG, "no stream 'Orders'"),
        (["up", "Tokyo"], ExitCode.CONFIG, "did you mean 'tokyo'"),
        (STREAM_SET, ExitCode.USAGE, "set what"),
        ([*STREAM_SET, "--retention", "east"], ExitCode.USAGE, "SITE=DURATION"),
        ([*STREAM_SET, "--retention", "=3d"], ExitCode.USAGE, "no name before its '='"),
        ([*STREAM_SET, "--priority", ""], ExitCode.CONFIG, "no priority ''"),
        ([*STREAM_SET, "--retention", "east=soon"], ExitCode.USAGE, "no retention"),
        (["topology", "check", "no-such"], ExitCode.CONFIG, "no topology"),
        (["topology", "show", "--json", "--mermaid"], ExitCode.USAGE, "exclude each other"),
        (["voyage", "run", "minimal", "--dry-run", "--speed", "2", "--realtime"], ExitCode.USAGE, "leave out --speed"),
        (["voyage", "run", "minimal", "--dry-run", "--interval", "10s"], ExitCode.USAGE, "too short"),
        (["voyage", "run", "minimal", "--dry-run", "--interval", "soon"], ExitCode.USAGE, "a duration"),
        (["voyage", "run", "minimal", "--dry-run", "--scenario", "no-such"], ExitCode.CONFIG, "shipped scenario"),
        (["voyage", "run", "minimal", "--dry-run", "--containers", "1"], ExitCode.CONFIG, "cannot fill"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_command_that_cannot_be_carried_out_says_what_to_do(
    command: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command) == code
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_project_in_place_of_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    for out in (file, file / "deeper"):
        assert run(["compose", "render", str(out), "--topology", "minimal"]) == ExitCode.UNAVAILABLE
        said = " ".join(capsys.readouterr().err.split())
        assert f"{out} cannot be written: Not a directory" in said and "name another folder" in said
    assert file.read_text(encoding="utf-8") == "mine"


def test_a_recording_in_place_of_a_folder_is_refused_before_it_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["voyage", "record", str(tmp_path), "minimal"]) == ExitCode.UNAVAILABLE
    said = " ".join(capsys.readouterr().err.split())
    assert f"{tmp_path} cannot be written: Is a directory" in said and "name another file" in said
    assert not tmp_path.with_name(f"{tmp_path.name}.part").exists()


@pytest.mark.parametrize(
    "calls",
    [
        ["mkdir"],
        ["stat"],
        ["open", "unlink"],  # a disk that is read-only refuses to delete what is not there
    ],
)
def test_a_recording_where_nothing_may_be_written_is_refused(
    calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deeper"

    def forbid(call: str) -> None:
        usual = getattr(Path, call)

        def not_allowed(path: Path, *args: object, **options: object) -> object:
            if folder in (path, path.parent):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return usual(path, *args, **options)

        monkeypatch.setattr(Path, call, not_allowed)

    for call in calls:
        forbid(call)
    assert run(["voyage", "record", str(folder / "voyage.gz"), "minimal"]) == ExitCode.REFUSED
    assert f"{folder / 'voyage.gz'} cannot be written: Permission denied" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("below", ["voyage.gz", "deeper/voyage.gz"])
def test_a_recording_below_a_file_is_refused(below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    out = tmp_path / "file" / below
    assert run(["voyage", "record", str(out), "minimal"]) == ExitCode.UNAVAILABLE
    said = " ".join(capsys.readouterr().err.split())
    assert f"{out} cannot be written: Not a directory" in said and "name another file" in said


@pytest.mark.parametrize("name", ["dangling/voyage.gz", f"{'x' * 252}", "taken.gz"])
def test_a_recording_whose_file_cannot_be_made_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "taken.gz.part").mkdir()
    assert run(["voyage", "record", str(tmp_path / name), "minimal"]) == ExitCode.UNAVAILABLE
    said = " ".join(capsys.readouterr().err.split())
    assert "cannot be written" in said and "name another file" in said


def test_a_recording_makes_folders_that_others_may_read(tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "voyage.gz"
    usual = tmp_path / "usual"
    usual.mkdir()
    assert run(["voyage", "record", str(file), "minimal"]) == ExitCode.OK
    assert file.is_file() and file.parent.stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize("deeper", ["", "x"])
def test_a_state_folder_that_is_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], deeper: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "file" / deeper))
    for command in (["status"], ["up", "tokyo"], ["down"], ["acl", "plan"], ["shore", "status"], ["tables"]):
        assert run([*command, "--topology", "minimal"]) == ExitCode.CONFIG
        said = " ".join(capsys.readouterr().err.split())
        assert f"{tmp_path / 'file'} is no folder" in said and "set FAIRLEAD_HOME" in said


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
