"""Compute tables ``port_calls``, ``voyages``, ``geofence_visits`` and ``ships_now`` without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shore.delta.datasets import is_in, open_dataset
from shore.jobs.reference import stored
from shore.paths import TablePaths
from shore.sailing import Call, Leg, Port, ShipEvent, TimeBounds, Track, nautical_miles, sail
from shore.tables.geofence_visits import GEOFENCE_VISITS
from shore.tables.itineraries import PORT_CALLS, VOYAGES
from shore.tables.reference import GEOFENCES, SITES
from shore.tables.ships_now import NEWEST, SHIPS_NOW
from tests.support.oracle.sql import select

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_TOGETHER = 20  # ships whose positions are read at once
_ORDER = ("vessel_imo_number", "device_date_time", "log", "log_offset")


def port_calls(paths: TablePaths) -> pa.Table:
    """Return table ``port_calls`` as it must be."""
    return _everything(paths)[0]


def voyages(paths: TablePaths) -> pa.Table:
    """Return table ``voyages`` as it must be."""
    return _everything(paths)[1]


def ships_now(paths: TablePaths) -> pa.Table:
    """Return table ``ships_now`` as it must be."""
    positions, sites = open_dataset(paths, "positions"), stored(paths, SITES)
    return select(NEWEST, SHIPS_NOW.plain_schema, positions=positions, sites=sites)


def geofence_visits(paths: TablePaths) -> pa.Table:
    """Return table ``geofence_visits`` as it must be, position by position."""
    sea = _Sea(paths)
    found: list[dict[str, Any]] = []
    for ship in sea.ships():
        track = sea.tracks({ship: TimeBounds()})(ship)
        for fence in stored(paths, GEOFENCES).to_pylist():
            here: dict[str, Any] | None = None
            last: dt.datetime | None = None
            for micros, latitude, longitude in zip(track.time, track.latitude, track.longitude, strict=True):
                away = nautical_miles(latitude, longitude, fence["latitude"], fence["longitude"])
                if away * 1.852 > fence["within_km"]:
                    if here is not None:
                        here["left_date_time"] = last
                    here = None
                    continue
                last = _time(int(micros))
                if here is None:
                    here = {"vessel_imo_number": ship, "vessel": sea.names.get(ship), "geofence": fence["geofence"]}
                    here |= {"entered_date_time": last, "left_date_time": None, "positions": 0}
                    found.append(here)
                here["positions"] += 1
    return pa.Table.from_pylist(found, schema=GEOFENCE_VISITS.plain_schema)


def _everything(paths: TablePaths) -> tuple[pa.Table, pa.Table]:
    sea = _Sea(paths)
    events = sea.events()
    return sea.rows({ship: TimeBounds() for ship in sorted({*events, *sea.ships()})}, events)


class _Sea:
    """What the tables know of ships."""

    def __init__(self, paths: TablePaths) -> None:
        self._movements = open_dataset(paths, "dock_movements")
        self._positions = open_dataset(paths, "positions")
        sites = stored(paths, SITES).to_pylist()
        self.names = {row["vessel_imo_number"]: row["title"] for row in sites if row["kind"] == "ship"}
        self._ports = sorted(
            {
                Port(row["un_location_code"], row["latitude"], row["longitude"])
                for row in sites
                if row["latitude"] is not None
            }
        )

    def ships(self) -> list[str]:
        """Return the ships that have positions."""
        found = self._positions.to_table(columns=["vessel_imo_number"], filter=pc.field("problem").is_null())
        return [ship for ship in pc.unique(found["vessel_imo_number"]).to_pylist() if ship is not None]

    def events(self, ships: Sequence[str] | None = None) -> dict[str, list[ShipEvent]]:
        """Return every ARRI and DEPA with a ship and a port, by ship."""
        wanted = is_in("movement", ("ARRI", "DEPA"))
        if ships is not None:
            wanted &= is_in("vessel_imo_number", ships)
        columns = ["event_id", "movement", "event_date_time", "un_location_code", "vessel_imo_number"]
        found: dict[str, list[ShipEvent]] = {}
        for row in self._movements.to_table(columns=[*columns, "voyage_reference"], filter=wanted).to_pylist():
            if row["vessel_imo_number"] is None or row["un_location_code"] is None:
                continue
            event = ShipEvent(
                _micros(row["event_date_time"]),
                row["movement"],
                row["un_location_code"],
                row["event_id"],
                row["voyage_reference"],
            )
            found.setdefault(row["vessel_imo_number"], []).append(event)
        return found

    def rows(
        self, bounds: Mapping[str, TimeBounds], events: Mapping[str, Sequence[ShipEvent]]
    ) -> tuple[pa.Table, pa.Table]:
        """Return the rows of ``port_calls`` and ``voyages`` that begin within the bounds of each ship."""
        calls: list[dict[str, Any]] = []
        legs: list[dict[str, Any]] = []
        ships = sorted(bounds)
        for together in (ships[first : first + _TOGETHER] for first in range(0, len(ships), _TOGETHER)):
            tracks = self.tracks({ship: bounds[ship] for ship in together})
            for ship in together:
                begun, sailed = sail(events.get(ship, ()), tracks(ship), self._ports, bounds[ship])
                name = {"vessel_imo_number": ship, "vessel": self.names.get(ship)}
                calls += [name | _call(call) for call in begun]
                legs += [name | _leg(leg) for leg in sailed]
        return (
            pa.Table.from_pylist(calls, schema=PORT_CALLS.plain_schema),
            pa.Table.from_pylist(legs, schema=VOYAGES.plain_schema),
        )

    def tracks(self, bounds: Mapping[str, TimeBounds]) -> Callable[[str], Track]:
        """Read the positions of some ships at once; return a function that gives the track of each."""
        wanted = is_in("vessel_imo_number", bounds) & pc.field("latitude").is_valid()
        since = [part.read_since for part in bounds.values()]
        until = [part.read_until for part in bounds.values()]
        if (first := min((t for t in since if t is not None), default=None)) is not None and None not in since:
            wanted &= pc.field("device_date_time") >= _time(first)
        if (last := max((t for t in until if t is not None), default=None)) is not None and None not in until:
            wanted &= pc.field("device_date_time") < _time(last)
        columns = ["latitude", "longitude", "speed_over_ground", "navigation_status"]
        found = self._positions.to_table(columns=[*_ORDER, *columns], filter=wanted)
        ordered = found.sort_by([(name, "ascending") for name in _ORDER])
        names = ordered["vessel_imo_number"].to_numpy()

        def track(ship: str) -> Track:
            low, high = np.searchsorted(names, ship), np.searchsorted(names, ship, side="right")
            return _track(ordered.slice(low, high - low))

        return track


def _track(ordered: pa.Table) -> Track:
    """Return the positions of one ship, in order; of several at one moment, the one that was written first."""
    time = ordered["device_date_time"].cast(pa.int64()).to_numpy()
    first = np.ones(len(time), bool)
    first[1:] = np.diff(time) > 0

    def floats(name: str) -> Any:
        return ordered[name].cast(pa.float64()).to_numpy()[first]

    status = pc.fill_null(ordered["navigation_status"], 15).cast(pa.int64()).to_numpy()[first]
    return Track(time[first], floats("latitude"), floats("longitude"), floats("speed_over_ground"), status)


def _call(call: Call) -> dict[str, Any]:
    return {
        "un_location_code": call.port,
        "call_date_time": _time(call.time),
        "arrival_date_time": _maybe(call.arrival),
        "departure_date_time": _maybe(call.departure),
        "arrival_source": call.arrival_source,
        "departure_source": call.departure_source,
        "in_port": not call.left,
        "inbound_voyage_reference": call.inbound,
        "outbound_voyage_reference": call.outbound,
    }


def _leg(leg: Leg) -> dict[str, Any]:
    return {
        "leg_date_time": _time(leg.time),
        "voyage_reference": leg.voyage,
        "from_un_location_code": leg.from_port,
        "to_un_location_code": leg.to_port,
        "departure_date_time": _maybe(leg.departure),
        "arrival_date_time": _maybe(leg.arrival),
        "last_position_date_time": _maybe(leg.last_position),
        "positions": leg.positions,
        "distance": leg.distance,
        "mean_speed": leg.speed,
        "gaps": leg.gaps,
        "gap_minutes": leg.gap_micros / 6e7,
        "longest_gap_minutes": leg.longest_gap_micros / 6e7,
    }


def _micros(time: dt.datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _time(micros: int) -> dt.datetime:
    return _EPOCH + micros * _MICROSECOND


def _maybe(micros: int | None) -> dt.datetime | None:
    return None if micros is None else _time(micros)
