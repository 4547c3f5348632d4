"""Whose feeds have a container's records, where nobody knows the bookings."""

from __future__ import annotations

from pathlib import Path

from fairlead.commands.aclauditfeeds import Entitled, feeds_of
from fairlead.commands.context import Context
from fairlead.local.directory import KnownSites
from topologies.directory import Directory
from topologies.load import load
from topologies.model import Customer, Topology


def asked(topology: Topology, folder: Path) -> Context:
    local = KnownSites(folder)
    return Context("audit", topology, folder, local, Directory(topology, local))


def test_a_port_authority_needs_no_booking(tmp_path: Path) -> None:
    harbour = Customer(feed_at="los-angeles", feed="movements", port="SGSIN")
    nowhere = harbour.model_copy(update={"feed_at": None})
    big_blue = load("big-blue")
    customers = {"ducks": big_blue.customers["ducks"], "harbour": harbour, "nowhere": nowhere}
    topology = big_blue.model_copy(update={"customers": customers})
    found = feeds_of(asked(topology, tmp_path), "BIGU1000010")
    assert found.entitled == (Entitled("harbour", "movements", "los-angeles", None, None),)
    assert found.bookings == () and "nobody here knows the bookings" in found.unknown


def test_a_topology_without_shore_has_no_feeds(tmp_path: Path) -> None:
    topology = load("big-blue").model_copy(update={"shore": None, "customers": {}})
    found = feeds_of(asked(topology, tmp_path), "BIGU1000010")
    assert found.entitled == ()
    assert found.bookings == ()
    assert "does not say where shore runs" in found.unknown
