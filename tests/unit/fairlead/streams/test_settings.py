"""``fairlead stream set``: the whole result is checked, the plan says what follows, and only the values change."""

from __future__ import annotations

import asyncio
import json
import stat
from pathlib import Path

import pytest

from fairlead.cli import app as cli
from fairlead.errors import ConfigurationError, ExitCode, RefusedError, UnknownNameError
from fairlead.plan import execute
from fairlead.streams.settings import SettingsChange, SettingsPlan, SettingsRun, plan_settings
from topologies.loader.load import load, shipped
from topologies.loader.mistakes import TopologyErrors

TOPOLOGY = """\
# Ours.
name: pair
sites:
  west: {kind: datacentre, retention: &short {default: 3d}}  # the edge
  east: {kind: datacentre, retention: *short}
  far: {kind: datacentre}
streams:
  orders:
    permissions: {produce: "u:producer", consume: "u:analyst"}
links:
  - {from: west, to: east, streams: {orders: all}, priority: {orders: control}}
users:
  producer: {at: [west]}
  analyst: {at: [east]}
  auditor: {at: [east]}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    made = tmp_path / "pair.yaml"
    made.write_text(TOPOLOGY, encoding="utf-8")
    made.chmod(0o640)
    return made


def planned(file: Path, change: SettingsChange) -> SettingsPlan:
    return plan_settings(str(file), load(file), change)


def retention(**sites: str) -> SettingsChange:
    return SettingsChange("orders", sites, {})


def test_the_plan_says_what_follows_at_the_sites(file: Path) -> None:
    change = SettingsChange("orders", {"west": "1d", "east": "2y", "far": "9d"}, {"consume": "u:auditor"}, "urgent")
    plan = planned(file, change)
    text = "\n".join(line.text for line in plan.lines())
    assert "sites.west.retention.orders: 1d (is 3d)" in text
    assert "west: keeps records of orders for 1d instead of 3d; older ones are deleted at the next sweep" in text
    assert "east: keeps records of orders for 2y instead of 3d; what was deleted does not come back" in text
    assert "+ auditor may READ topic orders.*" in text and "- analyst may READ topic orders.*" in text
    assert [each.site for each in plan.access] == ["east", "far"]  # far deletes old records from now on
    assert "no link brings orders to far" not in text  # far may hold logs of its own
    assert "links with a priority of their own for orders keep it: west->east" in text
    assert file.read_text(encoding="utf-8") == TOPOLOGY
    assert plan.identity == planned(file, change).identity


def test_the_step_changes_the_values_and_nothing_else(file: Path) -> None:
    plan = planned(file, SettingsChange("orders", {"east": "2y"}, {"consume": "u:auditor"}, "urgent"))
    asyncio.run(execute(plan.steps, SettingsRun()))
    assert file.read_text(encoding="utf-8") == TOPOLOGY.replace(
        "retention: *short", "retention: {<<: *short, orders: 2y}"
    ).replace('"u:analyst"}\n', '"u:auditor"}\n    priority: urgent\n')
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    again = planned(file, SettingsChange("orders", {"east": "2y"}, {"consume": "u:auditor"}, "urgent"))
    assert again.is_empty and "has these settings already" in again.notes[0]


def test_a_link_to_the_file_stays_a_link(file: Path) -> None:
    link = file.with_name("other.yaml")
    link.symlink_to(file)
    asyncio.run(execute(planned(link, retention(west="1d")).steps, SettingsRun()))
    assert link.is_symlink() and load(link).sites["west"].retention_of("orders").days == 1


def test_a_file_that_changed_meanwhile_is_not_written(file: Path) -> None:
    plan = planned(file, retention(west="1d"))
    file.write_text(TOPOLOGY + "# more\n", encoding="utf-8")
    with pytest.raises(RefusedError, match="has changed since"):
        asyncio.run(execute(plan.steps, SettingsRun()))
    assert file.read_text(encoding="utf-8") == TOPOLOGY + "# more\n"


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (SettingsChange("ordres", {"west": "1d"}, {}), UnknownNameError, "ordres"),
        (retention(wset="1d"), UnknownNameError, "wset"),
        (retention(west="3x"), ConfigurationError, "expected a duration"),
        (SettingsChange("orders", {}, {"read": "p"}), UnknownNameError, "read"),
        (SettingsChange("orders", {}, {"consume": "u:a &"}), TopologyErrors, "streams.orders.permissions.consume"),
        (SettingsChange("orders", {}, {"consume": "u:stranger"}), TopologyErrors, "stranger"),
        (SettingsChange("orders", {}, {}, "first"), UnknownNameError, "first"),
        (SettingsChange("orders", {}, {}), ConfigurationError, "set what"),
    ],
)
def test_what_is_wrong_changes_nothing(file: Path, change: SettingsChange, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        planned(file, change)
    assert file.read_text(encoding="utf-8") == TOPOLOGY


def test_a_shipped_topology_is_refused_with_what_to_do() -> None:
    with pytest.raises(RefusedError) as caught:
        plan_settings("fan-in", load("fan-in"), SettingsChange("metrics", {"paris": "5d"}, {}))
    assert f"cp {shipped()['fan-in']} my-fan-in.yaml" in caught.value.hint


def test_a_value_that_an_override_hides_is_refused(file: Path) -> None:
    file.with_name("pair.local.yaml").write_text("sites: {west: {retention: {orders: 7d}}}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="stays 7d"):
        planned(file, retention(west="1d"))


def test_services_alone_write_a_stream_that_moves(file: Path) -> None:
    text = shipped()["minimal"].read_text(encoding="utf-8").replace("name: minimal", "name: mine")
    file.write_text(text, encoding="utf-8")
    plan = planned(file, SettingsChange("containers", {"duck-star": "9d"}, {"produce": "u:ducks"}))
    assert any("give nobody WRITE" in note for note in plan.notes) and not plan.access


def with_default(file: Path) -> None:
    """Make the file topology minimal, whose sites keep records for three days where nothing else is said."""
    text = shipped()["minimal"].read_text(encoding="utf-8").replace("name: minimal", "name: mine")
    for kept in ("{default: 1y, custody: forever}", "{default: 14d, custody: forever}"):
        text = text.replace(kept, "{default: 3d}")
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("stream", ["custody", "strays"])
def test_a_site_keeps_its_own_ledger_and_strays_until_it_is_told_otherwise(file: Path, stream: str) -> None:
    with_default(file)
    before = "forever for its own, 3d for copies"
    plan = planned(file, SettingsChange(stream, {"tokyo": "10d"}, {}))
    text = "\n".join(line.text for line in plan.lines())
    assert f"sites.tokyo.retention.{stream}: 10d (is {before})" in text
    assert f"tokyo: keeps records of {stream} for 10d instead of {before}; older ones are deleted" in text

    same = planned(file, SettingsChange(stream, {"tokyo": "3d"}, {}))
    assert [each.before for each in same.retention] == [before] and same.retention[0].shorter
    longer = planned(file, SettingsChange(stream, {"tokyo": "forever"}, {}))
    assert not longer.retention[0].shorter and longer.retention[0].before == before

    asyncio.run(execute(plan.steps, SettingsRun()))
    again = planned(file, SettingsChange(stream, {"tokyo": "20d"}, {}))
    assert [(each.before, each.shorter) for each in again.retention] == [("10d", False)]


def test_without_copies_only_its_own_strays_count(file: Path) -> None:
    with_default(file)
    plan = planned(file, SettingsChange("strays", {"duck-star": "3d"}, {}))
    assert [(each.before, each.after, each.shorter) for each in plan.retention] == [("forever", "3d", True)]
    assert planned(file, SettingsChange("strays", {"duck-star": "forever"}, {})).is_empty


def test_the_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["stream", "set", "orders", "--topology", str(file), "--retention", "west=2w"]
    assert cli.run([*arguments, "--dry-run"]) == ExitCode.OK
    assert "sites.west.retention.orders: 14d (is 3d)" in capsys.readouterr().out
    assert file.read_text(encoding="utf-8") == TOPOLOGY
    assert cli.run([*arguments, "--yes", "--json"]) == ExitCode.OK
    body = json.loads(capsys.readouterr().out)
    assert body["applied"] and body["retention"][0] == {
        "site": "west",
        "before": "3d",
        "after": "14d",
        "shorter": False,
    }
    assert load(file).sites["west"].retention_of("orders").days == 14
    assert cli.run(["stream", "set", "orders", "-t", str(file), "--permission", "consume", "--yes"]) == ExitCode.USAGE
    assert "--permission NAME=EXPR" in capsys.readouterr().err
