"""A topology as an SVG picture: sites at their places on a sea chart, links with heads where records arrive.

Made by altair and vl-convert from data that are on this machine; no network is used.
"""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import vl_convert

from topologies.graph import KIND_TITLE, Way, connections
from topologies.labels import label_sites
from topologies.layout import HEIGHT, WIDTH, Chart, Layout, courses, lay_out
from topologies.model import Site, SiteKind, Topology
from topologies.seachart import coasts

_COLOUR = {Way.ALWAYS: "#1b6ca8", Way.THIN: "#8e44ad", Way.BERTHED: "#d9822b"}
_DASH = {Way.ALWAYS: [1, 0], Way.THIN: [2, 4], Way.BERTHED: [7, 4]}
_SHAPE = {
    SiteKind.SHIP: "triangle-up",
    SiteKind.PORT: "circle",
    SiteKind.HQ: "square",
    SiteKind.DATACENTRE: "square",
    SiteKind.CUSTOMER: "diamond",
}
_INK = "#22313f"


def svg(topology: Topology) -> str:
    """The picture as SVG text, 1000 x 560 pixels."""
    return str(vl_convert.vegalite_to_svg(specification(topology)))


def specification(topology: Topology) -> dict[str, Any]:
    """The picture as a Vega-Lite specification, data inside."""
    layout = lay_out(topology)
    layers = [*_chart_layers(layout.chart), *_link_layers(topology, layout), *_site_layers(topology, layout)]
    chart = (
        alt.layer(*layers)
        .properties(width=WIDTH, height=HEIGHT, background="white", padding=0)
        .configure_view(stroke=None, fill="#f4f8fb", clip=True)
        .configure_text(font="Helvetica, Arial, sans-serif")
    )
    result: dict[str, Any] = chart.to_dict()
    return result


def _chart_layers(chart: Chart | None) -> list[Any]:
    if chart is None:
        return []
    middle = chart.point(chart.longitude, 0)
    projection = {
        "type": "equirectangular",
        "rotate": [-chart.longitude, 0, 0],
        "scale": chart.pixels_per_degree * 180 / math.pi,
        "translate": [middle.x, middle.y],
        "pointRadius": 1.3,
    }
    return [coasts().properties(projection=projection)]


def _x() -> Any:
    return alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, WIDTH], nice=False, zero=False))


def _y() -> Any:
    return alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[HEIGHT, 0], nice=False, zero=False))


def _way_colour() -> Any:
    return alt.Color("way:N", legend=None, scale=alt.Scale(domain=list(_COLOUR), range=list(_COLOUR.values())))


def _rows(rows: list[dict[str, Any]]) -> Any:
    return alt.InlineData(values=rows)


def _link_layers(topology: Topology, layout: Layout) -> list[Any]:
    lines: list[dict[str, Any]] = []
    heads: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    for number, (connection, way) in enumerate(courses(topology, layout.places)):
        style = {"way": connection.way.value, "link": number}
        lines += [{**style, "x": p.x, "y": p.y, "step": step} for step, p in enumerate(way.curve)]
        for link, (place, heading) in ((connection.back, way.start), (connection.forth, way.end)):
            if link:
                heads.append({**style, "x": place.x, "y": place.y, "heading": heading})
        if connection.label:
            labels.append({**style, "x": way.middle.x, "y": way.middle.y, "text": connection.label})
    layers = [
        alt.Chart(_rows([row for row in lines if row["way"] == way]))
        .mark_line(strokeWidth=1.8, opacity=0.85, strokeDash=_DASH[way])
        .encode(x=_x(), y=_y(), detail="link:N", order="step:Q", color=_way_colour())
        for way in _used(topology)
    ]
    turn = alt.Angle("heading:Q", scale=alt.Scale(domain=[0, 360], range=[0, 360]))
    layers.append(
        alt.Chart(_rows(heads))
        .mark_point(shape="triangle", filled=True, size=70, opacity=1)
        .encode(x=_x(), y=_y(), color=_way_colour(), angle=turn)
    )
    return layers + _text(labels, size=11, colour=_COLOUR[Way.THIN], align="center")


def _used(topology: Topology) -> list[Way]:
    found = {connection.way for connection in connections(topology)}
    return [way for way in Way if way in found]


def _site_layers(topology: Topology, layout: Layout) -> list[Any]:
    shapes = []
    names: dict[str, list[dict[str, Any]]] = {}
    details: dict[str, list[dict[str, Any]]] = {}
    captions = {
        name: (name, _detail(site, shore=topology.shore is not None and topology.shore.at == name))
        for name, site in topology.sites.items()
    }
    for name, caption in label_sites(captions, layout.places, courses(topology, layout.places)).items():
        site = layout.places[name]
        shapes.append({"x": site.x, "y": site.y, "shape": _SHAPE[topology.sites[name].kind]})
        spot = {"x": caption.anchor.x, "y": caption.anchor.y}
        names.setdefault(caption.align, []).append({**spot, "text": name})
        details.setdefault(caption.align, []).append({**spot, "text": captions[name][1]})
    layers = [
        alt.Chart(_rows(shapes))
        .mark_point(filled=True, size=260, opacity=1, fill=_INK, stroke="white", strokeWidth=2)
        .encode(x=_x(), y=_y(), shape=alt.Shape("shape:N", scale=None))
    ]
    for align in names:
        layers += _text(names[align], size=14, colour=_INK, dy=-7, align=align, fontWeight="bold")
        layers += _text(details[align], size=10.5, colour="#5d6d7e", dy=8, align=align)
    title = [{"x": 24, "y": 26, "text": topology.title or topology.name}]
    return [*layers, *_text(title, size=20, colour=_INK, align="left", fontWeight="bold"), *_legend(topology)]


def _detail(site: Site, *, shore: bool) -> str:
    number = f"IMO {site.imo}" if site.imo else site.unlocode or ""
    return " · ".join(filter(None, [KIND_TITLE[site.kind], number, "shore" if shore else ""]))


def _text(rows: list[dict[str, Any]], *, size: float, colour: str, **mark: Any) -> list[Any]:
    """Text twice: first as a pale outline, so that it can be read on lines."""
    if not rows:
        return []
    base = alt.Chart(_rows(rows)).encode(x=_x(), y=_y(), text="text:N")
    common = {"baseline": "middle", "fontSize": size, **mark}
    return [
        base.mark_text(**common, color="#f4f8fb", stroke="#f4f8fb", strokeWidth=4, strokeJoin="round"),
        base.mark_text(**common, color=colour),
    ]


def _legend(topology: Topology) -> list[Any]:
    layers: list[Any] = []
    x = 24.0
    for way in _used(topology):
        sample = [{"x": x, "y": HEIGHT - 20.0, "way": way.value}, {"x": x + 34, "y": HEIGHT - 20.0, "way": way.value}]
        layers.append(
            alt.Chart(_rows(sample))
            .mark_line(strokeWidth=2.2, strokeDash=_DASH[way])
            .encode(x=_x(), y=_y(), color=_way_colour())
        )
        layers += _text([{"x": x + 42, "y": HEIGHT - 20.0, "text": way.value}], size=12, colour=_INK, align="left")
        x += 64 + 7.0 * len(way.value)
    return layers
