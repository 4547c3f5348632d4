"""``fairlead link``: plans without ``--yes``, deeds with it, and what each ending says to a shell."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fairlead.cli import app as cli
from fairlead.cli.commands import link
from fairlead.errors import ExitCode
from replication.operations.links.facts import LinkOperation
from replication.overrides import OverrideKind
from tests.support.replication.sites_in_memory import TP, FakeSites
from topologies.loader.load import load

LOG = "orders.europe"
TOPOLOGY = """
name: pair
sites:
  west: {kind: datacentre}
  east: {kind: datacentre}
  far: {kind: datacentre}
streams:
  orders: {}
links:
  - {from: west, to: east, both: true, streams: {orders: all}}
  - {from: west, to: far, streams: {orders: all}, rate: 64 kbit/s, priority: {orders: bulk}, groups: ["a*"]}
"""

GROUPS = {
    "state": "unavailable",
    "cause": "no coordinator",
    "unmatched": ["b*"],
    "groups": {
        "billing": {
            "state": "copied",
            "reason": "1 of 2 logs: begins later",
            "behind": 12,
            "not_plain": {"orders.x": "raised"},
        }
    },
}
"""What a replicator shows of a link's consumer groups (``GroupSync.snapshot``)."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A topology; commands are those of ``fairlead link`` alone."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cli, "app", link.app)
    made = tmp_path / "pair.yaml"
    made.write_text(TOPOLOGY, encoding="utf-8")
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", str(made))
    return made


@pytest.fixture
def ground(file: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSites:
    topology = load(str(file))
    made = FakeSites(topology, {site: {TP(LOG): 20} for site in topology.sites})

    @contextlib.asynccontextmanager
    async def access(*_: Any) -> AsyncIterator[FakeSites]:
        yield made

    monkeypatch.setattr(link, "open_access", access)
    return made


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["pause"], ExitCode.USAGE, "--from and --to"),
        (["pause", "west->esat"], ExitCode.CONFIG, "did you mean 'west->east'"),
        (["pause", "west->east", "--all"], ExitCode.USAGE, "give LINK, or --all"),
        (["pause", "--all", "--topic", "metrics.x"], ExitCode.CONFIG, "no link carries log metrics.x"),
        (["resume", "--from", "wets", "--to", "east"], ExitCode.CONFIG, "did you mean 'west'"),
        (["describe", "--from", "west"], ExitCode.USAGE, "which link"),
        (["promote", "west->east"], ExitCode.USAGE, "--topic TOPIC"),
        (["failover", "west->east", "--topic", LOG, "--stream", "orders"], ExitCode.USAGE, "--stream or --topic"),
        (["promote", "west->east", "--topic", LOG], ExitCode.UNAVAILABLE, "fairlead up"),
        (["describe", "west->east"], ExitCode.UNAVAILABLE, ""),
        (["list"], ExitCode.OK, ""),
        (["resolve"], ExitCode.USAGE, "LOG"),
    ],
)
@pytest.mark.usefixtures("file")
def test_mistakes_and_sites_that_are_not_there(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = arguments[0] not in ("describe", "list")
    assert cli.run([*arguments, *["--yes"] * changes]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb", [each for each in LinkOperation if each not in (LinkOperation.RESUME, LinkOperation.RESTORE)]
)
def test_a_dry_run_tells_the_plan(verb: LinkOperation, ground: FakeSites, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(verb), "west->east", "--topic", LOG, "--dry-run"]
    assert cli.run(arguments) == ExitCode.OK
    told = capsys.readouterr().out
    assert "append to fairlead.orders at east" in told and "Nothing was changed" in told
    assert cli.run([*arguments, "--json"]) == ExitCode.OK
    body = json.loads(capsys.readouterr().out)
    assert (body["applied"], body["verb"], body["logs"]) == (
        False,
        str(verb),
        [] if verb is LinkOperation.PAUSE else [LOG],
    )
    assert ground.history == {}


def test_with_yes_it_is_done(ground: FakeSites, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["failover", "--from", "west", "--to", "east", "--topic", LOG, "--yes", "--reason", "fire"]) == 0
    told = capsys.readouterr().out
    assert "orders.europe ends at 20" in told
    assert "no user of the topology may write orders.europe at east" in told
    (order,) = ground.history["east"]
    assert (order.kind, order.stop, order.reason) == (OverrideKind.FAILOVER, 20, "fire")
    assert order.by
    assert cli.run(["failover", "west->east", "--topic", LOG, "--yes", "--json"]) == ExitCode.OK
    body = json.loads(capsys.readouterr().out)
    assert not body["applied"] and body["steps"] == [] and "already" in body["notes"][0]


def test_a_refusal_has_its_own_exit_code_and_its_reasons(ground: FakeSites, capsys: pytest.CaptureFixture[str]) -> None:
    ground.logs["west"][TP(LOG)] += 1
    assert cli.run(["promote", "west->east", "--topic", LOG, "--yes", "--json", "--wait", "0.1"]) == ExitCode.REFUSED
    error = json.loads(capsys.readouterr().err)
    assert error["fields"]["refused"][0]["log"] == LOG
    assert ground.history == {}


def test_every_link_at_once_as_far_as_sites_answer(ground: FakeSites, capsys: pytest.CaptureFixture[str]) -> None:
    ground.away.add("far")
    assert cli.run(["pause", "--all", "--yes", "--json"]) == ExitCode.UNAVAILABLE
    body = json.loads(capsys.readouterr().out)
    assert body["applied"] and [each["link"] for each in body["away"]] == ["west->far"]
    assert ground.history.keys() == {"east", "west"}
    assert cli.run(["list", "--json"]) == ExitCode.OK
    listed = {each["link"]: each for each in json.loads(capsys.readouterr().out)}
    assert listed["west->east"]["paused"]["kind"] == "pause"
    ground.away.clear()
    assert cli.run(["resume", "--all", "--yes"]) == ExitCode.OK
    assert [order.kind for order in ground.history["west"]] == [OverrideKind.PAUSE, OverrideKind.RESUME]
    assert "far" not in ground.history


def test_the_list_in_a_table(ground: FakeSites, capsys: pytest.CaptureFixture[str]) -> None:
    trouble = {"state": "misplaced", "cause": "c", "since": "s", "link": "west->far", "what_to_do": "w"}
    ground.troubles = {"far": {LOG: trouble}}
    assert cli.run(["pause", "west->far", "--topic", LOG, "--yes"]) == ExitCode.OK
    capsys.readouterr()
    assert cli.run(["list"]) == ExitCode.OK
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "mirroring" in lines["west->east"]
    assert all(word in lines["west->far"] for word in ("64 kbit/s", LOG, "1 misplaced"))


def test_one_link_whole(capsys: pytest.CaptureFixture[str]) -> None:
    order = {"kind": "pause", "at": "2026-03-01T00:00:00Z", "by": "ann", "reason": "storm"}
    trouble = {"state": "diverged", "cause": "two", "since": "then", "what_to_do": "compare them"}
    finding = {
        "end": "source",
        "site": "west",
        "subject": "broker 1",
        "setting": "s",
        "found": "f",
        "needed": "n",
        "why": "because",
        "severity": "breaks-equality",
        "change": "set it",
    }
    policy = {"when": "always", "streams": {"orders": ["a*"]}, "rate": 8000, "priority": {"orders": "bulk"}}
    found: dict[str, Any] = {
        "link": "west->east",
        "to": "east",
        "state": "mirroring",
        "cause": "",
        "policy": {**policy, "start": "latest", "groups": ["g*"]},
        "logs": 1234,
        "followed": 3,
        "lag": None,
        "source": {"site": "west", "reachable": True, "user": "replicator.east", "milliseconds": 1.5, "error": None},
        "target": {"site": "east", "reachable": False, "user": None, "milliseconds": None, "error": "no [answer]"},
        "orders_error": "not now",
        "paused": order,
        "parts_paused": [{**order, "stream": "orders"}],
        "released_logs": {"orders.x": {"verb": "promote", "by": "bob", "since": "now", "end": 7}},
        "logs_in_trouble": {"orders.y": trouble},
        "checks": [finding],
        "checks_error": None,
    }
    link.show_one(found, Console(width=200))
    told = capsys.readouterr().out
    for words in ("1,234, 3 followed, lag -", "no [answer]", "storm", "bob at now, end 7", "compare them", "set it"):
        assert words in told
    link.show_one({**found, "checks": None, "checks_error": "away"}, Console(width=200))
    assert "the ends were not checked: away" in capsys.readouterr().out
    berthed = {**found, "policy": {**found["policy"], "when": "berthed"}, "berth": "position 1.2 km from Singapore"}
    link.show_one(berthed, Console(width=200))
    assert "berthed: position 1.2 km from Singapore" in capsys.readouterr().out
    listed: dict[str, Any] = {**berthed, "in_trouble": {}, "paused": None, "parts_paused": [], "orders_error": None}
    for state, is_said in (("mirroring", True), ("closed", False)):
        link.show_list([{**listed, "state": state}], Console(width=200))
        assert ("position 1.2 km" in capsys.readouterr().out) is is_said
    assert "behind: 12" not in told
    link.show_one({**found, "consumer_groups": GROUPS}, Console(width=200))
    told = capsys.readouterr().out
    for words in ("billing: copied, behind: 12: 1 of 2 logs: begins later", "orders.x: raised", "b*: no such group"):
        assert words in told
    assert "its consumer groups are unavailable: no coordinator" in told
    other = {"state": "elsewhere", "cause": "", "unmatched": [], "groups": {}}
    link.show_one({**found, "consumer_groups": other}, Console(width=200))
    assert "a replicator on another machine copies its consumer groups" in capsys.readouterr().out
