"""Draw the picture at the top of README.md: the duck voyage's ships, ports and containers overboard, from its plan.

python -m tools.voyage_map docs/images/voyage.png
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import altair as alt
import vl_convert

from simulators.fleet import routes
from simulators.fleet.plan import VoyagePlan
from simulators.fleet.planner import make_plan
from simulators.fleet.scenario_file import load as load_scenario
from topologies.drawing.seachart import coasts, frame
from topologies.loader.load import load as load_topology

WIDTH, HEIGHT = 880, 460
INK, RED, PAPER = "#1b3a57", "#c0392b", "#f7fafc"
TRACK_STEP = dt.timedelta(hours=2)
COLOURS = {"duck-star": "#d9820f", "blue-marlin": "#1f6fb2"}
DASHES = {"duck-star": [1, 0], "blue-marlin": [7, 9]}
HEADQUARTERS = "los-angeles"
LEFT = {HEADQUARTERS, "sydney"}
"""Sites whose label is to the left of the dot."""


def draw(plan: VoyagePlan) -> bytes:
    """Return the map as PNG."""
    tracks = [row for ship in plan.timetables for row in _track(plan, ship)]
    places = [_place(name, str(site.unlocode)) for name, site in plan.topology.sites.items() if site.unlocode]
    lost = _lost(plan)
    home = next(row for row in places if row["label"] == HEADQUARTERS)
    ends = {"longitude": "longitude:Q", "latitude": "latitude:Q"}
    alert = _layer([lost, home]).mark_line(strokeWidth=1.5, strokeDash=[2, 5], color=RED).encode(**ends)
    halfway = _row("alert by satellite", routes.Point(3.0, -165.0))
    within = frame([(row["longitude"], row["latitude"]) for row in (*places, *tracks)], WIDTH, HEIGHT)
    layers = [
        coasts(within),
        alert,
        *(_way([row for row in tracks if row["label"] == ship], dash) for ship, dash in DASHES.items()),
        _layer(places).mark_circle(size=110, color=INK, opacity=1).encode(**ends),
        _layer([lost]).mark_point(shape="cross", size=230, color=RED, filled=True, opacity=1, angle=45).encode(**ends),
        *_names([row for row in places if row["label"] not in LEFT], INK, "left"),
        *_names([row for row in places if row["label"] in LEFT], INK, "right"),
        *_names([lost, halfway], RED, "left"),
    ]
    chart = (
        alt.layer(*layers)
        .project(**within.projection())
        .properties(width=WIDTH, height=HEIGHT)
        .configure_view(stroke="#dfe8ee", fill=PAPER)
        .configure_legend(orient="bottom-right", labelFontSize=13, titleFontSize=13, fillColor="white", padding=8)
    )
    return vl_convert.vegalite_to_png(chart.to_json(indent=None), scale=1.5)


def _track(plan: VoyagePlan, ship: str) -> Iterable[dict[str, Any]]:
    table = plan.timetables[ship]
    time = table.calls[0].arrives
    while time <= table.calls[-1].arrives:
        point = table.at(time)[0].point
        yield _row(ship, point) | {"time": time.isoformat()}
        time += TRACK_STEP


def _place(name: str, unlocode: str) -> dict[str, Any]:
    return _row(name, routes.port(unlocode))


def _way(rows: list[dict[str, Any]], dash: list[int]) -> Any:
    """Return one ship's track. The second ship's is dashed, because both use the same lane."""
    scale = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    return (
        _layer(rows)
        .mark_line(strokeWidth=3, strokeDash=dash, clip=True)
        .encode(
            longitude="longitude:Q",
            latitude="latitude:Q",
            order="time:T",
            color=alt.Color("label:N", title=None, scale=scale),
        )
    )


def _lost(plan: VoyagePlan) -> dict[str, Any]:
    """Return the place where the containers fall overboard, labelled with their number."""
    fallen = [box for box in plan.boxes if box.falls is not None]
    when = min(box.falls for box in fallen if box.falls is not None)
    ship = fallen[0].holder(when)
    return _row(f"{len(fallen)} containers overboard", plan.timetables[str(ship)].at(when)[0].point)


def _row(label: str, point: routes.Point) -> dict[str, Any]:
    return {"label": label, "longitude": point.longitude, "latitude": point.latitude}


def _layer(rows: list[dict[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.InlineData(values=rows))


def _names(rows: list[dict[str, Any]], colour: str, align: Literal["left", "right"]) -> list[Any]:
    """Return labels beside their places, with a white outline that keeps them readable over lines."""
    away = 12 if align == "left" else -12
    both: tuple[dict[str, Any], ...] = ({"stroke": PAPER, "strokeWidth": 5}, {})
    return [
        _layer(rows)
        .mark_text(align=align, dx=away, fontSize=15, fontWeight="bold", color=colour, **edge)
        .encode(longitude="longitude:Q", latitude="latitude:Q", text="label:N")
        for edge in both
    ]


if __name__ == "__main__":
    scenario = load_scenario("duck-voyage")
    picture = draw(make_plan(scenario, load_topology("big-blue"), seed=7))
    Path(sys.argv[1]).write_bytes(picture)
