"""The report as one HTML page that needs no network: its table, a map of the voyage, one box's temperatures.

Charts are altair's (Vega-Lite) with their JavaScript inlined; the map is ``topologies.drawing.seachart``.
``page_data`` collects the data of map and charts; ``render`` is pure.
"""

from __future__ import annotations

import datetime as dt
import importlib.resources
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import pyarrow.compute as pc
import vl_convert

from shore.read import table
from simulators.report.model import Report
from simulators.voyage.run import Sailed
from topologies.drawing.seachart import backdrop, ports
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class TrackPoint:
    """A position that a ship published."""

    ship: str
    time: dt.datetime
    longitude: float
    latitude: float


@dataclass(frozen=True, slots=True)
class MapPlace:
    """A port, or the position of an incident."""

    label: str
    longitude: float
    latitude: float


@dataclass(frozen=True, slots=True)
class TemperaturePoint:
    """One row of the Delta table ``readings`` for the chart; degrees Celsius."""

    time: dt.datetime
    supply: float | None
    return_air: float | None
    ambient: float | None
    setpoint: float | None


@dataclass(frozen=True, slots=True)
class PageData:
    """The data of map and charts."""

    tracks: tuple[TrackPoint, ...] = ()
    ports: tuple[MapPlace, ...] = ()
    losses: tuple[MapPlace, ...] = ()
    container: str = ""
    temperatures: tuple[TemperaturePoint, ...] = ()
    milestones: tuple[tuple[dt.datetime, str], ...] = field(default=())


def render(report: Report, data: PageData) -> str:
    """Return the whole page, with the drawing library once and each chart as a specification."""
    charts = []
    if data.tracks:
        charts.append(("The voyage", _specification(_map(data))))
    if data.temperatures:
        charts.append((f"Temperatures of {data.container}", _specification(_temperature(data))))
    template = jinja2.Environment(autoescape=True).from_string(
        importlib.resources.files("simulators.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    )
    library = vl_convert.javascript_bundle() if charts else ""  # type: ignore[call-arg]  # its stub asks for too much
    return template.render(report=report, lines=report.lines(), charts=charts, library=library)


def _specification(chart: Any) -> str:
    """Return the chart as Vega-Lite JSON, escaped for a script element."""
    return str(chart.to_json(indent=None)).replace("</", "<\\/")


def _iso(when: dt.datetime) -> str:
    return when.astimezone(dt.UTC).isoformat()


def _map(data: PageData) -> Any:
    import altair as alt
    import pandas as pd

    tracks = pd.DataFrame(
        [(p.ship, _iso(p.time), p.longitude, p.latitude) for p in data.tracks],
        columns=["ship", "time", "longitude", "latitude"],
    )
    ways = (
        alt.Chart(tracks)
        .mark_line(strokeWidth=2)
        .encode(
            longitude="longitude:Q",
            latitude="latitude:Q",
            order="time:T",
            color=alt.Color("ship:N", title="ship", scale=alt.Scale(scheme="dark2")),
        )
    )
    ports = pd.DataFrame([(p.label, p.longitude, p.latitude) for p in data.ports], columns=["label", "lon", "lat"])
    dots = (
        alt.Chart(ports)
        .mark_circle(size=60, color="#1b3a57")
        .encode(longitude="lon:Q", latitude="lat:Q", tooltip="label:N")
    )
    names = (
        alt.Chart(ports)
        .mark_text(dx=8, align="left", fontSize=12, color="#1b3a57")
        .encode(longitude="lon:Q", latitude="lat:Q", text="label:N")
    )
    layers = [*backdrop(), ways, dots, names]
    if data.losses:
        lost = pd.DataFrame([(p.label, p.longitude, p.latitude) for p in data.losses], columns=["label", "lon", "lat"])
        layers.append(
            alt.Chart(lost)
            .mark_point(shape="cross", size=120, color="#c0392b", filled=True)
            .encode(longitude="lon:Q", latitude="lat:Q", tooltip="label:N")
        )
    return (
        alt.layer(*layers)
        .project(type="mercator", rotate=[-160, 0, 0], center=[-8, 0], scale=190, pointRadius=1.3)
        .properties(width=900, height=520)
    )


def _temperature(data: PageData) -> Any:
    import altair as alt
    import pandas as pd

    rows = []
    for t in data.temperatures:
        for name, value in (
            ("supply air", t.supply),
            ("return air", t.return_air),
            ("ambient", t.ambient),
            ("set point", t.setpoint),
        ):
            if value is not None:
                rows.append((_iso(t.time), name, value))
    frame = pd.DataFrame(rows, columns=["time", "series", "celsius"])
    utc = alt.X("time:T", title="device time (UTC)", scale=alt.Scale(type="utc"))
    lines = (
        alt.Chart(frame)
        .mark_line(interpolate="monotone")
        .encode(
            x=utc,
            y=alt.Y("celsius:Q", title="degrees Celsius"),
            color=alt.Color("series:N", title=None, scale=alt.Scale(scheme="tableau10")),
            strokeDash=alt.condition("datum.series == 'set point'", alt.value([4, 4]), alt.value([1, 0])),
        )
    )
    if not data.milestones:
        return lines.properties(width=900, height=320)
    marks = pd.DataFrame([(_iso(when), label) for when, label in data.milestones], columns=["time", "label"])
    rules = alt.Chart(marks).mark_rule(color="#888", strokeDash=[2, 2]).encode(x=utc)
    labels = (
        alt.Chart(marks)
        .mark_text(angle=270, align="right", dx=-4, dy=-6, color="#555", fontSize=11)
        .encode(x=utc, y=alt.value(0), text="label:N")
    )
    return alt.layer(lines, rules, labels).properties(width=900, height=320)


_COLUMNS = [
    "device_date_time",
    "supply_temperature",
    "return_temperature",
    "ambient_temperature",
    "setpoint_temperature",
]


def page_data(sailed: Sailed, topology: Topology, folder: Path) -> PageData:
    """Return tracks and losses from the truth, and temperatures from the table ``readings`` if it exists."""
    truth = sailed.truth
    known = ports()
    box = truth.chart_container
    found = _temperatures(folder, box) if topology.shore else []
    return PageData(
        tracks=tuple(
            TrackPoint(ship, point.time, point.longitude, point.latitude)
            for ship, points in truth.tracks.items()
            for point in points
        ),
        ports=tuple(
            MapPlace(site.title or name, known[site.unlocode].longitude, known[site.unlocode].latitude)
            for name, site in topology.sites.items()
            if site.unlocode in known
        ),
        losses=tuple(MapPlace(loss.container, loss.longitude, loss.latitude) for loss in truth.losses),
        container=box,
        temperatures=tuple(TemperaturePoint(*(row[name] for name in _COLUMNS)) for row in found),
        milestones=tuple((m.time, f"{m.code} {m.site}") for m in truth.milestones),
    )


def _temperatures(folder: Path, box: str) -> list[dict[str, Any]]:
    of_box = table(folder, "readings").to_table(columns=_COLUMNS, filter=pc.field("equipment_reference") == box)
    found: list[dict[str, Any]] = of_box.sort_by("device_date_time").to_pylist()
    return found
