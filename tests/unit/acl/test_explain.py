"""Explanations name the clause, the link or the feed that decided, and agree with the rules."""

from __future__ import annotations

import pytest

from acl.compile import all_left_out, compile_site
from acl.explain import Answer, explain
from acl.rules import Operation, Resource, allowing
from fairlead.errors import UnknownNameError
from topologies.load import load
from topologies.model import InsertPoint, Permissions, Stream, Topology
from topologies.users import service_users


@pytest.fixture(scope="module")
def big_blue() -> Topology:
    return load("big-blue")


def only(answers: tuple[Answer, ...]) -> Answer:
    (answer,) = answers
    return answer


@pytest.mark.parametrize(
    ("user", "topic", "operation", "site", "allowed", "because"),
    [
        ("ducks", "feeds.ducks", "READ", "ducks-hq", True, "customers.ducks: feed of its own"),
        ("ducks", "feeds.red", "READ", "los-angeles", False, "a customer reads feeds.ducks only"),
        ("ducks", "feeds.ducks", "READ", "tokyo", False, "user ducks does not exist at site tokyo"),
        ("red", "red.REDU1234567", "READ", "singapore", True, "streams.red.permissions.consume: 'u:red | g:analysts'"),
        ("red", "yellow.YELU1", "READ", "singapore", False, "does not include red (u:yellow no, g:analysts no)"),
        ("red", "red.REDU1234567", "WRITE", "singapore", False, "streams.red.permissions.produce is empty: nobody"),
        ("analyst", "reds.X", "READ", "los-angeles", False, "no log of any stream"),
        ("bridge", "alerts.tokyo", "WRITE", "tokyo", True, "site tokyo holds this log of stream alerts"),
        ("bridge", "alerts.tokyo", "WRITE", "sydney", False, "bridge is a service of Fairlead"),
        ("replicator", "alerts.tokyo", "WRITE", "sydney", True, "link tokyo->sydney: brings stream alerts here"),
        ("replicator.ducks-hq", "feeds.ducks", "READ", "tokyo", True, "link tokyo->ducks-hq: takes stream feeds"),
        ("shore", "containers.BIGU1", "READ", "los-angeles", True, "shore: reads stream containers"),
        ("toyshop", "feeds.toyshop", "READ", "tokyo", False, "does not exist at site tokyo"),
        ("admin", "feeds.ducks", "DELETE", "tokyo", True, "super user"),
    ],
)
def test_why_and_why_not(
    big_blue: Topology, user: str, topic: str, operation: str, site: str, allowed: bool, because: str
) -> None:
    answer = only(explain(big_blue, user, topic, Operation(operation), site))
    assert answer.allowed is allowed
    assert any(because in text for text in answer.because), answer.because
    assert bool(answer.rules) is (allowed and user != "admin")


def test_every_answer_agrees_with_the_rules_and_has_a_reason(big_blue: Topology) -> None:
    for site in ("los-angeles", "duck-star", "ducks-hq"):
        rules = compile_site(big_blue, site)
        for user in service_users(big_blue, site):
            for topic in ("feeds.ducks", "red.REDU1", "alerts.tokyo", "custody.duck-star", "nothing"):
                for answer in explain(big_blue, user, topic, site=site):
                    operation = Operation(answer.operation)
                    assert answer.allowed is bool(allowing(rules, user, operation, Resource.TOPIC, topic))
                    assert answer.because and all(answer.because)


def test_unknown_names_come_with_the_nearest(big_blue: Topology) -> None:
    for arguments, meant in ((("duks", "feeds.ducks"), "ducks"), (("ducks", "feeds.ducks", None, "tokio"), "tokyo")):
        with pytest.raises(UnknownNameError) as caught:
            explain(big_blue, *arguments)
        assert meant in caught.value.hint


def test_a_permission_that_cannot_become_a_rule_is_said(big_blue: Topology) -> None:
    stream = Stream(insert_point=InsertPoint.MOVES, permissions=Permissions(produce="g:analysts", consume="g:analysts"))
    topology = big_blue.model_copy(update={"streams": {**big_blue.streams, "red": stream}})
    (left_out,) = all_left_out(topology, "los-angeles")
    assert (left_out.user, left_out.stream, left_out.permission) == ("analyst", "red", "produce")
    answer = only(explain(topology, "analyst", "red.REDU1", Operation.WRITE, "los-angeles"))
    assert not answer.allowed
    assert any("includes analyst, but records and logs of stream red" in text for text in answer.because)
    assert only(explain(topology, "analyst", "red.REDU1", Operation.READ, "los-angeles")).allowed


def test_where_a_site_does_not_hold_the_log_is_said() -> None:
    topology = load("two-way")
    assert only(explain(topology, "producer", "metrics.east.cpu", Operation.WRITE, "east")).allowed
    answer = only(explain(topology, "producer", "metrics.east.cpu", Operation.WRITE, "west"))
    assert not answer.allowed
    assert any("includes producer, but site west does not hold this log" in text for text in answer.because)
