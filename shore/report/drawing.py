"""Shared by the pages of both reports: the templates, the format of times, numbers and sites, and the drawings.

Vega-Lite (altair) draws the pictures, and vl-convert turns them into SVG inside the page: no script, and the print
shows what the screen shows. All times are UTC.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jinja2
import vl_convert

from shore.report.course import Interval
from shore.report.slices import Row
from topologies.drawing.seachart import backdrop, frame

MOVEMENTS: Final = {
    "ARRI": "ship arrived",
    "DEPA": "ship left",
    "GTIN": "came to the dock",
    "LOAD": "loaded",
    "DISC": "unloaded",
    "GTOT": "left by the gate",
}


def render(template: str, sites: Mapping[str, Row], **values: Any) -> str:
    """Return one page, which needs neither a network nor scripts.

    Args:
        template: A file of this package.
        sites: Rows of table ``sites`` by name, for the filter ``site``.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("shore.report", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {
        "time": time,
        "number": number,
        "duration": duration,
        "count": count,
        "movement": lambda code: MOVEMENTS.get(code, code),
        "site": lambda name: sites[name]["title"] if name in sites else name or "",
    }
    return environment.get_template(template).render(written=dt.datetime.now(dt.UTC), **values)


def time(moment: dt.datetime | None) -> str:
    """Format a time in UTC to the minute; return an empty text for None."""
    return "" if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M}"


def number(value: float | None, digits: int = 1) -> str:
    """Format a number with ``digits`` digits after the point, without trailing zeros if these are two or more; None
    gives an empty text."""
    if value is None:
        return ""
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits > 1 else text


def count(number: int, what: str) -> str:
    """Format a count of things: 1 record, 2,500 records."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(minutes: float | None) -> str:
    """Format minutes as people say them: 45 min, 3 h 15 min, 12 d 4 h; return an empty text for None."""
    if minutes is None:
        return ""
    whole = round(minutes)
    if whole < 60:
        return f"{whole} min"
    hours, rest = divmod(whole, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


WIDTH: Final = 840
_MAP_WIDTH: Final = 1000
_MAP_HEIGHT: Final = 420
_LEFT: Final = 130  # pixels: room for the longest name of a state, left of the axis by which panels are aligned
_COLOURS: Final = {
    "supply air": "#1f6fb4",
    "return air": "#d1730b",
    "cargo probe": "#2e8540",
    "cargo probe 2": "#7a9a01",
    "cargo probe 3": "#00857c",
    "outside": "#a9a9a9",
    "set point": "#222222",
}
STATES: Final = {
    "DEFROST": "defrosting",
    "INSPECTION": "inspection before a trip",
    "UNPLUGGED": "not plugged in",
    "NO_POWER": "plugged in, off",
    "DOOR_OPEN": "door open",
    "IMMERSED": "in water",
    "SETPOINT": "set to something else",
    "GAP": "nothing heard",
}


class PageMark(NamedTuple):
    """A named place on the map; ``kind`` is ``port``, ``ship`` or ``event``."""

    label: str
    longitude: float
    latitude: float
    kind: str = "port"


def temperatures(
    curve: Sequence[Row],
    set_points: Sequence[Row],
    states: Sequence[Interval],
    excursions: Iterable[Interval],
    *,
    span: tuple[dt.datetime, dt.datetime],
    band: float,
) -> str:
    """Draw air, cargo and set point against time, with the band around the set point, excursions and defrosts shaded.
    Draw the outside temperature below, and one line for each of the ``states`` that occurred.

    Args:
        curve: Rows of ``series``, ``segment``, ``time``, ``celsius``.
        set_points: Rows of ``start``, ``end``, ``celsius``.
        band: Kelvin on either side of the set point.
    """
    import altair as alt

    x, last_x = _time(span), _time(span, "device time (UTC)")
    inside = [row for row in curve if row["series"] != "outside"]
    outside = [row for row in curve if row["series"] == "outside"]
    shades = [(each, "defrosting") for each in states if each.kind == "DEFROST"]
    shades += [(each, "excursion") for each in excursions]
    present = {row["series"] for row in inside} | ({"set point"} if set_points else set())
    panels = []
    if present:
        top = x if outside or states else last_x
        below = _settings(set_points, band, top)
        above = _shades(shades, top)
        lines = alt.layer(_wanted(set_points, present, top), _lines(inside, present, top))
        whole = alt.layer(below, above, lines).resolve_scale(color="independent")
        panels.append(whole.properties(width=WIDTH, height=300))
    if outside:
        panels.append(
            _lines(outside, {"outside"}, x if states else last_x, "outside").properties(width=WIDTH, height=60)
        )
    if states:
        panels.append(_timeline(states, last_x).properties(width=WIDTH, height=alt.Step(18)))
    if not panels:
        return ""
    chart = alt.vconcat(*panels, bounds="flush", spacing=30, padding={"left": _LEFT, "right": 5, "top": 5, "bottom": 5})
    return _svg(chart.resolve_scale(color="independent"))


def _lines(rows: Sequence[Row], present: set[str], x: Any, title: str = "degrees Celsius") -> Any:
    import altair as alt

    values = [dict(row, time=_iso(row["time"])) for row in rows]
    y = alt.Y("celsius:Q", title=title, scale=alt.Scale(zero=False))
    chart = alt.Chart(alt.InlineData(values=values)).mark_line(strokeWidth=1.2, clip=True)
    return chart.encode(x=x("time"), y=y, color=_colours(present), detail="segment:N")


def _wanted(set_points: Iterable[Row], present: set[str], x: Any) -> Any:
    import altair as alt

    values = [
        {"start": _iso(row["start"]), "end": _iso(row["end"]), "celsius": row["celsius"], "series": "set point"}
        for row in set_points
    ]
    chart = alt.Chart(alt.InlineData(values=values)).mark_rule(strokeDash=[5, 4], clip=True)
    return chart.encode(x=x("start"), x2="end:T", y="celsius:Q", color=_colours(present))


def _settings(set_points: Iterable[Row], band: float, x: Any) -> Any:
    import altair as alt

    values = [
        {"start": _iso(r["start"]), "end": _iso(r["end"]), "low": r["celsius"] - band, "high": r["celsius"] + band}
        for r in set_points
    ]
    chart = alt.Chart(alt.InlineData(values=values)).mark_rect(color="#7fbf7f", opacity=0.18, clip=True)
    return chart.encode(x=x("start"), x2="end:T", y="low:Q", y2="high:Q")


def _shades(shades: Iterable[tuple[Interval, str]], x: Any) -> Any:
    import altair as alt

    values = [{"start": _iso(each.start), "end": _iso(each.end), "what": what} for each, what in shades]
    scale = alt.Scale(domain=["excursion", "defrosting"], range=["#f3b0a8", "#c9d6e2"])
    chart = alt.Chart(alt.InlineData(values=values)).mark_rect(opacity=0.35, clip=True)
    return chart.encode(x=x("start"), x2="end:T", color=alt.Color("what:N", title=None, scale=scale))


def _timeline(states: Iterable[Interval], x: Any) -> Any:
    import altair as alt

    values = [
        {"start": _iso(each.start), "end": _iso(each.end), "what": STATES.get(each.kind, each.kind.lower())}
        for each in states
    ]
    bars = alt.Chart(alt.InlineData(values=values)).mark_bar(height=9, color="#5b6f86", clip=True)
    return bars.encode(x=x("start"), x2="end:T", y=alt.Y("what:N", title=None, sort=list(STATES.values())))


def _colours(present: set[str]) -> Any:
    import altair as alt

    shown = {name: colour for name, colour in _COLOURS.items() if name in present}
    return alt.Color("series:N", title=None, scale=alt.Scale(domain=list(shown), range=list(shown.values())), sort=None)


def way(points: Sequence[Row], marks: Sequence[PageMark]) -> str:
    """Draw the way of a box or ship on the sea chart; return an empty text when no place is known.

    Args:
        points: Rows of ``time``, ``longitude``, ``latitude``, ``source`` in order of time.
    """
    import altair as alt

    places = [(row["longitude"], row["latitude"]) for row in points] + [(m.longitude, m.latitude) for m in marks]
    if not places:
        return ""
    part = frame(places, _MAP_WIDTH, _MAP_HEIGHT)
    layers = backdrop(part)
    if points:
        values = [dict(row, time=_iso(row["time"])) for row in points]
        line = alt.Chart(alt.InlineData(values=values)).encode(longitude="longitude:Q", latitude="latitude:Q")
        layers.append(line.mark_line(strokeWidth=2, color="#1f6fb4", clip=True).encode(order="time:T"))
        last = alt.Chart(alt.InlineData(values=values[-1:])).encode(longitude="longitude:Q", latitude="latitude:Q")
        layers.append(last.mark_point(shape="triangle-up", size=90, filled=True, color="#1f6fb4"))
    for kind, shape, colour in (
        ("port", "circle", "#1b3a57"),
        ("ship", "triangle-up", "#1f6fb4"),
        ("event", "cross", "#c0392b"),
    ):
        data = alt.InlineData(values=[mark._asdict() for mark in marks if mark.kind == kind])
        of_kind = alt.Chart(data).encode(longitude="longitude:Q", latitude="latitude:Q")
        layers.append(of_kind.mark_point(shape=shape, size=70, filled=True, color=colour, opacity=1))
        layers.append(of_kind.mark_text(dx=8, align="left", fontSize=12, color=colour).encode(text="label:N"))
    chart = alt.layer(*layers).project(**part.projection()).properties(width=_MAP_WIDTH, height=_MAP_HEIGHT)
    return _svg(chart)


def _time(span: tuple[dt.datetime, dt.datetime], title: str | None = None) -> Any:
    """A function that makes time axes over the same span."""
    import altair as alt

    domain = [_moment(end) for end in span]
    scale = alt.Scale(type="utc", domain=domain)
    days = (span[1] - span[0]) / dt.timedelta(days=1)
    axis = alt.Axis(format="%d %b" if days > 8 else "%d %b %H:%M", labelOverlap=True, labelFlush=False, tickCount=8)
    return lambda column: alt.X(f"{column}:T", title=title, scale=scale, axis=axis)


def _moment(when: dt.datetime) -> Any:
    import altair as alt

    utc = when.astimezone(dt.UTC)
    return alt.DateTime(
        year=utc.year, month=utc.month, date=utc.day, hours=utc.hour, minutes=utc.minute, seconds=utc.second, utc=True
    )


def _iso(when: dt.datetime) -> str:
    return when.astimezone(dt.UTC).isoformat()


def _svg(chart: Any) -> str:
    return str(vl_convert.vegalite_to_svg(chart.to_json(indent=None)))
