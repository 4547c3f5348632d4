"""Each way in which data is or would be lost shows in the status, an exit code, a metric and an alert."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.core import Metric
from rich.console import Console

import compose
from edge.alerts.site_alerts import KINDS
from edge.bridge import Bridge
from edge.metrics import write_snapshot
from edge.prometheus import bridge_metrics
from edge.status import ALARMS, Alarm, bridge_file
from fairlead.cli.app import run
from fairlead.cli.commands.sites.status import show
from fairlead.errors import ExitCode
from fairlead.fleet_status import LOSS, Offsets, loses, overtaken, waiting
from replication.metrics import replication_metrics
from replication.operations.links.access import status_file
from replication.states import LogState, LogTrouble
from tests.support.scraping import page
from topologies.loader.load import load, read

RULES = {
    rule["alert"]: rule["expr"]
    for group in yaml.safe_load((Path(compose.__file__).parent / "monitoring" / "rules.yaml").read_text())["groups"]
    for rule in group["rules"]
}
STARTED = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
# The bridge's snapshot for each alarm.
SIGNS: dict[str, dict[str, Any]] = {
    "mqtt-dropped": {"mqtt_dropped": 7},
    "mqtt-session-lost": {"mqtt_sessions_lost": 7},
    "flood-dropped": {"flood_dropped": 7},
    "qos0-dropped": {"qos0_dropped": 7},
    "dead-letters": {"dead_letters": 7, "dead_letters_by_reason": {"not-json": 7}},
    "strays-gone": {"strays_gone": 7},
    "logs-broken": {"custody": {"held": 0, "incoming": 0, "broken": 7, "elsewhere": 0}},
    "logs-unread": {"unread": [f"custody.{number}" for number in range(7)]},
    "site-alerts": {"site_alerts": dict.fromkeys(KINDS, 0) | {KINDS[0]: 7}},
}
# The metric and the alert rule for each alarm.
SHOWN_BY = {
    "mqtt-dropped": ("fairlead_bridge_mqtt_dropped_total", "FairleadMqttLost"),
    "mqtt-session-lost": ("fairlead_bridge_mqtt_sessions_lost_total", "FairleadMqttLost"),
    "flood-dropped": ("fairlead_bridge_flood_dropped_total", "FairleadBridgeFloodDropped"),
    "qos0-dropped": ("fairlead_bridge_qos0_dropped_total", "FairleadMqttLost"),
    "dead-letters": ("fairlead_bridge_dead_letters_total", "FairleadBridgeLettersKept"),
    "strays-gone": ("fairlead_bridge_strays_gone_total", "FairleadBridgeStraysGone"),
    "logs-broken": ("fairlead_bridge_logs", "FairleadBridgeLogsBroken"),
    "logs-unread": ("fairlead_bridge_unread_logs", "FairleadBridgeLogsUnread"),
    "site-alerts": ("fairlead_bridge_site_alerts", "FairleadBridgeSiteAlerts"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return tmp_path / "minimal"


def scraped(metrics: Iterable[Metric]) -> dict[str, float]:
    """Return every series in Prometheus' text format."""
    lines = page(metrics).splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def status(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the output of ``fairlead status``, and check that ``--check`` fails."""
    assert run(["status", "--check", "--topology", "minimal"]) == ExitCode.FAILED
    return " ".join(capsys.readouterr().out.split())


def replicator(state: LogState) -> dict[str, Any]:
    trouble = LogTrouble(state, "a cause", STARTED).as_json("alerts.duck-star", "tokyo")
    target = {"state": "up", "certificate_ends": None}
    return {
        "site": "tokyo",
        "at": dt.datetime.now(dt.UTC).isoformat(),
        "started": STARTED.isoformat(),
        "target": target,
        "links": [],
        "entries_refused": 0,
        "logs": {"alerts.duck-star": trouble},
    }


def test_every_state_that_somebody_must_end_is_loss() -> None:
    """Every error state that an operator must end counts as loss."""
    assert set(LogState) - LOSS == {LogState.MIRRORING, LogState.PAUSED, LogState.UNAVAILABLE}


@pytest.mark.parametrize("state", sorted(LOSS))
def test_a_log_that_loses_is_loud(state: LogState, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that loses data shows in status, metrics and alerts."""
    write_snapshot(status_file(folder, "tokyo"), replicator(state))
    told = status(capsys)
    assert f"alerts.duck-star {state}" in told and "a cause" in told and "what to do:" in told
    series = f'fairlead_logs{{site="tokyo",state="{state}"}}'
    assert scraped(replication_metrics([replicator(state)]))[series] == 1
    matching = [name for name, expression in RULES.items() if _asks_for(expression, "fairlead_logs", "state", state)]
    assert matching, f"no alert rule fires for logs that are {state}"


@pytest.mark.parametrize("state", sorted(set(LogState) - LOSS - {LogState.MIRRORING}))
def test_a_log_that_only_waits_fails_no_check_and_alerts_when_it_lasts(
    state: LogState, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log that only waits fails no check, but raises an alert if it lasts."""
    write_snapshot(status_file(folder, "tokyo"), replicator(state))
    assert run(["status", "--check", "--topology", "minimal"]) == ExitCode.OK
    assert f"alerts.duck-star {state}" in " ".join(capsys.readouterr().out.split())
    assert any(_asks_for(expression, "fairlead_logs", "state", state) for expression in RULES.values())


def test_the_cause_of_a_link_s_state_has_a_heading(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = {"name": "duck-star->tokyo", "state": "closed", "lag": None, "records": 0, "bytes": 0, "cause": "at sea"}
    write_snapshot(status_file(folder, "tokyo"), replicator(LogState.PAUSED) | {"links": [link]})
    assert run(["status", "--topology", "minimal"]) == ExitCode.OK
    told = " ".join(capsys.readouterr().out.split())
    assert "┃ cause ┃" in told and "at sea" in told


def test_what_ends_the_cause_is_shown_before_the_ways_out_of_the_state(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status shows the hint of the error that stopped a log, and the remedy for its state."""
    trouble = LogTrouble(LogState.UNAVAILABLE, "a cause", STARTED, hint="give this user the permission")
    shown = replicator(LogState.UNAVAILABLE)
    shown["logs"] = {"alerts.duck-star": trouble.as_json("alerts.duck-star", "tokyo")}
    write_snapshot(status_file(folder, "tokyo"), shown)
    assert run(["status", "--topology", "minimal"]) == ExitCode.OK
    told = " ".join(capsys.readouterr().out.split())
    assert "what to do: give this user the permission; the replicator retries by itself" in told


def test_a_site_that_holds_up_deletions_is_named_with_the_bytes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is lost, so no check fails."""
    waits_for = "los-angeles"
    delay = {"logs": 5, "records": 1200, "bytes": 3_400_000, "example": "alerts.tokyo", "since": STARTED.isoformat()}
    shown = replicator(LogState.PAUSED) | {"retention": {"swept": None, "waits_for": {waits_for: delay}}}
    write_snapshot(status_file(folder.parent / "big-blue", "tokyo"), shown)
    assert run(["status", "--check", "--topology", "big-blue"]) == ExitCode.OK
    told = " ".join(capsys.readouterr().out.split())
    assert f"tokyo: keeps 1,200 old records of 5 logs (3.4 MB) until {waits_for} has them" in told
    assert "bring los-angeles up to date" in told
    series = f'fairlead_retention_waiting_bytes{{site="tokyo",waits_for="{waits_for}"}}'
    assert scraped(replication_metrics([shown]))[series] == 3_400_000
    assert "fairlead_retention_waiting_bytes" in RULES["FairleadRetentionWaits"]


def test_a_site_that_can_never_confirm_is_named_with_the_missing_link() -> None:
    delay = {"logs": 1, "records": 2, "bytes": 3, "example": "s.a", "since": STARTED.isoformat()}
    shown = {"retention": {"waits_for": {"centre": delay}}}
    (told,) = waiting("edge", shown, {("edge", "centre")})
    assert told["what_to_do"] == "add ends: [centre] to the links from centre to edge"
    assert waiting("edge", None, ()) == []


def test_every_alarm_of_a_way_in_has_a_sign() -> None:
    """The test has a snapshot for every alarm of the bridge."""
    assert SIGNS.keys() == {alarm.name for alarm in ALARMS}


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.name)
def test_a_way_in_that_loses_is_loud(alarm: Alarm, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each loss at the bridge shows in status, metrics and alerts."""
    metric, rule = SHOWN_BY[alarm.name]
    quiet = _quiet_bridge()
    assert not any(each.count(quiet) for each in ALARMS)
    loud = quiet | SIGNS[alarm.name]
    write_snapshot(bridge_file(folder, "tokyo"), loud)
    told = status(capsys)
    assert (
        f"tokyo: {alarm.what.format(count=7, unread=', '.join(SIGNS['logs-unread']['unread']))}" in told
        and alarm.what_to_do in told
    )
    assert run(["status", "--check", "--json", "--topology", "minimal"]) == ExitCode.FAILED
    (tokyo,) = (site for site in json.loads(capsys.readouterr().out)["sites"] if site["site"] == "tokyo")
    assert [each["alarm"] for each in tokyo["bridge"]["alarms"]] == [alarm.name]

    def seen(snapshot: dict[str, Any]) -> set[tuple[str, float]]:
        every = scraped(bridge_metrics([snapshot])).items()
        return {(name, value) for name, value in every if name.startswith(metric)}

    assert [value for name, value in seen(loud) - seen(quiet) if "_created" not in name] == [7]
    assert metric in RULES[rule]


def _quiet_bridge() -> dict[str, Any]:
    def nowhere() -> Any:
        raise AssertionError("is not asked")

    return Bridge(load("minimal", env={}), "tokyo", nowhere, nowhere).snapshot()


TWO_WAYS = """\
name: three
sites: {a: {kind: datacentre}, b: {kind: datacentre}, c: {kind: datacentre}}
streams: {notes: {}}
links:
  - {from: a, to: c, streams: {notes: all}}
  - {from: b, to: c, streams: {notes: [x*]}}
"""


@pytest.mark.parametrize(
    ("at_a", "at_b", "up", "lost"),
    [
        ((0, 9), None, (), None),  # nothing is missing yet
        ((5, 9), None, (), None),  # the deleted records are here already
        ((7, 9), None, (), ("a", 2)),  # 5 and 6 are nowhere
        ((7, 9), (4, 9), (), None),  # another source has them
        ((7, 9), (6, 9), (), ("b", 1)),
        ((7, 9), None, ("a->c",), None),  # its replicator reports it itself
    ],
)
def test_what_a_source_deletes_while_its_link_is_away_is_loud(
    at_a: tuple[int, int], at_b: tuple[int, int] | None, up: tuple[str, ...], lost: tuple[str, int] | None
) -> None:
    """Records that a source deletes while its link is down show as a loss."""
    kept: dict[str, Offsets] = {"c": {"notes.x": (0, 5)}, "a": {"notes.x": at_a}}
    kept |= {"b": {"notes.x": at_b}} if at_b else {}
    found = overtaken(read(TWO_WAYS, "three.yaml"), "c", kept, up)
    assert found == ([] if lost is None else [{"log": "notes.x", "from": lost[0], "records": lost[1]}])


def test_what_a_source_has_deleted_is_a_line_and_fails_the_check(folder: Path) -> None:
    """Records deleted at the source are a line of the status and make the check fail."""
    found: dict[str, Any] = {"topology": "three", "folder": str(folder), "workers": [], "sites": [_site()]}
    assert not loses(found)
    found["sites"][0]["overtaken"] = [{"log": "notes.x", "from": "a", "records": 1200}]
    assert loses(found)
    console = Console(width=200, record=True, file=(folder.parent / "out").open("w"))
    show(found, console)
    console.file.close()
    told = console.export_text()
    assert "c: a has deleted 1,200 records of notes.x that are not here yet" in told and "what to do:" in told
    paused = RULES["FairleadLogsPaused"]  # Prometheus scrapes replicators, which send no requests over a paused link
    assert "fairlead_link_state" in paused and "paused" in paused
    assert "fairlead_link_state" in RULES["FairleadLinkUnavailable"]


def _site() -> dict[str, Any]:
    nothing: Mapping[str, Any] = {"logs": 1, "records": 5, "error": None, "lag": None, "kafka": None, "mqtt": None}
    more: dict[str, Any] = {
        "certificates": [],
        "links": [],
        "entries_refused": 0,
        "logs_in_trouble": {},
        "logs_by_state": {},
        "overtaken": [],
        "waiting": [],
    }
    return {"site": "c", "kind": "datacentre", "bridge": None, "replicator": None, **nothing, **more}


def _asks_for(expression: str, metric: str, label: str, value: str) -> bool:
    """Return whether an alert rule's expression selects a series by this label."""
    for operator, wanted in re.findall(rf'{metric}{{{label}(=~|=)"([^"]*)"}}', expression):
        if re.fullmatch(wanted, value) if operator == "=~" else wanted == value:
            return True
    return False
