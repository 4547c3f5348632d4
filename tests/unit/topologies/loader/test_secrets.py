"""Passwords may stand in the local override file, and show nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import ConfigurationError
from fairlead.local.sites import LocalSites
from topologies.context import open_topology
from topologies.endpoints import EndpointResolver
from topologies.loader.load import load
from topologies.loader.mistakes import TopologyErrors

TOPOLOGY = """
name: far
sites:
  a: {kind: datacentre, kafka: {bootstrap: 'kafka.example:9093'}}
"""
HUSH = "hunter2-hunter2"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "far.yaml"
    path.write_text(TOPOLOGY)
    return path


def local(file: Path, text: str) -> None:
    (file.parent / "far.local.yaml").write_text(text)


def test_a_password_from_the_local_file(file: Path, tmp_path: Path) -> None:
    local(file, f"secrets:\n  a: {{replicator: {HUSH}}}\n")
    topology = load(file, env={})
    resolver = EndpointResolver(topology, LocalSites(tmp_path), env={})
    endpoint = resolver.kafka("a", "replicator")
    assert endpoint.password is not None
    assert endpoint.password.get_secret_value() == HUSH
    for shown in (repr(topology), str(topology.model_dump()), topology.model_dump_json(), repr(endpoint)):
        assert HUSH not in shown


def test_the_environment_wins(file: Path, tmp_path: Path) -> None:
    local(file, f"secrets:\n  a: {{replicator: {HUSH}}}\n")
    resolver = EndpointResolver(load(file, env={}), LocalSites(tmp_path), env={"FAIRLEAD_SECRET_A_REPLICATOR": "other"})
    password = resolver.kafka("a", "replicator").password
    assert password is not None
    assert password.get_secret_value() == "other"


def test_a_missing_password_says_where_it_may_stand(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"far\.local\.yaml") as caught:
        EndpointResolver(load(file, env={}), LocalSites(tmp_path), env={}).kafka("a", "bridge")
    assert "FAIRLEAD_SECRET_A_BRIDGE" in str(caught.value)


def test_a_missing_password_names_the_override_file_of_the_file_that_was_opened(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    renamed = file.rename(tmp_path / "fleet.yaml")
    with pytest.raises(ConfigurationError) as caught:
        open_topology(str(renamed)).resolver.kafka("a", "bridge")
    assert " fleet.local.yaml" in caught.value.hint


def test_an_address_for_a_login_with_somebodys_own_password_needs_none(file: Path, tmp_path: Path) -> None:
    endpoint = EndpointResolver(load(file, env={}), LocalSites(tmp_path), env={}).anybodys_kafka("a")
    assert (endpoint.bootstrap, endpoint.tls) == ((("kafka.example", 9093),), True)
    assert endpoint.user is None
    assert endpoint.password is None


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (f"secrets:\n  b: {{bridge: {HUSH}}}\n", 2, "no such site"),
        (f"secrets:\n  a: {HUSH}\n", 2, "not a mapping of users"),
        (f"secrets: [{HUSH}]\n", 1, "not a mapping of sites"),
        (f"secrets:\n  a:\n    bridge: 12345\n    other: {HUSH}\n", 3, "not a text"),
        (f"secrets:\n  a: {{bridge: {HUSH}\n", 3, "not YAML"),
        (f"sites:\n  x: {{}}\nsecrets:\n  a: {{bridge: {HUSH}}}\n", 2, "no such site"),
    ],
)
def test_mistakes_have_their_line_and_no_password(file: Path, text: str, line: int, what: str) -> None:
    local(file, text)
    with pytest.raises(TopologyErrors) as caught:
        load(file, env={})
    mistakes = caught.value.mistakes
    assert [(one.line, what in one.problem) for one in mistakes] == [(line, True)]
    assert HUSH not in str(caught.value) + repr(mistakes) + str(caught.value.fields)


def test_a_topology_itself_may_not_have_them(tmp_path: Path) -> None:
    path = tmp_path / "far.yaml"
    path.write_text(TOPOLOGY + f"secrets:\n  a: {{bridge: {HUSH}}}\n")
    with pytest.raises(TopologyErrors) as caught:
        load(path, env={})
    assert "secret" in str(caught.value)
    assert HUSH not in str(caught.value) + str(caught.value.fields)


def test_a_password_from_a_file_as_containers_have_it(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "a.replicator").write_text(HUSH + "\n")
    resolver = EndpointResolver(load(file, env={}), LocalSites(tmp_path), env={"FAIRLEAD_SECRETS": str(folder)})
    endpoint = resolver.kafka("a", "replicator")
    assert endpoint.password is not None
    assert endpoint.password.get_secret_value() == HUSH
    assert endpoint.other_passwords == ()
    (folder / "a.replicator.next").write_text("the-next-one")
    assert [other.get_secret_value() for other in resolver.kafka("a", "replicator").other_passwords] == ["the-next-one"]
    (folder / "a.replicator").write_text("another")  # told while it runs
    changed = resolver.kafka("a", "replicator").password
    assert changed is not None
    assert changed.get_secret_value() == "another"


def test_a_file_that_is_no_text_does_not_show(file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.replicator").write_bytes(b"\xff\xfe" + HUSH.encode())
    resolver = EndpointResolver(load(file, env={}), LocalSites(tmp_path), env={"FAIRLEAD_SECRETS": str(tmp_path)})
    with pytest.raises(ConfigurationError, match="cannot be read") as caught:
        resolver.kafka("a", "replicator")
    assert HUSH not in repr(caught.value) + str(caught.value)
