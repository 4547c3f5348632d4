"""The graph, the terminal drawing and the Mermaid text of a topology."""

from __future__ import annotations

import io
import itertools

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.support.topologies.examples import RIGHT
from topologies.drawing.text import DrawnWay, as_data, connections, diagram, draw, mermaid, ordered_sites
from topologies.loader.load import load, read, shipped
from topologies.model import Topology


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


def test_connections_join_the_two_directions_of_one_policy() -> None:
    found = {(c.a, c.b, c.way, c.forth is not None, c.back is not None) for c in connections(read(RIGHT, "x.yaml"))}
    assert found == {
        ("tokyo", "sydney", DrawnWay.ALWAYS, True, True),
        ("duck-star", "tokyo", DrawnWay.BERTHED, False, True),
        ("duck-star", "tokyo", DrawnWay.THIN, True, False),
        ("sydney", "shop", DrawnWay.ALWAYS, True, False),
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


def test_too_many_links_are_counted_instead_of_drawn() -> None:
    (line,) = diagram(_many(12))
    assert "66 connections are too many" in line.plain


def test_brackets_are_drawn_as_they_are_written() -> None:
    """Rich takes ``[...]`` in text for a style: a title, a pattern of keys and an address may have some."""
    shown = _drawn(
        read(
            "name: mine\nsites:\n"
            "  east: {kind: datacentre, kafka: {bootstrap: '[fd00::1]:9093'}}\n  west: {kind: datacentre}\n"
            "streams: {metrics: {title: 'Old [/] and new'}}\n"
            "links: [{from: east, to: west, streams: {metrics: ['[a-f]*']}}]\n",
            "mine.yaml",
        )
    )
    for text in ("[fd00::1]:9093", "Old [/] and new", "metrics ([a-f]*)"):
        assert text in shown


def test_a_topology_without_links_is_drawn() -> None:
    alone = read("name: alone\nsites: {here: {kind: datacentre}}\n", "alone.yaml")
    assert "here" in _drawn(alone)
    assert mermaid(alone) == 'flowchart LR\n    s0["here"]\n'


def test_mermaid_has_a_node_for_each_site_and_an_arrow_for_each_connection() -> None:
    assert mermaid(read(RIGHT, "small.yaml")).splitlines() == [
        "flowchart LR",
        '    s0[\\"duck-star"/]',
        '    s1(["tokyo"])',
        '    s2(["sydney"])',
        '    s3{{"shop"}}',
        "    s1 <--> s2",
        "    s1 -.-> s0",
        '    s0 -->|"64 kbit/s"| s1',
        "    s2 --> s3",
    ]


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
