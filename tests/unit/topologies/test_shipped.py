"""The topologies that come with Fairlead: they load, and they mean what the documentation says."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from fairlead.errors import ConfigurationError, UnknownNameError
from topologies.load import load, shipped
from topologies.mistakes import TopologyErrors
from topologies.model import InsertPoint, Link, SiteKind, Topology
from topologies.values import FOREVER

DAY = dt.timedelta(days=1)
EVERYWHERE = {"custody", "alerts", "events", "ships"}


@pytest.fixture(scope="module")
def big_blue() -> Topology:
    return load("big-blue", env={})


def _link(topology: Topology, name: str) -> Link:
    return next(link for link in topology.directed_links() if link.name == name)


def test_five_come_along() -> None:
    assert sorted(shipped()) == ["big-blue", "chain", "fan-in", "minimal", "two-way"]


@pytest.mark.parametrize("name", sorted(shipped()))
def test_each_loads_under_its_own_name(name: str) -> None:
    topology = load(name, env={})
    assert topology.name == name
    names = [link.name for link in topology.directed_links()]
    assert len(names) == len(set(names)), "a link's name names one link"


def test_big_blues_sites(big_blue: Topology) -> None:
    assert {name: (site.kind, site.unlocode or site.imo) for name, site in big_blue.sites.items()} == {
        "los-angeles": (SiteKind.HQ, "USLAX"),
        "tokyo": (SiteKind.PORT, "JPTYO"),
        "singapore": (SiteKind.PORT, "SGSIN"),
        "sydney": (SiteKind.PORT, "AUSYD"),
        "duck-star": (SiteKind.SHIP, "9074729"),
        "blue-marlin": (SiteKind.SHIP, "9321483"),
        "ducks-hq": (SiteKind.CUSTOMER, None),
    }
    assert big_blue.shore is not None and big_blue.shore.at == "los-angeles"


def test_big_blues_retention(big_blue: Topology) -> None:
    kept = {name: site.retention_of("containers") for name, site in big_blue.sites.items()}
    assert kept["los-angeles"] == FOREVER
    assert {kept[port] for port in ("tokyo", "singapore", "sydney")} == {365 * DAY}
    assert all(DAY <= kept[ship] <= 60 * DAY for ship in ("duck-star", "blue-marlin"))
    assert {site.retention_of("custody") for site in big_blue.sites.values()} == {FOREVER}, "the ledger is never cut"


def test_big_blues_streams(big_blue: Topology) -> None:
    moving = {n: s.owners for n, s in big_blue.streams.items() if s.insert_point is InsertPoint.MOVES}
    assert moving == {"containers": ("BIGU",), "yellow": ("YELU",), "red": ("REDU",)}
    assert big_blue.container_stream("YELU1234567") == "yellow"
    assert big_blue.streams["ships"].insert_point is InsertPoint.SHIP, "a default stream keeps what is not mentioned"
    assert big_blue.streams["alerts"].priority == "urgent"


def test_big_blues_links_on_land(big_blue: Topology) -> None:
    land = ("los-angeles", "tokyo", "singapore", "sydney")
    for a in land:
        for b in land:
            if a != b:
                link = _link(big_blue, f"{a}->{b}")
                assert set(big_blue.streams) - {"feeds"} <= set(link.streams)
                assert link.rate is None
    feeding = {link.name for link in big_blue.directed_links() if "feeds" in link.streams}
    assert feeding == {"los-angeles->tokyo", "tokyo->ducks-hq"}, "feeds go where they are read, nowhere else"
    assert _link(big_blue, "tokyo->ducks-hq").streams == {"feeds": ("ducks",)}


@pytest.mark.parametrize("ship", ["duck-star", "blue-marlin"])
def test_big_blues_links_of_ships(big_blue: Topology, ship: str) -> None:
    for name in (f"{ship}->los-angeles", f"los-angeles->{ship}"):
        satellite = _link(big_blue, name)
        assert set(satellite.streams) == EVERYWHERE
        assert satellite.rate == 8000, "64 kbit/s"
    boxes = {"containers", "yellow", "red"}
    for port in ("tokyo", "singapore", "sydney"):
        ashore, on_board = _link(big_blue, f"{ship}->{port}:berthed"), _link(big_blue, f"{port}->{ship}:berthed")
        assert set(ashore.streams) == EVERYWHERE | boxes | {"strays", "deadletters"}
        assert set(ashore.streams.values()) == {"all"}
        assert set(on_board.streams) == EVERYWHERE | boxes | {"bookings"}  # the watch goes by them
        assert {on_board.streams[box] for box in boxes} == {"aboard"}


def test_big_blues_customers(big_blue: Topology) -> None:
    where = {name: (customer.feed_at, customer.reads_at) for name, customer in big_blue.customers.items()}
    assert where == {
        "ducks": ("los-angeles", ("ducks-hq",)),
        "yellow": (None, ("singapore",)),
        "red": (None, ("singapore",)),
        "toyshop": ("los-angeles", ()),
        "singapore-mpa": ("los-angeles", ()),
    }
    assert {name: customer.feed for name, customer in big_blue.customers.items() if customer.feed_at} == {
        "ducks": "detailed",
        "toyshop": "coarse",
        "singapore-mpa": "movements",
    }
    assert big_blue.customers["singapore-mpa"].port == big_blue.sites["singapore"].unlocode


def test_the_three_patterns() -> None:
    two_way, chain, fan_in = (load(name, env={}) for name in ("two-way", "chain", "fan-in"))
    assert {(link.from_, link.to) for link in two_way.directed_links()} == {("east", "west"), ("west", "east")}
    assert two_way.fixed_holder("metrics.west.cpu") == "west"
    assert {(link.from_, link.to) for link in chain.directed_links()} == {
        ("san-francisco", "singapore"),
        ("singapore", "san-francisco"),
        ("singapore", "sydney"),
        ("sydney", "singapore"),
    }
    # Transit: what Singapore passes on to Sydney is not only its own.
    assert _link(chain, "singapore->sydney").streams == {"metrics": "all"}
    assert {(link.from_, link.to) for link in fan_in.directed_links()} == {("new-york", "london"), ("paris", "london")}
    kept = {name: site.retention_of("metrics") for name, site in fan_in.sites.items()}
    assert kept["london"] > 100 * max(kept["new-york"], kept["paris"])
    assert not set(chain.streams) & EVERYWHERE, "no streams of shipping where nothing is shipped"


def test_a_name_that_is_none_has_a_nearest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load("bigblue", env={})
    assert caught.value.fields["nearest"] == "big-blue"


def test_only_topologies_of_the_folder_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.yaml", "other.yml", "mine.local.yaml"):
        (tmp_path / name).write_text("name: mine\nsites:\n  tokyo: {kind: prot}\n", encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nextra: {sites: 3}\n", encoding="utf-8")
    (tmp_path / "latin.yaml").write_bytes("title: Käse\n".encode("latin-1"))
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(UnknownNameError) as caught:
        load("mien", env={})
    assert caught.value.fields["valid"] == sorted([*shipped(), "mine.yaml", "other.yml"])


@pytest.mark.parametrize("where", ["nowhere.yaml", "no/such", ".", "a\0b.yaml", "/"])
def test_files_that_cannot_be_read(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError):
        load(where, env={})


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes("name: a\ntitle: Käse\n".encode("latin-1"))
    with pytest.raises(TopologyErrors) as caught:
        load(file, env={})
    assert [(m.line, m.problem) for m in caught.value.mistakes] == [(2, "not UTF-8 text")]
