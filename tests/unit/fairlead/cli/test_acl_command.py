"""``fairlead acl``: what becomes of the other sites when one of them is away."""

from __future__ import annotations

import datetime as dt
import json
from functools import partial
from pathlib import Path

import pytest

from acl.apply import until_done
from acl.audit import LogReaders, ReaderKind, ReadVerdict, TopicReader
from acl.compile import compile_site
from acl.history import LEAKED, UNTIL, UserChange, stamp
from acl.rules import Binding
from fairlead.cli import app as cli
from fairlead.cli.commands.acl import app as acl
from fairlead.cli.commands.acl import audit
from fairlead.errors import ExitCode, UnavailableError
from tests.support.acl.stores_in_memory import MemoryStore, opened
from topologies.endpoints import EndpointResolver
from topologies.loader.load import load
from topologies.model import Topology

TOPOLOGY = """
name: pair
sites:
  far: {kind: datacentre, kafka: {bootstrap: "far.example:9093"}}
  west: {kind: datacentre, kafka: {bootstrap: "west.example:9093"}}
streams:
  orders: {permissions: {consume: "u:analyst"}}
links:
  - {from: west, to: far, streams: {orders: all}}
users:
  analyst: {at: [west]}
"""


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryStore]:
    """The rules of two clusters that Fairlead did not start."""
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    file = tmp_path / "pair.yaml"
    file.write_text(TOPOLOGY, encoding="utf-8")
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", str(file))
    made = {site: MemoryStore() for site in load(str(file)).sites}
    monkeypatch.setattr(acl, "admin_stores", lambda _: opened(made))
    return made


def test_a_site_that_is_away_keeps_no_other_from_its_users_and_rules(
    stores: dict[str, MemoryStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    away = ["far", "far"]  # far answers at the third time

    def create(topology: Topology, resolver: EndpointResolver, site: str) -> tuple[str, ...]:
        if site in away:
            away.remove(site)
            raise UnavailableError(f"{site} does not answer")
        return (f"{site}-user",)

    monkeypatch.setattr(acl, "create_missing", create)
    monkeypatch.setattr(acl, "until_done", partial(until_done, pause=0.001))
    apply = ["acl", "apply", "--create-users", "--yes", "--json"]
    assert cli.run(apply) == ExitCode.UNAVAILABLE
    far, west = json.loads(capsys.readouterr().out)
    assert (far["error"], far["users_created"], far["added"]) == ("far does not answer", [], 0)
    assert (west["error"], west["users_created"]) == (None, ["west-user"])
    wanted = {Binding.of(rule) for rule in compile_site(load(str(tmp_path / "pair.yaml")), "west")}
    assert stores["west"].bindings == wanted and not stores["far"].bindings

    assert cli.run([*apply, "--wait", "60"]) == ExitCode.OK
    far, west = json.loads(capsys.readouterr().out)
    assert far["users_created"] == ["far-user"] and stores["far"].bindings


def test_a_user_whose_suspension_has_run_out_gets_its_rules_and_it_is_said_that_it_is_not_suspended(
    stores: dict[str, MemoryStore], capsys: pytest.CaptureFixture[str]
) -> None:
    over = dt.datetime.now(dt.UTC).isoformat()
    leak = UserChange(**stamp("pair", "west"), user="analyst", action="rotate", detail={**LEAKED, UNTIL: over})
    stores["west"].entries.append(leak)
    readmit = ["acl", "apply", "--readmit", "analyst"]
    assert cli.run([*readmit, "--dry-run"]) == ExitCode.OK
    said = capsys.readouterr()
    assert "nothing to readmit for analyst; suspended: nobody" in said.err and "analyst" in said.out
    for _ in range(2):
        assert cli.run([*readmit, "--yes"]) == ExitCode.OK
        assert "nothing to readmit for analyst; suspended: nobody" in capsys.readouterr().err
        assert any(one.user == "analyst" for one in stores["west"].bindings)


def test_one_of_two_users_to_readmit_is_not_suspended(
    stores: dict[str, MemoryStore], capsys: pytest.CaptureFixture[str]
) -> None:
    leak = UserChange(**stamp("pair", "west"), user="analyst", action="rotate", detail=LEAKED)
    stores["west"].entries.append(leak)
    assert cli.run(["acl", "apply", "--yes", "--readmit", "analyst", "--readmit", "ana"]) == ExitCode.OK
    assert "nothing to readmit for ana; suspended: analyst" in capsys.readouterr().err
    assert any(one.user == "analyst" for one in stores["west"].bindings)


@pytest.mark.usefixtures("narrow")
def test_users_and_reasons_of_an_audit_are_whole_at_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    from shore.report.entitled import ContainerFeeds

    user, reason = "replicator-of-los-angeles", "link-" + "from-tokyo-to-los-angeles" * 2
    reader = TopicReader(user, ReaderKind.SERVICE, ReadVerdict.EXTRA, True, True, because=(reason,))
    readers = LogReaders("containers.BIGU1000010", "los-angeles", (reader,))
    audit._show("BIGU1000010", readers.log, (readers,), (), ContainerFeeds((), ()))  # noqa: SLF001
    told = capsys.readouterr().out
    assert user in told
    assert "\N{HORIZONTAL ELLIPSIS}" not in told


def test_a_topic_with_brackets_is_explained_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Rich takes brackets in text for a style, and ``[/`` for a mistake."""
    assert cli.run(["acl", "explain", "consumer", "orders.[/x]", "--topology", "two-way"]) == ExitCode.OK
    assert "consumer may READ orders.[/x] at east, west" in " ".join(capsys.readouterr().out.split())
