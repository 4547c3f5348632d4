"""``fairlead alert rules``, and which site's answer ``fairlead alert report`` gives."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.alerts import operator
from fairlead.cli.app import run
from fairlead.cli.commands import alert as command
from fairlead.errors import ExitCode, FairleadError
from fairlead.kafka.protocol.errors import AuthenticationFailed, ConnectionLost
from fairlead.records.alert import Alert, Evidence, alert_key
from tests.support.edge.detecting import FALL, Voyage
from tests.support.edge.samples import BOX
from tests.support.notices import alert

TOPOLOGY = """
name: pair
sites:
  tokyo: {kind: port, unlocode: JPTYO}
  sydney: {kind: port, unlocode: AUSYD}
  star: {kind: ship, imo: "9074729"}
streams:
  containers: {insert_point: moves, owners: [BIGU]}
links:
  - {from: tokyo, to: sydney, both: true, streams: {containers: all, alerts: all}}
shore: {at: tokyo}
"""


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return tmp_path


def test_rules_shows_every_threshold_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alert", "rules", "--commodity", "frozen-fish"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "ATP Annex 2" in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in ("dwell 1h", "recovery 15m", "tolerance 2 °C", "maximum -15 °C", "tolerance 15 %", "at_most 6h"):
        assert line in lines
    for line in ("unknown 1d", "away 500 m", "intervals 4", "neighbours 2"):
        assert line in lines


def test_rules_of_a_name_that_is_spelled_as_in_a_booking(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alert", "rules", "--commodity", "Frozen Fish"]) == ExitCode.OK
    assert "ATP Annex 2" in capsys.readouterr().out


def test_rules_of_an_unknown_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("customers: {ducks: {power: {dwell: 10m}}}")
    assert run(["alert", "rules", "--commodity", "frozen-fsh"]) == ExitCode.CONFIG
    assert "did you mean 'frozen-fish'?" in capsys.readouterr().err
    assert run(["alert", "rules", "--customer", "nobody"]) == ExitCode.CONFIG
    assert "no customer has thresholds of its own" in capsys.readouterr().err
    assert run(["alert", "rules", "--customer", "duck", "--thresholds", str(mine)]) == ExitCode.CONFIG
    assert "did you mean 'ducks'?" in capsys.readouterr().err
    assert run(["alert", "rules", "--customer", "ducks", "--thresholds", str(mine)]) == ExitCode.OK


def test_a_file_of_thresholds_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alert", "rules", "--thresholds", str(tmp_path / "nope.yaml")]) == ExitCode.CONFIG
    said = capsys.readouterr().err
    assert f"there is no file {tmp_path / 'nope.yaml'}" in said and "Errno" not in said


def test_rules_as_json_are_plain_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("default: {power: {dwell: 10m}}")
    assert run(["alert", "rules", "--thresholds", str(mine), "--json"]) == ExitCode.OK
    body = json.loads(capsys.readouterr().out)
    assert body["groups"]["power"] == {"dwell": 600_000, "source": "set in mine.yaml"}
    assert "bananas" in body["known"]


@dataclass
class Known:
    """The alerts at each site, and the errors of sites that do not answer."""

    alerts: dict[str, list[Alert]]
    away: dict[str, FairleadError] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class OpenCluster:
    """The connection to one site."""

    known: Known
    site: str

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Known:
    """Return sites whose copies of the alerts differ: shore's site knows that the alert was cleared."""
    made = tmp_path / "pair.yaml"
    made.write_text(TOPOLOGY, encoding="utf-8")
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", str(made))
    voyage = Voyage()
    voyage.ship()
    voyage.see(0, **FALL)
    opened = voyage.said[0]
    cleared = msgspec.structs.replace(opened, state="CLEARED", revision=opened.revision + 1)
    known = Known({"tokyo": [opened, cleared], "sydney": [opened], "star": [opened, cleared]})

    class Clusters:
        @staticmethod
        async def open(site: str, **_: Any) -> OpenCluster:
            known.asked.append(site)
            if site in known.away:
                raise known.away[site]
            return OpenCluster(known, site)

    async def read_alerts(cluster: OpenCluster) -> list[Alert]:
        return cluster.known.alerts[cluster.site]

    async def read_nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(command, "Cluster", Clusters)
    monkeypatch.setattr(command, "running_kafka", lambda _: str)
    monkeypatch.setattr(command, "read_alerts", read_alerts)
    monkeypatch.setattr(operator, "read_alerts", read_alerts)
    monkeypatch.setattr(operator, "_read", read_nothing)
    return known


def test_a_site_that_knows_of_no_loss_is_believed(known: Known, capsys: pytest.CaptureFixture[str]) -> None:
    """No report is drafted from the copy of a site that does not know yet that the alert was cleared."""
    assert run(["alert", "report", BOX]) == ExitCode.CONFIG
    assert "was cleared: the container is not lost" in capsys.readouterr().err
    assert known.asked == ["tokyo"]


def test_a_list_has_an_alert_until_the_site_that_raised_it_ends_it(
    known: Known, capsys: pytest.CaptureFixture[str]
) -> None:
    [opened] = known.alerts["sydney"]
    known.alerts["sydney"].append(msgspec.structs.replace(opened, state="CLEARED", raised_at="zulu"))
    assert run(["alert", "list", "--site", "sydney", "--json"]) == ExitCode.OK
    assert [each["raisedAt"] for each in json.loads(capsys.readouterr().out)["alerts"]] == [opened.raised_at]
    assert run(["alert", "list", "--site", "sydney"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("1 alert (logs at sydney)\n")


def test_an_alert_that_the_site_does_not_know_is_named(known: Known, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["alert", "report", "BIGU9999999", "--json"]) == ExitCode.CONFIG
    error = json.loads(capsys.readouterr().err)
    assert "no overboard alert 'BIGU9999999' here" in error["what"]
    assert "another site may know more (--site)" in error["hint"]
    assert not error["retriable"]
    assert known.asked == ["tokyo"]


@pytest.mark.parametrize("error", [ConnectionLost("away"), AuthenticationFailed("refused")])
def test_the_next_site_is_asked_when_one_cannot_be_reached(
    error: FairleadError, known: Known, capsys: pytest.CaptureFixture[str]
) -> None:
    known.away["tokyo"] = error
    assert run(["alert", "report", BOX]) == ExitCode.OK
    assert BOX in capsys.readouterr().out
    assert known.asked == ["tokyo", "sydney"]
    assert run(["alert", "report", BOX, "--site", "tokyo"]) == error.exit_code


LONG: dict[str, Any] = {
    "kind": "NOT_HEARD_SINCE_DEPARTURE", "severity": "CRITICAL", "equipment_reference": BOX,
    "raised_at": "los-angeles",
    "evidence": (Evidence(name="silence", weight=1.0, detail="no word since the ship left, which is long ago"),),
}  # fmt: skip


def listed(capsys: pytest.CaptureFixture[str], *alerts: Alert) -> str:
    command._show_list("tokyo", alerts, {alert_key(each): each for each in alerts})  # noqa: SLF001
    return capsys.readouterr().out


@pytest.mark.usefixtures("narrow")
def test_no_name_is_cut_at_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    told = listed(capsys, alert("a", **LONG, acknowledged_by="ann"))
    assert BOX in told and "\N{HORIZONTAL ELLIPSIS}" not in told


@pytest.mark.usefixtures("narrow")
def test_the_list_has_ids_where_the_container_does_not_say_which_alert(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = alert("SILENCE-1", **LONG), alert("OVERBOARD-2", **LONG | {"kind": "OVERBOARD"})
    assert "SILENCE-1" not in listed(capsys, one)
    told = listed(capsys, one, other)
    assert f"id of OVERBOARD of {BOX} at los-angeles: OVERBOARD-2\n" in told
    assert "SILENCE-1" in told
    told = listed(capsys, one, msgspec.structs.replace(other, state="CLEARED"))
    assert BOX in told and "SILENCE-1" not in told
