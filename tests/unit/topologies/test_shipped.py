"""The shipped topologies load, and their links carry what the documentation describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import ConfigurationError, UnknownNameError
from fairlead.names import LogName, container_check_digit, parse_log
from topologies.loader.load import load, shipped
from topologies.loader.mistakes import TopologyErrors
from topologies.model import WRITTEN_BY_SERVICES, SiteKind, Topology
from topologies.retention import KeeperGraph
from topologies.values import FOREVER


@pytest.mark.parametrize("name", sorted(shipped()))
def test_each_loads_under_its_own_name(name: str) -> None:
    topology = load(name, env={})
    assert topology.name == name
    names = [link.name for link in topology.directed_links()]
    assert len(names) == len(set(names)), "a link's name names one link"
    if "custody" in topology.streams:
        kept = {site.retention_of("custody") for site in topology.sites.values()}
        assert kept == {FOREVER}, "the ledger is never cut"


def test_feeds_of_big_blue_go_where_they_are_read_and_nowhere_else() -> None:
    links = {link.name for link in load("big-blue", env={}).directed_links() if "feeds" in link.streams}
    assert links == {"los-angeles->tokyo", "tokyo->ducks-hq"}


@pytest.mark.parametrize("name", sorted(shipped()))
def test_ships_pass_on_only_their_own_logs_and_boxes(name: str) -> None:
    topology = load(name, env={})
    for link in topology.directed_links():
        ship = topology.sites[link.from_]
        if ship.kind is SiteKind.SHIP:
            own = {stream: keys for stream, keys in link.streams.items() if stream not in topology.moving_streams}
            assert own == {stream: (link.from_ if stream != "ships" else f"{ship.imo}.*",) for stream in own}, link.name


def _own_logs(topology: Topology) -> dict[str, str]:
    """Every log that a voyage, or a producer, writes under the name of one site, with that site."""
    found: dict[str, str] = {}
    for name, site in topology.sites.items():
        at_sea = site.kind is SiteKind.SHIP
        for stream in set(topology.streams) - {"feeds", *topology.moving_streams}:
            match stream:
                case "ships":
                    keys = [f"{site.imo}.{what}" for what in ("location", "environment", "digest")] if at_sea else []
                case "bookings":
                    keys = [] if at_sea else [name]
                case "ends":
                    keys = [name] if KeeperGraph(topology).confirmed_streams(name) else []
                case _:
                    keys = [name if stream in WRITTEN_BY_SERVICES else f"{name}.cpu"]
            if site.kind is not SiteKind.CUSTOMER:
                found |= {f"{stream}.{key}": name for key in keys}
    return found


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_log_reaches_all_sites_that_take_its_stream(name: str) -> None:
    """A site that takes a stream from a site ashore gets all its logs; from a ship, only the ship's own."""
    topology = load(name, env={})
    links = topology.directed_links()
    ashore = [each for each in links if topology.sites[each.from_].kind is not SiteKind.SHIP]
    logs = _own_logs(topology)
    assert {log.partition(".")[0] for log in logs} >= set(topology.streams) - {
        "feeds",
        "ends",
        *topology.moving_streams,
    }
    for log, holder in logs.items():
        parsed = parse_log(log)
        assert parsed is not None
        reached, before = {holder}, set[str]()
        while reached != before:
            before = set(reached)
            reached |= {each.to for each in links if each.from_ in reached and topology.takes(each, parsed)}
        takers = {
            each.to for each in links if parsed.stream in each.streams and (each in ashore or each.from_ == holder)
        }
        assert reached == takers | {holder}, log


@pytest.mark.parametrize("name", sorted(shipped()))
def test_container_logs_reach_every_site_that_takes_their_stream(name: str) -> None:
    topology = load(name, env={})
    for stream in topology.moving_streams:
        ten = topology.streams[stream].owners[0] + "100001"
        box = LogName(stream, ten + container_check_digit(ten))
        for link in topology.directed_links():
            assert topology.takes(link, box) == (stream in link.streams), link.name


def test_an_unknown_name_gets_the_nearest() -> None:
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
