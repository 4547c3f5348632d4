"""Which sites keep a log longer than another, and whether what they confirm reaches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fairlead.names import LogName
from topologies.loader.load import load, shipped
from topologies.model import Topology
from topologies.retention import NOBODY, KeeperGraph, Unheard

FLEET = frozenset({"los-angeles", "tokyo", "singapore", "sydney"})


def of(retention: Mapping[str, str | None], links: Sequence[Mapping[str, Any]]) -> Topology:
    """Return a topology with these sites (None: kept for ever) and links."""
    sites = {
        name: {"kind": "datacentre"} | ({"retention": {"default": kept}} if kept else {})
        for name, kept in retention.items()
    }
    streams: dict[str, Any] = {"metrics": {}, "ends": {}}
    return Topology.model_validate({"name": "of", "sites": sites, "streams": streams, "links": links})


def test_an_edge_waits_for_the_centre_and_the_centre_for_nobody() -> None:
    graph = KeeperGraph(load("fan-in"))
    log = LogName("metrics", "new-york.cpu")
    assert graph.keepers("new-york", log).wanted(None) == {"london"}
    assert graph.keepers("london", log) == NOBODY
    assert graph.confirmed_streams("london") == {"metrics"}
    assert graph.confirmed_streams("new-york") == frozenset()


def test_a_ship_waits_for_every_site_ashore_and_a_port_for_headquarters() -> None:
    """Other ships keep a log no longer, and headquarters keeps everything for ever."""
    graph = KeeperGraph(load("big-blue"))
    for name in ("containers.BIGU1000010", "alerts.duck-star", "ships.9074729.location"):
        stream, _, key = name.partition(".")
        assert graph.keepers("duck-star", LogName(stream, key)).wanted(None) == FLEET
    assert graph.keepers("tokyo", LogName("containers", "BIGU1000010")).wanted("duck-star") == {"los-angeles"}
    assert graph.keepers("los-angeles", LogName("containers", "BIGU1000010")) == NOBODY


def test_a_ship_does_not_wait_for_copies_that_it_may_not_give() -> None:
    """A copy of a port's alerts goes no further from a ship, so nobody gets it from there."""
    assert KeeperGraph(load("big-blue")).keepers("duck-star", LogName("alerts", "tokyo")) == NOBODY


def test_a_site_further_on_counts_also_behind_one_that_keeps_no_more() -> None:
    links = [
        {"from": "edge", "to": "hub", "streams": {"metrics": "all"}},
        {"from": "hub", "to": "archive", "streams": {"metrics": ["edge.*"]}},
        {"from": "archive", "to": "hub", "streams": {"ends": "all"}},
    ]
    topology = of({"edge": "3d", "hub": "1d", "archive": None}, links)
    graph = KeeperGraph(topology)
    assert graph.keepers("edge", LogName("metrics", "edge.cpu")).wanted(None) == {"archive"}
    assert graph.keepers("edge", LogName("metrics", "hub.cpu")) == NOBODY  # no link carries it on
    assert graph.unheard() == (Unheard("edge", "metrics", "archive"),)  # what it confirms ends at the hub
    assert graph.awaited("edge") == {"archive"}


def test_equal_retention_waits_for_nobody() -> None:
    assert KeeperGraph(load("two-way")).keepers("east", LogName("metrics", "east.cpu")) == NOBODY


def test_a_ship_that_keeps_boxes_longer_counts_while_it_holds_them() -> None:
    """A link ``aboard`` brings a log to a ship only with its box."""
    topology = load("minimal")
    ship = topology.sites["duck-star"].model_copy(update={"retention": {}})
    topology = topology.model_copy(update={"sites": {**topology.sites, "duck-star": ship}})
    keepers = KeeperGraph(topology).keepers("tokyo", LogName("containers", "BIGU1000010"))
    assert keepers.wanted("duck-star") == {"duck-star"}
    assert keepers.wanted("tokyo") == frozenset()


@pytest.mark.parametrize("name", shipped())
def test_no_shipped_topology_has_a_site_that_waits_for_ever(name: str) -> None:
    assert KeeperGraph(load(name, env={})).unheard() == ()


def test_a_ship_and_a_customer_confirm_for_themselves_only() -> None:
    """A thief of a ship's passwords confirms nothing for another site."""
    topology = load("big-blue")
    assert topology.gives("duck-star", LogName("ends", "duck-star"))
    assert not topology.gives("duck-star", LogName("ends", "los-angeles"))
    assert topology.gives("ducks-hq", LogName("ends", "ducks-hq"))
    assert not topology.gives("ducks-hq", LogName("ends", "los-angeles"))
    assert topology.gives("tokyo", LogName("ends", "los-angeles"))
