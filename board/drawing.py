"""Charts and maps as data for ``chart.js`` and ``map.js``. Pure.

A chart's times are the same in all its panels, in seconds since 1970 and strictly ascending. Where nothing was heard
stands a time without values, so that no line is drawn across it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from fairlead.records.ship import Position
from shore.report.slices import Row
from shore.tables.bands import BAND_HUMIDITY, BAND_KELVIN
from topologies.drawing.seachart import PortPlace, ports

Json: TypeAlias = dict[str, Any]

KINDS: Final[Mapping[str, str]] = {
    "DEFROST": "defrost",
    "UNPLUGGED": "unplugged",
    "NO_POWER": "unplugged",
    "GAP": "gap",
    "AT_SEA": "gap",
}
"""Kinds of a chart's spans, by kinds of intervals; ``other`` for all others."""

SEVERITIES: Final[Mapping[str, str]] = {"CRITICAL": "bad", "ALARM": "bad", "WARNING": "warn"}
"""The tone of each severity of an alert."""

_AIR: Final = {
    "supply_temperature": "Supply air",
    "return_temperature": "Return air",
    "setpoint_temperature": "Set point",
    "cargo_probe1_temperature": "Cargo probe 1",
    "cargo_probe2_temperature": "Cargo probe 2",
    "cargo_probe3_temperature": "Cargo probe 3",
    "digest_supply_temperature": "Supply air, by the ship's digest",
    "digest_return_temperature": "Return air, by the ship's digest",
}
_OUTSIDE: Final = {"ambient_temperature": "Outside the box"}
_HUMIDITY: Final = {"relative_humidity": "Relative humidity", "setpoint_relative_humidity": "Set point"}
_GASES: Final = {
    "o2": "Oxygen",
    "setpoint_o2": "Oxygen set point",
    "co2": "Carbon dioxide",
    "setpoint_co2": "Carbon dioxide set point",
}


def chart_of_readings(
    samples: Sequence[Row], spans: Sequence[Json], *, digest: Row | None = None, until: dt.datetime | None = None
) -> Json:
    """Return the chart of what a box measured. It has panels for what was measured only.

    Args:
        samples: As ``shore.report.course.samples`` gives them.
        digest: A row of a ship's digest that is newer than the samples; it becomes a series of its own.
        until: A time up to which the axis reaches, although nothing is known from there.
    """
    rows = list(_with_gaps(samples, digest))
    if rows and until is not None and until > rows[-1]["time"]:
        rows.append({"time": until})
    panels = [
        _panel(rows, "Temperature", "°C", _AIR, _band(rows, "setpoint_temperature", BAND_KELVIN)),
        _panel(rows, "Outside", "°C", _OUTSIDE),
        _panel(rows, "Humidity", "%", _HUMIDITY, _band(rows, "setpoint_relative_humidity", BAND_HUMIDITY)),
        _panel(rows, "Gases", "%", _GASES),
    ]
    return _chart(rows, panels, spans)


def _with_gaps(samples: Iterable[Row], digest: Row | None) -> Iterator[Row]:
    last: Row | None = None
    for row in samples:
        if last is not None and row["time"] <= last["time"]:
            continue  # a chart cannot draw two values of one time
        if last is not None and row["segment"] != last["segment"]:
            yield {"time": last["time"] + (row["time"] - last["time"]) / 2}
        yield row
        last = row
    if digest is None or (last is not None and digest["device_date_time"] <= last["time"]):
        return
    at = digest["device_date_time"]
    if last is not None:
        yield {"time": last["time"] + (at - last["time"]) / 2}
    names = ("supply_temperature", "return_temperature")
    yield {
        "time": at,
        "setpoint_temperature": digest["setpoint_temperature"],
        **{f"digest_{name}": digest[name] for name in names},
    }


_HOURLY_AIR: Final = {
    "supply_temperature_min": "Supply air, lowest",
    "supply_temperature_mean": "Supply air, mean",
    "supply_temperature_max": "Supply air, highest",
}
_HOURLY_RETURN: Final = {
    "return_temperature_min": "Return air, lowest",
    "return_temperature_mean": "Return air, mean",
    "return_temperature_max": "Return air, highest",
}
_HOURLY_MINUTES: Final = {
    "minutes_out_of_band": "Out of band",
    "minutes_without_power": "Without power",
    "minutes_observed": "Observed",
}
_HOUR: Final = dt.timedelta(hours=1)


def chart_of_hours(hours: Sequence[Row], spans: Sequence[Json]) -> Json:
    """Return the chart of hourly conditions, in order of time. A value stands in the middle of its hour."""
    rows: list[Row] = []
    ended: dt.datetime | None = None
    for hour in hours:
        start, end = hour["window_start"], hour["window_end"]
        middle = start + (end - start) / 2
        if rows and middle <= rows[-1]["time"]:
            continue
        if ended is not None and start - ended >= _HOUR:
            rows.append({"time": ended + (start - ended) / 2})
        rows.append({**hour, "time": middle})
        ended = end
    panels = [
        _panel(rows, "Supply air", "°C", _HOURLY_AIR),
        _panel(rows, "Return air", "°C", _HOURLY_RETURN),
        _panel(rows, "Minutes of each hour", "min", _HOURLY_MINUTES),
    ]
    return _chart(rows, panels, spans)


def _chart(rows: Sequence[Row], panels: Iterable[Json], spans: Sequence[Json]) -> Json:
    return {
        "times": [seconds(row["time"]) for row in rows],
        "panels": [each for each in panels if each],
        "spans": sorted(spans, key=lambda each: (each["from"], each["kind"])) if rows else [],
    }


def _panel(rows: Sequence[Row], title: str, unit: str, names: Mapping[str, str], band: Json | None = None) -> Json:
    """A panel; empty where nothing of it was measured. A set point alone is no measurement."""
    shown = {name: label for name, label in names.items() if any(row.get(name) is not None for row in rows)}
    if all(name.startswith("setpoint") for name in shown):
        return {}
    series = [
        {"label": label, "tone": "quiet" if name.startswith("setpoint") else "", "values": [r.get(name) for r in rows]}
        for name, label in shown.items()
    ]
    return {"title": title, "unit": unit, "series": series, "band": band}


def _band(rows: Sequence[Row], name: str, width: float) -> Json | None:
    low = [None if row.get(name) is None else row[name] - width for row in rows]
    high = [None if row.get(name) is None else row[name] + width for row in rows]
    return {"low": low, "high": high} if any(each is not None for each in low) else None


def span(start: dt.datetime, end: dt.datetime, kind: str, label: str) -> Json:
    """Return a shaded time of a chart; ``kind`` as in ``KINDS``, or ``excursion`` or ``other``."""
    return {"from": seconds(start), "to": seconds(end), "kind": kind, "label": label}


def seconds(moment: dt.datetime) -> float:
    """Return a time as seconds since 1970, whole ones as an integer."""
    found = moment.timestamp()
    return int(found) if found.is_integer() else found


def track(name: str, way: Iterable[Row]) -> Json:
    """Return a line of a map through rows with ``latitude`` and ``longitude``."""
    return {"name": name, "points": [[row["latitude"], row["longitude"]] for row in way]}


def event(label: str, place: Row, tone: str) -> Json:
    """Return a mark of a map at a row with ``latitude`` and ``longitude``."""
    return {"label": label, "latitude": place["latitude"], "longitude": place["longitude"], "tone": tone}


def port_mark(port: PortPlace, name: str = "", *, href: str = "", tone: str = "") -> Json:
    """Return the mark of a port on a map.

    Args:
        name: What it is called there; the port's own name, or its code, when empty.
    """
    return {
        "name": name or port.name or port.unlocode,
        "code": port.unlocode,
        "latitude": port.latitude,
        "longitude": port.longitude,
        "href": href,
        "tone": tone,
    }


def port_marks(codes: Iterable[str | None]) -> list[Json]:
    """Return marks of a map for ports by UN/LOCODE, each once, without those of unknown places."""
    known = ports()
    return [port_mark(known[code]) for code in sorted({code for code in codes if code}) if code in known]


class ShipPlace(NamedTuple):
    """Where a ship was when it was last seen."""

    latitude: float
    longitude: float
    course: float | None
    speed: float | None
    seen: dt.datetime | None


def place_in_row(row: Row) -> ShipPlace:
    """Return the place in a row of table ``ships_now``."""
    course, speed = row["course_over_ground"], row["speed_over_ground"]
    return ShipPlace(row["latitude"], row["longitude"], course, speed, row["device_date_time"])


def place_in_record(position: Position) -> ShipPlace | None:
    """Return the place in a record of a ship's log; None where it tells none."""
    here = position.geo_location
    if here is None:
        return None
    course, speed = position.course_over_ground, position.speed_over_ground
    return ShipPlace(here.latitude, here.longitude, course, speed, position.device.device_date_time)


def newest_places(known: Mapping[str, ShipPlace], positions: Mapping[str, Position]) -> dict[str, ShipPlace]:
    """Return the newest place of each ship, by IMO number.

    Args:
        known: From the tables.
        positions: From the ships' logs.
    """
    found = dict(known)
    for imo, position in positions.items():
        here, before = place_in_record(position), found.get(imo)
        seen = position.device.device_date_time
        if here is not None and (before is None or before.seen is None or before.seen < seen):
            found[imo] = here
    return found


def ship_at(imo: str, place: ShipPlace) -> Json:
    """Return a ship's move on a map; with ``name``, ``href`` and ``tone`` it is the ship's mark."""
    return {"id": imo, **place._asdict(), "seen": place.seen.isoformat() if place.seen else None}


def to_the_minute(moment: dt.datetime) -> str:
    """Return a time in words, for the label of a mark."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"
