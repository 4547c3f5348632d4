"""Who can read a log, by the topology and by what a cluster holds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl.audit import ReaderKind, ReadVerdict, TopicReader, readers
from acl.compile import compile_site
from acl.explain import explain
from acl.rules import Binding, Operation
from tests.unit.acl import worlds
from topologies.model import Customer, InsertPoint, Permissions, Shore, Site, SiteKind, Stream, Topology, User

LOG = "red.REDU1234567"
TOPOLOGY = Topology(
    name="audit",
    sites={"port": Site(kind=SiteKind.PORT), "hq": Site(kind=SiteKind.HQ)},
    streams={
        "red": Stream(insert_point=InsertPoint.MOVES, owners=("REDU",), permissions=Permissions(consume="u:red")),
        "feeds": Stream(insert_point=InsertPoint.SHORE),
    },
    customers={"red": Customer(reads_at=("port",)), "ducks": Customer(feed_at="port")},
    users={"clerk": User(at=("port",))},
    shore=Shore(at="port"),
)


def held(*more: Binding) -> frozenset[Binding]:
    return frozenset({*map(Binding.of, compile_site(TOPOLOGY, "port")), *more})


def by_user(found: Iterable[TopicReader]) -> dict[str, TopicReader]:
    return {reader.user: reader for reader in found}


def test_a_cluster_as_the_topology_says() -> None:
    found = by_user(readers(TOPOLOGY, "port", LOG, held()))
    assert {name: one.kind for name, one in found.items()} == {
        "bridge": ReaderKind.SERVICE,
        "shore": ReaderKind.SERVICE,
        "red": ReaderKind.CUSTOMER,
        "admin": ReaderKind.ADMIN,
    }
    assert {one.verdict for one in found.values()} == {ReadVerdict.AGREED}
    assert found["red"].because == ("streams.red.permissions.consume: 'u:red'",)
    assert found["red"].held == found["red"].rules == ("red may READ topic red.*",)


@pytest.mark.parametrize(
    ("principal", "user", "kind"),
    [
        ("User:mallory", "mallory", ReaderKind.UNKNOWN),
        ("User:ducks", "ducks", ReaderKind.CUSTOMER),
        ("User:clerk", "clerk", ReaderKind.USER),
        ("User:*", "*", ReaderKind.EVERYBODY),
        ("Group:sales", "Group:sales", ReaderKind.UNKNOWN),
        ("User:a:b", "a:b", ReaderKind.UNKNOWN),
    ],
)
@pytest.mark.parametrize(
    ("pattern", "name", "operation"),
    [("LITERAL", LOG, "READ"), ("PREFIXED", "re", "READ"), ("LITERAL", "*", "ALL"), ("PREFIXED", "red.", "ALL")],
)
def test_somebody_whom_the_topology_does_not_let(
    principal: str, user: str, kind: ReaderKind, pattern: str, name: str, operation: str
) -> None:
    extra = Binding(principal, "TOPIC", pattern, name, operation)
    found = by_user(readers(TOPOLOGY, "port", LOG, held(extra)))[user]
    assert (found.kind, found.verdict, found.because, found.held) == (kind, ReadVerdict.EXTRA, (), (str(extra),))
    denied = Binding("User:*", "TOPIC", "PREFIXED", "r", "READ", "DENY")
    assert user not in by_user(readers(TOPOLOGY, "port", LOG, held(extra, denied)))


def test_a_rule_for_everybody_lets_every_user_that_exists_read() -> None:
    found = by_user(readers(TOPOLOGY, "port", LOG, held(Binding("User:*", "TOPIC", "LITERAL", "*", "READ"))))
    assert {name for name, one in found.items() if one.verdict is ReadVerdict.EXTRA} == {"ducks", "clerk", "*"}


def test_a_rule_that_is_missing_denied_or_for_some_hosts() -> None:
    mine = Binding.of(next(rule for rule in compile_site(TOPOLOGY, "port") if str(rule) == "red may READ topic red.*"))
    gone = by_user(readers(TOPOLOGY, "port", LOG, held() - {mine}))["red"]
    assert (gone.verdict, gone.by_topology, gone.by_cluster) == (ReadVerdict.MISSING, True, False)
    denial = Binding("User:red", "TOPIC", "LITERAL", LOG, "ALL", "DENY")
    denied = by_user(readers(TOPOLOGY, "port", LOG, held(denial)))["red"]
    assert (denied.verdict, denied.against) == (ReadVerdict.MISSING, (str(denial),))
    some = Binding("User:red", "TOPIC", "LITERAL", LOG, "READ", "DENY", "10.1.1.1")
    partly = by_user(readers(TOPOLOGY, "port", LOG, held(some)))["red"]
    assert (partly.verdict, partly.anywhere, partly.hosts) == (ReadVerdict.PARTLY, True, ("10.1.1.1",))


def test_a_cluster_that_is_away_is_unchecked() -> None:
    found = readers(TOPOLOGY, "port", LOG, None)
    assert {one.verdict for one in found} == {ReadVerdict.UNCHECKED}
    assert {one.by_cluster for one in found} == {None}
    assert "red" in by_user(found)


@given(worlds.topologies(), st.sampled_from(worlds.TOPICS))
def test_the_topologys_answer_is_that_of_explain(topology: Topology, topic: str) -> None:
    for site in topology.sites:
        found = readers(topology, site, topic, frozenset(map(Binding.of, compile_site(topology, site))))
        assert {one.verdict for one in found} == {ReadVerdict.AGREED}
        users = [name for name in (*worlds.PEOPLE, "bridge", "replicator", "shore") if name in _known(topology)]
        may = {
            user for user in users for answer in explain(topology, user, topic, Operation.READ, site) if answer.allowed
        }
        assert {one.user for one in found} & set(users) == may


def _known(topology: Topology) -> set[str]:
    from topologies.users import service_users

    return {name for site in topology.sites for name in service_users(topology, site)}
