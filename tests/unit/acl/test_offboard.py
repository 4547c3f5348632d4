"""What is found and removed of a departed user where the administrator may do less than everything."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from acl import users
from acl.kafka import NotAuthorised
from acl.rules import Binding
from acl.users import check_complete, look, take_off
from fairlead.cli import app as cli
from fairlead.errors import ExitCode
from fairlead.local.sites import LocalSites
from tests.support.acl.stores_in_memory import MemoryStore, rule
from topologies.context import open_topology

RULE, OTHER = Binding.of(rule("gone", "feeds.gone")), Binding.of(rule("ducks"))


class NoQuotas(MemoryStore):
    """A cluster whose administrator may not read quotas."""

    def read_quotas(self) -> dict[str, dict[str, float]]:
        raise NotAuthorised("user 'admin' may not read client quotas at site tokyo")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NoQuotas:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    made = NoQuotas([RULE, OTHER])
    monkeypatch.setattr("topologies.endpoints.EndpointResolver.kafka", lambda *_: None)
    monkeypatch.setattr(users, "Client", nullcontext)
    monkeypatch.setattr(users, "AdminStore", lambda _client, **_: made)
    monkeypatch.setattr(users, "existing", lambda *_: set())
    monkeypatch.setattr(LocalSites, "forget_user", lambda *_: None)
    return made


def test_a_user_is_removed_where_quotas_cannot_be_read(store: NoQuotas) -> None:
    context = open_topology("minimal")
    found = look(context.resolver, "gone", ["tokyo"])
    assert [(one.error, one.rules, one.quotas) for one in found] == [(None, (RULE,), ())]
    assert found[0].unread == "user 'admin' may not read client quotas at site tokyo"
    left = take_off(context.topology, context.resolver, LocalSites(context.folder), "gone", found)
    check_complete(left)
    assert left[0].is_empty and store.bindings == {OTHER}


def test_the_command_says_that_quotas_could_not_be_read(store: NoQuotas, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["acl", "offboard", "gone", "--dry-run", "--topology", "minimal", "--site", "tokyo"]
    assert cli.run(command) == ExitCode.OK
    assert "tokyo: quotas not looked at: user 'admin' may not read client quotas" in capsys.readouterr().out
    assert cli.run([*command, "--json"]) == ExitCode.OK
    assert '"quotas": null' in capsys.readouterr().out
