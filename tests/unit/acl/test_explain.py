"""Explanations name the clause, the link or the feed that decided, and agree with the rules."""

from __future__ import annotations

import pytest

from acl.compile import all_left_out, compile_site
from acl.explain import AccessAnswer, explain
from acl.rules import Operation, Resource, allowing
from fairlead.errors import UnknownNameError
from topologies.loader.load import load
from topologies.model import InsertPoint, Permissions, Stream, Topology
from topologies.users import service_users


@pytest.fixture(scope="module")
def big_blue() -> Topology:
    return load("big-blue")


def only(answers: tuple[AccessAnswer, ...]) -> AccessAnswer:
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


def keyed(keys: dict[str, Permissions], consume: str = "") -> Topology:
    """Big Blue with key patterns in stream red."""
    big_blue = load("big-blue")
    stream = Stream(
        insert_point=InsertPoint.MOVES, owners=("REDU",), permissions=Permissions(consume=consume), keys=keys
    )
    return big_blue.model_copy(update={"streams": {**big_blue.streams, "red": stream}})


def test_a_key_pattern_is_named_for_the_logs_that_it_is_about_and_no_others() -> None:
    topology = keyed(
        {
            "REDU123*": Permissions(consume="u:yellow"),
            "REDU9000005": Permissions(consume="u:yellow", produce="u:yellow"),
        },
        consume="u:red",
    )

    def asked(topic: str, operation: Operation = Operation.READ, user: str = "yellow") -> AccessAnswer:
        return only(explain(topology, user, topic, operation, "singapore"))

    lessor = asked("red.REDU1234567")
    assert lessor.allowed
    assert lessor.because == ("streams.red.keys.REDU123*.consume: 'u:yellow'",)
    assert lessor.rules == ("yellow may READ topic red.REDU123*",)
    assert asked("red.REDU9000005").rules == ("yellow may READ topic red.REDU9000005",)
    for near_miss in ("red.REDU9000006", "red.REDU90000055", "red.REDU122", "reds.REDU1234567"):
        assert not asked(near_miss).allowed
    refused = asked("red.REDU8000000").because
    assert any("permissions.consume is 'u:red' and does not include yellow" in text for text in refused)
    assert not any("keys." in text for text in refused)
    others = asked("red.REDU1234567", user="red")
    assert others.because == ("streams.red.permissions.consume: 'u:red'",)
    assert any("produce includes yellow, but records" in t for t in asked("red.REDU9000005", Operation.WRITE).because)
    assert {item.where for item in all_left_out(topology, "singapore")} == {"streams.red.keys.REDU9000005.produce"}


def test_a_clause_about_other_logs_is_no_reason_even_if_its_rule_was_swallowed() -> None:
    topology = keyed({"REDU123*": Permissions(consume="u:red")}, consume="u:red")
    assert only(explain(topology, "red", "red.REDU8000000", Operation.READ, "singapore")).because == (
        "streams.red.permissions.consume: 'u:red'",
    )
    both = only(explain(topology, "red", "red.REDU1234567", Operation.READ, "singapore"))
    assert len(both.because) == 2
    assert both.rules == ("red may READ topic red.*",)
