"""The graph, the terminal drawing and the picture show what the topology says."""

from __future__ import annotations

import io
import itertools
import math
from xml.etree import ElementTree

import networkx as nx
import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.unit.topologies.examples import RIGHT
from topologies.drawing import diagram, draw
from topologies.graph import Way, as_data, connections, ordered_sites, site_graph
from topologies.layout import HEIGHT, WIDTH, course, courses, lay_out
from topologies.load import load, read, shipped
from topologies.model import Topology
from topologies.picture import svg
from topologies.seachart import ports


def _drawn(topology: Topology, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(draw(topology))
    return out.getvalue()


def _many(count: int) -> Topology:
    """Sites that are all linked to each other."""
    names = [f"s{n}" for n in range(count)]
    sites = "\n".join(f"  {name}: {{kind: datacentre}}" for name in names)
    links = "\n".join(f"  - {{from: {a}, to: {b}, streams: {{x: all}}}}" for a, b in itertools.combinations(names, 2))
    return read(f"name: many\nsites:\n{sites}\nstreams: {{x: {{}}}}\nlinks:\n{links}\n", "many.yaml")


def test_the_graph_has_every_link_once() -> None:
    small = read(RIGHT, "small.yaml")
    graph = site_graph(small)
    assert isinstance(graph, nx.MultiDiGraph)
    assert set(graph) == set(small.sites)
    assert sorted(data["link"].name for _, _, data in graph.edges(data=True)) == sorted(
        link.name for link in small.directed_links()
    )


def test_connections_join_the_two_directions_of_one_policy() -> None:
    found = {(c.a, c.b, c.way, c.forth is not None, c.back is not None) for c in connections(read(RIGHT, "x.yaml"))}
    assert found == {
        ("tokyo", "sydney", Way.ALWAYS, True, True),
        ("duck-star", "tokyo", Way.BERTHED, False, True),
        ("duck-star", "tokyo", Way.THIN, True, False),
        ("sydney", "shop", Way.ALWAYS, True, False),
    }


def test_the_diagram_of_a_small_topology() -> None:
    assert [line.plain for line in diagram(read(RIGHT, "small.yaml"))] == [
        "▲ duck-star ────┬──▲",
        "                ╎  ┊",
        "● tokyo ─────▲──▼──┴",
        "             │",
        "● sydney ────▼──┬",
        "                │",
        "◆ shop ─────────▼",
        "",
        "▲ ▼ records arrive here   │ always   ╎ always, bounded rate   ┊ at the berth",
    ]


@pytest.mark.parametrize("name", sorted(shipped()))
def test_drawings_fit_100_columns_and_name_everything(name: str) -> None:
    topology = load(name, env={})
    shown = _drawn(topology)
    assert max(cell_len(line) for line in shown.splitlines()) <= 100
    for word in [*topology.sites, *topology.streams]:
        assert word in shown


def test_too_many_links_are_told_not_drawn_wrong() -> None:
    (line,) = diagram(_many(12))
    assert "66 connections are too many" in line.plain


def test_a_topology_without_links_is_drawn() -> None:
    alone = read("name: alone\nsites: {here: {kind: datacentre}}\n", "alone.yaml")
    assert "here" in _drawn(alone)
    assert "here" in svg(alone)


@pytest.mark.parametrize("name", sorted(shipped()))
def test_sites_have_room_in_the_picture(name: str) -> None:
    places = lay_out(load(name, env={})).places
    assert all(20 < place.x < WIDTH - 20 and 50 < place.y < HEIGHT - 20 for place in places.values())
    assert all(math.dist(a, b) > 25 for a, b in itertools.combinations(places.values(), 2))


def test_ports_stand_where_they_are_on_the_chart() -> None:
    layout = lay_out(load("big-blue", env={}))
    assert layout.chart is not None
    for name, code in {"tokyo": "JPTYO", "sydney": "AUSYD", "los-angeles": "USLAX"}.items():
        port = ports()[code]
        assert layout.places[name] == layout.chart.point(port.longitude, port.latitude)
    places = layout.places
    assert places["singapore"].x < places["tokyo"].x < places["los-angeles"].x, "the Pacific in the middle"
    assert places["tokyo"].y < places["singapore"].y < places["sydney"].y, "north is up"


def test_sites_without_known_places_are_arranged() -> None:
    assert lay_out(load("two-way", env={})).chart is None
    assert len(lay_out(_many(12)).places) == 12


def test_links_end_beside_their_sites_and_heads_point_at_them() -> None:
    layout = lay_out(load("chain", env={}))
    for connection, way in courses(load("chain", env={}), layout.places):
        assert 5 < math.dist(way.curve[0], layout.places[connection.a]) < 30
        assert 5 < math.dist(way.curve[-1], layout.places[connection.b]) < 30
    level = course(layout.places["singapore"], layout.places["singapore"]._replace(x=900.0), 0.0)
    assert level.end[1] == pytest.approx(90)
    assert level.start[1] == pytest.approx(270)


@pytest.mark.parametrize("name", ["big-blue", "two-way"])
def test_the_picture_is_svg_with_every_site_and_its_links(name: str) -> None:
    topology = load(name, env={})
    picture = svg(topology)
    root = ElementTree.fromstring(picture)  # noqa: S314 - our own output
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert set(topology.sites) <= set(words)
    assert topology.title in words
    assert "<script" not in picture and "href" not in picture.replace("xlink", "")


def test_data_for_programs_has_numbers() -> None:
    data = as_data(read(RIGHT, "small.yaml"))
    assert data["sites"]["tokyo"]["retention"] == {"default": 31536000}
    assert data["sites"]["shop"]["users"] == ["ducks", "replicator"]
    assert [link["name"] for link in data["links"]] == [
        "tokyo->sydney",
        "sydney->tokyo",
        "tokyo->duck-star:berthed",
        "duck-star->tokyo",
        "sydney->shop",
    ]
    assert [link["rate"] for link in data["links"]] == [None, None, None, 8000, None]
    assert ordered_sites(read(RIGHT, "small.yaml"))[0] == "duck-star"
