"""``fairlead topology`` as a user runs it, in this process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli.commands.topology import app, warnings
from fairlead.errors import UnknownNameError
from topologies.loader.load import load, read, shipped
from topologies.loader.mistakes import TopologyErrors
from topologies.model import Topology


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    """A runner in an empty folder, for whose commands no variable of the machine counts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRLEAD_TOPOLOGY", raising=False)
    return CliRunner()


def test_check_is_content_with_what_is_right(runner: CliRunner) -> None:
    result = runner.invoke(app, ["check", "minimal", "--json"])
    assert result.exit_code == 0
    counts = {"sites": 2, "streams": 10, "links": 4}
    assert json.loads(result.stdout) == {"topology": "minimal", "ok": True, **counts, "warnings": []}


def test_check_warns_of_a_site_that_would_never_delete(runner: CliRunner, tmp_path: Path) -> None:
    """What the centre has is never confirmed to the edge, because no link brings it there."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\nsites: {edge: {kind: datacentre, retention: {default: 3d}}, centre: {kind: datacentre}}\n"
        "streams: {metrics: {}}\nlinks: [{from: edge, to: centre, streams: {metrics: all}}]\n"
    )
    result = runner.invoke(app, ["check", str(file)])
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert "edge never deletes old records of metrics" in said
    assert "add ends: [centre] to the links from centre to edge" in said


@pytest.mark.parametrize("name", shipped())
def test_check_warns_of_nothing_that_is_shipped(name: str) -> None:
    assert warnings(load(name, env={})) == []


def test_check_warns_of_a_ledger_that_is_cut(runner: CliRunner, tmp_path: Path) -> None:
    shutil.copy(shipped()["minimal"], tmp_path / "mine.yaml")
    (tmp_path / "mine.local.yaml").write_text("sites: {tokyo: {retention: {custody: 30d}}}\n")
    result = runner.invoke(app, ["check", "mine.yaml"])
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert "tokyo deletes old records of custody" in said and "add custody: forever to its retention" in said
    assert said.count("warning:") == 1


@pytest.mark.parametrize(
    ("kinds", "link", "cut"),
    [
        (("port, unlocode: JPTYO", "hq"), "{from: edge, to: centre, streams: {custody: [edge]}}", ["centre"]),
        (("datacentre", "datacentre"), "{from: edge, to: centre, streams: {boxes: all}}", []),
    ],
    ids=["its own ledger", "no ledger"],
)
def test_check_does_not_warn_of_ledgers_that_stay_whole(kinds: tuple[str, str], link: str, cut: list[str]) -> None:
    """A default for all streams cuts the ledgers of other sites only, and without shipping there are none."""
    edge, centre = (f"{{kind: {kind}, retention: {{default: 30d}}}}" for kind in kinds)
    boxes = "{boxes: {insert_point: moves, owners: [BIGU]}}"
    text = f"name: mine\nsites: {{edge: {edge}, centre: {centre}}}\nstreams: {boxes}\nlinks: [{link}]\n"
    found = [each for each in warnings(read(text, "mine.yaml", env={})) if "custody: forever" in each]
    assert [each.partition(" ")[0] for each in found] == cut


def test_check_warns_of_a_berth_whose_place_is_not_known(runner: CliRunner, tmp_path: Path) -> None:
    """A mistyped UN/LOCODE has a right form. Without a place, positions open no link there."""
    file, mistyped = tmp_path / "mine.yaml", "JPTKO"
    file.write_text(shipped()["minimal"].read_text().replace("JPTYO", mistyped).replace("name: minimal", "name: mine"))
    result = runner.invoke(app, ["check", "mine.yaml"])
    assert result.exit_code == 0
    said = " ".join(result.stdout.split())
    assert f"where tokyo lies ({mistyped} is not the UN/LOCODE of a port)" in said
    assert "sites.tokyo.position" in said and said.count("warning:") == 1
    (tmp_path / "mine.local.yaml").write_text("sites: {tokyo: {position: {latitude: 35.6, longitude: 139.8}}}\n")
    assert "warning:" not in runner.invoke(app, ["check", "mine.yaml"]).stdout


def _mine(links: str) -> Topology:
    sites = "{edge: {kind: datacentre}, centre: {kind: datacentre}, star: {kind: ship, imo: '9074729'}}"
    streams = "{metrics: {}, orders: {}, boxes: {insert_point: moves, owners: [BIGU]}}"
    return read(f"name: mine\nsites: {sites}\nstreams: {streams}\nlinks: [{links}]\n", "mine.yaml", env={})


def test_check_warns_of_streams_that_leave_no_site() -> None:
    """A copy is why there are links. What a topology without links has stays where it is; so may dead letters."""
    both = "events: all, alerts: all, custody: all, strays: all, ends: all"
    edge = f"{{from: edge, to: centre, both: true, streams: {{metrics: all, boxes: all, {both}}}}}"
    ashore = "{from: star, to: centre, streams: {boxes: all, custody: [star], events: [star], ends: [star]}}"
    found = warnings(_mine(f"{edge}, {ashore}"))
    assert found == [
        "no link carries stream orders, so its records stay where they are written",
        "no link carries stream ships, so its records stay where they are written",
        "no link carries alerts, strays of star away from the ship",
    ]
    assert warnings(_mine("")) == []


def test_check_does_not_warn_of_streams_that_nobody_writes() -> None:
    """Without ships there are no logs of ships, and without containers neither ledgers nor strays."""
    sites = "{edge: {kind: port, unlocode: JPTYO}, centre: {kind: port, unlocode: SGSIN}}"
    link = "{from: edge, to: centre, streams: {metrics: all, alerts: all}}"
    text = f"name: mine\nsites: {sites}\nstreams: {{metrics: {{}}}}\nlinks: [{link}]\n"
    assert warnings(read(text, "mine.yaml", env={})) == [
        "no link carries stream events, so its records stay where they are written"
    ]


def test_check_takes_big_blue_when_nothing_is_said(runner: CliRunner) -> None:
    result = runner.invoke(app, ["check"])
    assert result.exit_code == 0
    assert "big-blue" in result.stdout


def test_check_raises_all_mistakes_with_the_code_for_configuration(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\nsites: {a: {kind: prot}}\nshore: {at: b}\n")
    result = runner.invoke(app, ["check", str(file)])
    assert isinstance(result.exception, TopologyErrors)
    assert result.exception.exit_code == 3
    assert [(m["line"], m["path"]) for m in result.exception.fields["mistakes"]] == [
        (2, "sites.a.kind"),
        (3, "shore.at"),
    ]


def test_show_draws(runner: CliRunner) -> None:
    result = runner.invoke(app, ["show", "chain"])
    assert result.exit_code == 0
    assert "singapore" in result.stdout and "▼" in result.stdout


def test_show_prints_mermaid(runner: CliRunner) -> None:
    result = runner.invoke(app, ["show", "two-way", "--mermaid"])
    assert result.exit_code == 0
    assert result.stdout.startswith("flowchart LR\n")


def test_show_prints_either_mermaid_or_json(runner: CliRunner) -> None:
    assert runner.invoke(app, ["show", "two-way", "--mermaid", "--json"]).exit_code == 2


def test_show_of_an_unknown_name(runner: CliRunner) -> None:
    result = runner.invoke(app, ["show", "chian"])
    assert isinstance(result.exception, UnknownNameError)
    assert result.exception.fields["nearest"] == "chain"


def test_list_names_what_is_shipped(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_SITES__TOKYO__TITLE", "only some of them have a site of this name")
    result = runner.invoke(app, ["list", "--json"])
    assert result.exit_code == 0
    assert [entry["name"] for entry in json.loads(result.stdout)] == sorted(shipped())
