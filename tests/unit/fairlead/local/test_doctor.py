"""``fairlead doctor`` reports what this machine lacks, and changes nothing."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from fairlead.cli import app as cli
from fairlead.cli.commands import doctor
from fairlead.cli.commands.doctor import CheckResult
from fairlead.errors import ExitCode, UnavailableError
from fairlead.local import ports
from fairlead.local.state import LocalState, SiteState, write_state


def site(kafka: int, mqtt: int) -> SiteState:
    return SiteState(kafka_port=kafka, controller_port=kafka + 1, mqtt_port=mqtt, cluster_id="x")


def test_every_check_is_made_for_a_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "not/there"))
    code = cli.run(["doctor", "-t", "minimal", "--logs", "100", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [each["name"] for each in checks] == ["java", "mosquitto", "jars", "ports", "open files", "disk"]
    assert (code == ExitCode.OK) == ("failed" not in [each["verdict"] for each in checks])
    assert all(each["found"] and each["needed"] and (each["todo"] or each["verdict"] == "ok") for each in checks)
    assert not list(tmp_path.iterdir())


def test_a_failed_check_ends_with_1_and_shows_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("fairlead.local.mosquitto._SBIN", ())
    assert cli.run(["doctor", "-t", "minimal"]) == ExitCode.FAILED
    shown = capsys.readouterr().out
    assert "Mosquitto 2" in shown and "apt install mosquitto" in shown


def test_no_java_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> Path:
        raise UnavailableError("found only /usr/bin/java (version 11)", hint="install it")

    monkeypatch.setattr(doctor, "find_java", find)
    found = doctor.java()
    assert (found.verdict, found.found, found.todo) == (
        CheckResult.FAILED,
        "found only /usr/bin/java (version 11)",
        "install it",
    )


def test_missing_jars_are_a_warning_until_a_download_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_CACHE", str(tmp_path / "cache"))

    def refuse(name: str) -> None:
        raise UnavailableError("the host was not found", hint="check the network")

    monkeypatch.setattr(doctor, "ensure_jars", refuse)
    found = doctor.jars()
    assert found.verdict is CheckResult.WARNING and "--download" in found.todo
    failed = doctor.jars(download=True)
    assert (failed.verdict, failed.found, failed.todo) == (
        CheckResult.FAILED,
        "the host was not found",
        "check the network",
    )
    assert not (tmp_path / "cache").exists()


def test_who_holds_a_port_that_a_site_had_is_named(tmp_path: Path) -> None:
    with socket.create_server((ports.HOST, 0)) as server:
        port = server.getsockname()[1]
        write_state(tmp_path / "state.json", LocalState(sites={"tokyo": site(23_001, port)}))
        found = {each.name: each for each in doctor.examine(tmp_path, ["tokyo"], 1)}["ports"]
    assert found.verdict is CheckResult.FAILED
    assert f"tokyo's Mosquitto, {port}" in found.found and f"(pid {os.getpid()})" in found.found


@pytest.mark.parametrize(
    ("hard", "logs", "verdict"),
    [
        (-1, 10**6, CheckResult.OK),
        (1_024, 500, CheckResult.OK),
        (1_024, 800, CheckResult.WARNING),
        (1_024, 1_000, CheckResult.FAILED),
        (20_000, 10_000, CheckResult.OK),
        (20_000, 20_000, CheckResult.FAILED),  # measured: no log beyond 18,400
    ],
)
def test_open_files(hard: int, logs: int, verdict: CheckResult) -> None:
    assert doctor.open_files((256, hard), logs).verdict is verdict


def test_a_disk_without_room_or_that_takes_no_files_is_a_failure(tmp_path: Path) -> None:
    assert doctor.disk(tmp_path / "a/b", 2, 1_000).verdict is CheckResult.OK
    assert "MB free" in doctor.disk(tmp_path, 10**6, 10**6).found
    assert doctor.disk(tmp_path, 10**6, 10**6).verdict is CheckResult.FAILED
    assert doctor.disk(Path("/proc/self"), 0, 1).verdict is CheckResult.FAILED
    assert not list(tmp_path.iterdir())
