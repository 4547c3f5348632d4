"""What a port has coming, as data: ships on their way with the condition of what is aboard, and what is on the dock."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fairlead.errors import ConfigurationError, nearest
from shore.places import Places
from shore.report.approach import LOOK_BACK, Approach, Distance, Place, approach, sea_distance
from shore.report.boxes import BOXES, Audience, Box, box_of
from shore.report.slices import Row, Slices, slices
from shore.tables.model import TIME
from topologies.drawing.seachart import ports

_MOVEMENTS_SHOWN: Final = 100
_CALLS_SHOWN: Final = 20


class Ship(msgspec.Struct, frozen=True, kw_only=True):
    """A ship with what is aboard: boxes for this port first, among these those that something is wrong with.

    ``last_call``: its newest port call (table ``port_calls``), null where none is known.
    """

    vessel_imo_number: str
    vessel: str
    approach: Approach
    last_call: Row | None
    for_port: int
    concerning: int
    boxes: tuple[Box, ...]


class PortReport(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.

    Args:
        as_of: The newest time known in the tables; a report of the past tells the past.
        arriving: Ships that are thought to come, the next one first.
        in_port: Ships that are there.
        elsewhere: How many other ships are known.
        dock: Boxes whose log a site at this port holds.
        movements: The newest first (table ``dock_movements``).
        calls: Ships' calls here, the newest first (table ``port_calls``).
        missing: Tables that are not there yet.
    """

    un_location_code: str
    port: str
    audience: Audience
    as_of: dt.datetime | None
    arriving: tuple[Ship, ...]
    in_port: tuple[Ship, ...]
    elsewhere: int
    dock: tuple[Box, ...]
    movements: tuple[Row, ...]
    calls: tuple[Row, ...]
    versions: dict[str, int]
    missing: tuple[str, ...]


class UnknownPortError(ConfigurationError):
    """No UN/LOCODE, or one that neither the tables nor the list of the world's ports have."""


def port_report(
    places: Places, code: str, audience: Audience = "operator", *, distance: Distance = sea_distance
) -> PortReport:
    """The report of one port.

    Args:
        code: UN/LOCODE; small letters and a blank are taken as well (``jp tyo``).
        audience: ``authority`` is not told what is inside, for whom, or under which booking.
        distance: Nautical miles by sea between two places.

    Raises:
        UnknownPortError: there is no such port.
        UnavailableError: shore has not written any table yet.
    """
    code = "".join(code.split()).upper()
    with slices(places) as found:
        for name in ("sites", "containers_now", "positions", "port_calls"):
            found.add(name)
        found.add("dock_movements", pc.field("un_location_code") == code)
        found.add("bookings")
        found.add("alerts_now", pc.field("state") != "CLEARED")
        found.check_any()
        name, place = _port(found, code)
        found.add("excursions", _since(found))
        aboard = found.rows(BOXES + " where n.holder_kind = 'ship' order by n.equipment_reference", code=code)
        docked = found.rows(BOXES + " where n.un_location_code = $code order by n.equipment_reference", code=code)
        ships = _ships(found, aboard, code, place, audience, distance)
        here = {row["vessel_imo_number"] for row in found.rows(_IN_PORT, code=code)}
        coming = [each for each in ships if each.vessel_imo_number not in here and each.approach.bound != "NO"]
        return PortReport(
            un_location_code=code,
            port=name,
            audience=audience,
            as_of=found.row(_AS_OF)["as_of"],
            arriving=tuple(sorted(coming, key=_next_first)),
            in_port=tuple(each for each in ships if each.vessel_imo_number in here),
            elsewhere=len(ships) - len(coming) - len(here & {each.vessel_imo_number for each in ships}),
            dock=_sorted([box_of(row, audience) for row in docked]),
            movements=tuple(found.rows(_MOVEMENTS, most=_MOVEMENTS_SHOWN)),
            calls=tuple(found.rows(_CALLS, code=code, most=_CALLS_SHOWN)),
            versions=dict(found.versions),
            missing=tuple(found.missing),
        )


_IN_PORT: Final = "select vessel_imo_number from port_calls where in_port and un_location_code = $code"
_AS_OF: Final = """
select max(moment) as as_of from (
    select max(device_date_time) as moment from positions
    union all select max(seen_date_time) from containers_now
    union all select max(event_date_time) from dock_movements
)
"""
_MOVEMENTS: Final = """
select event_date_time, movement, vessel, vessel_imo_number, voyage_reference, equipment_reference, line, event_id
from dock_movements order by event_date_time desc, event_id limit $most
"""
_CALLS: Final = """
select * from port_calls where un_location_code = $code order by call_date_time desc, vessel_imo_number limit $most
"""
_SHIPS: Final = """
select i.vessel_imo_number, coalesce(s.title, c.vessel, i.vessel_imo_number) as vessel
from (
    select distinct vessel_imo_number from sites where kind = 'ship'
    union select distinct vessel_imo_number from positions
    union select distinct vessel_imo_number from port_calls
) i
left join sites s on s.vessel_imo_number = i.vessel_imo_number and s.kind = 'ship'
left join (select vessel_imo_number, any_value(vessel) as vessel from port_calls group by 1) c
    on c.vessel_imo_number = i.vessel_imo_number
where i.vessel_imo_number is not null
order by 1
"""
_RECENT: Final = """
select p.vessel_imo_number, p.device_date_time, p.latitude, p.longitude, p.speed_over_ground, p.course_over_ground
from positions p
join (
    select vessel_imo_number, max(device_date_time) as newest from positions
    where latitude is not null and longitude is not null group by all
) n on n.vessel_imo_number = p.vessel_imo_number and p.device_date_time >= n.newest - $back
where p.latitude is not null and p.longitude is not null
order by p.device_date_time, p.log_offset
"""
_LAST_CALLS: Final = """
select * from port_calls
qualify row_number() over (
    partition by vessel_imo_number order by call_date_time desc, departure_date_time desc nulls first
) = 1
"""


def _ships(
    found: Slices, aboard: Sequence[Row], code: str, place: Place | None, audience: Audience, distance: Distance
) -> list[Ship]:
    """Every ship that the tables know."""
    recent = found.rows(_RECENT, back=LOOK_BACK)
    calls = {row["vessel_imo_number"]: row for row in found.rows(_LAST_CALLS)}
    ships = []
    for row in found.rows(_SHIPS):
        imo = row["vessel_imo_number"]
        boxes = [box_of(each, audience) for each in aboard if each["vessel_imo_number"] == imo]
        booked = sum(box.discharged_here for box in boxes)
        positions = [each for each in recent if each["vessel_imo_number"] == imo]
        ships.append(
            Ship(
                vessel_imo_number=imo,
                vessel=row["vessel"],
                approach=approach(positions, place, booked, distance),
                last_call=calls.get(imo),
                for_port=booked,
                concerning=sum(bool(box.concerns) for box in boxes),
                boxes=_sorted(boxes),
            )
        )
    return ships


def _sorted(boxes: Sequence[Box]) -> tuple[Box, ...]:
    """Boxes for this port first; in each part those with concerns first."""
    return tuple(sorted(boxes, key=lambda box: (not box.discharged_here, -len(box.concerns), box.equipment_reference)))


def _next_first(ship: Ship) -> tuple[bool, dt.datetime, str, str]:
    eta = ship.approach.eta
    return (eta is None, eta or dt.datetime.max.replace(tzinfo=dt.UTC), ship.approach.bound, ship.vessel)


def _since(found: Slices) -> pc.Expression | None:
    """Excursions since the first box that is held now was given to its holder."""
    first = found.row("select min(held_since) as first from containers_now")["first"]
    return None if first is None else pc.field("end_date_time") > pa.scalar(first, TIME)


def _port(found: Slices, code: str) -> tuple[str, Place | None]:
    """What the port is called, and where it is."""
    world = ports().get(code)
    known = {
        row["un_location_code"]: row for row in found.rows("select * from sites where un_location_code is not null")
    }
    if code in known:
        row = known[code]
        has_place = row["longitude"] is not None and row["latitude"] is not None
        here = (row["longitude"], row["latitude"]) if has_place else None
        return row["title"], here or ((world.longitude, world.latitude) if world else None)
    if world is not None:
        return world.name or code, (world.longitude, world.latitude)
    named = [each for each, row in sorted(known.items()) if code.lower() in row["title"].lower()]
    near = nearest(code, known) or (named[0] if named else None)
    text = f"no port {code!r} is known"
    if re.fullmatch("[A-Z]{2}[A-Z2-9]{3}", code) is None:
        text = f"{code!r} is no UN/LOCODE: two letters of the country and three of the place (JPTYO)"
    hint = f"did you mean {near}? " if near else ""
    raise UnknownPortError(text, hint=f"{hint}the tables know {', '.join(sorted(known)) or 'none'}", nearest=near)
