"""What a site's way in has lost is seen by a person: in ``fairlead status``, and by its exit code."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from edge.metrics import Metrics, write_snapshot
from edge.status import alarms, bridge_file, read_bridge
from fairlead.cli.app import run
from fairlead.errors import ExitCode
from replication.operations.links.access import read_status, status_file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return tmp_path / "minimal"


def write(folder: Path, dropped: int = 0, sessions_lost: int = 0) -> None:
    metrics = Metrics(received=10, mqtt_dropped=dropped)
    write_snapshot(bridge_file(folder, "tokyo"), {**metrics.snapshot(), "mqtt_sessions_lost": sessions_lost})


def test_dropped_messages_are_an_alarm_with_a_remedy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, dropped=1_234)
    assert run(["status", "--check", "--topology", "minimal"]) == ExitCode.FAILED
    out = capsys.readouterr().out
    assert "tokyo: the MQTT broker has DROPPED 1,234 messages" in out
    assert "max_queued_messages" in out
    assert run(["status", "--topology", "minimal"]) == ExitCode.OK


def test_a_forgotten_session_is_an_alarm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, sessions_lost=1)
    assert run(["status", "--check", "--json", "--topology", "minimal"]) == ExitCode.FAILED
    sites = {site["site"]: site["bridge"] for site in json.loads(capsys.readouterr().out)["sites"]}
    assert [each["alarm"] for each in sites.pop("tokyo")["alarms"]] == ["mqtt-session-lost"]
    assert set(sites.values()) == {None}


def test_nothing_is_said_of_a_bridge_that_lost_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder)
    assert run(["status", "--check", "--topology", "minimal"]) == ExitCode.OK
    assert "what to do" not in capsys.readouterr().out


def test_a_bridge_and_a_replicator_in_other_containers_run_while_they_write(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their process ids say nothing here."""
    monkeypatch.setenv("FAIRLEAD_SITE_HOMES", str(tmp_path / "homes"))
    now = dt.datetime.now(dt.UTC)
    for moment, runs in ((now, True), (now - dt.timedelta(minutes=1), False)):
        bridge = {**Metrics().snapshot(), "mqtt_sessions_lost": 0, "pid": 2**22, "written_at": moment.isoformat()}
        for file, body in (
            (bridge_file(folder, "tokyo"), bridge),
            (status_file(folder, "tokyo"), {"pid": 2**22, "at": moment.isoformat()}),
        ):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(body), encoding="utf-8")
        found, status = read_bridge(folder, "tokyo"), read_status(folder, "tokyo")
        assert found is not None and status is not None
        assert (found["running"], status.running) == (runs, runs)


def test_a_bridge_that_writes_no_more_does_not_run(folder: Path) -> None:
    write(folder, dropped=1)
    found = read_bridge(folder, "tokyo")
    assert found is not None
    assert found["running"]
    body = {**found, "written_at": (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)).isoformat()}
    bridge_file(folder, "tokyo").write_text(json.dumps(body), encoding="utf-8")
    later = read_bridge(folder, "tokyo")
    assert later is not None
    assert not later["running"]
    assert later["alarms"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"written_at": 5, "pid": 1}'])
def test_a_damaged_file_says_nothing(folder: Path, text: str) -> None:
    write(folder)
    bridge_file(folder, "tokyo").write_text(text, encoding="utf-8")
    assert read_bridge(folder, "tokyo") is None


def test_logs_that_are_not_read_to_their_ends_are_an_alarm_that_names_them(folder: Path) -> None:
    metrics = Metrics(unread={"custody.sydney", "strays.star"})
    write_snapshot(bridge_file(folder, "tokyo"), metrics.snapshot())
    found = read_bridge(folder, "tokyo")
    assert found is not None
    [alarm] = found["alarms"]
    assert alarm["alarm"] == "logs-unread" and "2 logs" in alarm["what"]
    assert alarm["what"].endswith(": custody.sydney, strays.star")


def test_messages_of_a_device_that_floods_are_an_alarm_when_they_are_dropped() -> None:
    [alarm] = alarms(Metrics(flood_dropped=1234).snapshot())
    assert alarm["alarm"] == "flood-dropped"
    assert "1,234" in alarm["what"]
    assert "DEVICE_FLOOD" in alarm["what_to_do"]
