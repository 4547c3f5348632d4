"""The probe's own reading of a topology says what the compiled rules give a customer, and shares no code with them."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from acl.compile import compile_site
from acl.probe import entitlement, entitles, sites_of
from acl.rules import Operation, Resource, allowing
from fairlead.names import parse_log
from tests.support.examples import examples
from tests.unit.acl.worlds import TOPICS, can_be_here, feed_readable, topologies
from topologies.loader.load import load
from topologies.model import Permissions, Topology


@given(topologies())
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_the_probe_takes_for_entitled_is_what_the_rules_allow(topology: Topology) -> None:
    for customer in topology.customers:
        entitled = entitlement(topology, customer)
        for site in sites_of(topology, customer):
            rules = compile_site(topology, site)
            for topic in TOPICS:
                readable = bool(allowing(rules, customer, Operation.READ, Resource.TOPIC, topic))
                log = parse_log(topic)
                if log is None or log.stream not in topology.streams:
                    assert not readable
                elif topic == f"feeds.{customer}" and feed_readable(topology, customer, site):
                    assert readable and entitles(entitled, topic)
                elif can_be_here(topology, log.stream, site) and topic != f"feeds.{customer}":
                    assert readable == entitles(entitled, topic), (site, topic)


def test_of_big_blue() -> None:
    big_blue = load("big-blue")
    assert entitlement(big_blue, "ducks") == ("feeds.ducks",)
    assert "yellow." in entitlement(big_blue, "yellow")
    red = big_blue.streams["red"].model_copy(update={"keys": {"REDU1*": Permissions(copy_="u:ducks")}})
    topology = big_blue.model_copy(update={"streams": {**big_blue.streams, "red": red}})
    entitled = entitlement(topology, "ducks")
    assert entitled == ("feeds.ducks", "red.REDU1*")
    assert [entitles(entitled, t) for t in ("feeds.ducks", "feeds.ducks2", "red.REDU12", "red.REDU2")] == [
        True, False, True, False,
    ]  # fmt: skip
