"""What a port has coming, as data: ships on their way, the condition of the boxes aboard, and the boxes on the dock.

The board makes its page (``board.pages.port``). No log says where a ship is bound for, so whether and when a ship comes
is estimated from its positions (``approach``).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from fairlead.errors import ConfigurationError, nearest
from fairlead.records.alert import LEFT_PORT, NOT_HEARD, OVERBOARD
from fairlead.records.reading import PowerState, power_state
from shore.paths import TablePaths
from shore.report.slices import Row, Slices, open_slices
from shore.report.wording import STATES, duration, number
from shore.tables.model import TIME
from shore.tables.valid_bookings import VALID_BOOKINGS, covers
from topologies.drawing.seachart import ports

Place = tuple[float, float]
"""Longitude and latitude, WGS 84."""
Distance = Callable[[Place, Place], float]
"""A function that returns nautical miles by sea."""
Bound = Literal["CARGO", "COURSE", "NO"]

LOOK_BACK: Final = dt.timedelta(hours=6)
_SAILING: Final = 1.0  # knots; a slower ship lies still
_NEARER: Final = 0.5  # of the way it made: it comes nearer
_AWAY: Final = -0.25  # the same for going away; values in between may come from turns of the lanes


class Approach(msgspec.Struct, frozen=True, kw_only=True):
    """A ship's approach to the port, as far as its positions show it.

    Args:
        bound: Why it is expected: ``CARGO``: boxes aboard are booked to be discharged here; ``COURSE``: it comes
            nearer, and nothing else is known; ``NO``: neither.
        position_date_time: Time of its newest position; ``speed`` and ``course`` (knots, degrees) are of that position.
        distance: Nautical miles from there by sea lanes; null where the port's place is not known.
        mean_speed: Knots over the last six hours.
        comes_nearer: Whether these six hours brought it nearer by at least half of the way that it made; null where
            that cannot be determined.
        eta: position_date_time + distance / mean_speed; null while it lies still or goes away.
        basis: How the estimate was made, in words.
    """

    bound: Bound
    position_date_time: dt.datetime | None = None
    latitude: float | None = None
    longitude: float | None = None
    speed: float | None = None
    course: float | None = None
    distance: float | None = None
    mean_speed: float | None = None
    comes_nearer: bool | None = None
    eta: dt.datetime | None = None
    basis: str = ""


def approach(positions: Sequence[Row], port: Place | None, booked: int, distance: Distance) -> Approach:
    """Judge a ship's approach by its positions of the last hours, in order of time.

    Args:
        positions: Rows of table ``positions`` with a place.
        booked: How many boxes aboard are booked to be discharged at the port.
    """
    if not positions:
        basis = "no position of the ship is known"
        return Approach(bound="CARGO" if booked else "NO", basis=_because(booked, basis))
    newest = positions[-1]
    recent = [row for row in positions if row["device_date_time"] >= newest["device_date_time"] - LOOK_BACK]
    here, earlier = _place(newest), _place(recent[0])
    hours = (newest["device_date_time"] - recent[0]["device_date_time"]) / dt.timedelta(hours=1)
    speed = _mean([row["speed_over_ground"] for row in recent if row["speed_over_ground"] is not None])
    left = distance(here, port) if port is not None else None
    nearer = distance(earlier, port) - left if port is not None and left is not None and hours > 0 else None
    sails = speed is not None and speed >= _SAILING
    gain = nearer / (speed * hours) if nearer is not None and speed is not None and sails else None
    comes = None if gain is None else gain >= _NEARER
    bound: Bound = "CARGO" if booked else "COURSE" if comes else "NO"
    eta = None
    if left is not None and speed is not None and sails and (gain is None or gain > _AWAY):
        with contextlib.suppress(OverflowError):  # its clock is at the end of the calendar
            eta = newest["device_date_time"] + dt.timedelta(hours=left / speed)
    return Approach(
        bound=bound,
        position_date_time=newest["device_date_time"],
        latitude=newest["latitude"],
        longitude=newest["longitude"],
        speed=newest["speed_over_ground"],
        course=newest["course_over_ground"],
        distance=None if left is None else round(left, 1),
        mean_speed=None if speed is None else round(speed, 1),
        comes_nearer=comes,
        eta=None if eta is None else eta.replace(second=0, microsecond=0),
        basis=_because(booked, _estimate(left, speed, eta)),
    )


@lru_cache(maxsize=4096)
def sea_distance(start: Place, end: Place) -> float:
    """Return nautical miles along sea lanes (by searoute), including the way from both ends to the nearest lane.

    A report asks twice for each ship, and each takes some milliseconds; a ship's place changes every ten minutes.
    """
    import searoute

    found = searoute.searoute(list(start), list(end), units="naut", append_orig_dest=True)
    return float(found["properties"]["length"])


def _estimate(left: float | None, speed: float | None, eta: dt.datetime | None) -> str:
    if left is None:
        return "the port's place is not known"
    if speed is None or speed < _SAILING:
        return f"{left:,.0f} nmi away by sea lanes, and it lies still"
    if eta is None:
        return f"{left:,.0f} nmi away by sea lanes, and it goes away"
    return f"estimated: {left:,.0f} nmi by sea lanes at {speed:.1f} kn, the mean of its last six hours"


def _because(booked: int, text: str) -> str:
    why = (
        f"{booked} box{'es' if booked != 1 else ''} aboard booked to here" if booked else "no box aboard booked to here"
    )
    return f"{why}; {text}"


def _place(row: Row) -> Place:
    return row["longitude"], row["latitude"]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


Audience: TypeAlias = Literal["operator", "authority"]
"""Who reads: a port's operator handles the cargo; a port authority must not learn what it is."""

_SETPOINT_KELVIN: Final = 0.05  # a smaller difference is rounding

BOXES: Final = f"""
select n.*, b.port_of_discharge, b.commodity, b.setpoint_temperature as agreed_temperature,
    coalesce(b.port_of_discharge = $code, false) as discharged_here,
    coalesce(e.excursions, 0) as excursions, coalesce(e.minutes_out_of_band, 0) as minutes_out_of_band,
    coalesce(a.kinds, []) as alert_kinds, coalesce(a.acknowledged_by, []) as acknowledged_by
from containers_now n
left join ({VALID_BOOKINGS.format(bookings="bookings")}) b
    on b.equipment_reference = n.equipment_reference and b.booking_reference = n.booking_reference
    and {covers("b", "n.seen_date_time")}
left join (
    select x.equipment_reference, count(*) as excursions, sum(x.minutes_out_of_band) as minutes_out_of_band
    from excursions x join containers_now h on h.equipment_reference = x.equipment_reference
        and x.end_date_time > h.held_since
    where x.quantity = 'TEMPERATURE' group by all
) e on e.equipment_reference = n.equipment_reference
left join (
    select equipment_reference, list(distinct kind order by kind) as kinds,
        list(distinct acknowledged_by order by acknowledged_by) filter (where acknowledged_by is not null)
            as acknowledged_by
    from alerts_now group by all
) a on a.equipment_reference = n.equipment_reference
"""  # noqa: S608  # our own text
"""Boxes with their booking, their temperature excursions since their holder got them, and their open alerts. ``$code``
is the port. The caller appends a ``where``."""


class Cargo(msgspec.Struct, frozen=True, kw_only=True):
    """What a port authority does not see."""

    booking_reference: str | None
    customer: str | None
    commodity: str | None


class PortBox(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One box. Degrees Celsius; ``reading_date_time`` is the device time of its newest reading.

    Args:
        by_digest: Whether the ship's digest says this of the reading, and the reading itself has not arrived.
        discharged_here: Whether it is booked to be unloaded at the port of the report.
        agreed_temperature: Set point of its booking.
        acknowledged_by: Who has acknowledged open alerts of it.
        excursions: Temperature excursions since its holder got it, with ``minutes_out_of_band`` in them.
        concerns: What is wrong with it, in words; empty when nothing is.
        cargo: Null for a port authority.
    """

    equipment_reference: str
    line: str | None
    discharged_here: bool
    port_of_discharge: str | None
    held_since: dt.datetime | None
    reading_date_time: dt.datetime | None
    setpoint_temperature: float | None
    agreed_temperature: float | None
    supply_temperature: float | None
    return_temperature: float | None
    is_connected_to_power_source: bool | None
    is_powered: bool | None
    open_alerts: int
    worst_severity: str | None
    alert_kinds: tuple[str, ...]
    acknowledged_by: tuple[str, ...]
    excursions: int
    minutes_out_of_band: float
    concerns: tuple[str, ...]
    by_digest: bool = False
    cargo: Cargo | None = None

    @property
    def power(self) -> PowerState | None:
        return power_state(self.is_connected_to_power_source, self.is_powered)

    @property
    def lost(self) -> bool:
        """Whether it has fallen overboard, by an open alert. Custody still says that it is aboard."""
        return OVERBOARD in self.alert_kinds


def box_of(row: Row, audience: Audience) -> PortBox:
    """Return the box of a row of ``BOXES``. Each structure takes of the row the fields that it names."""
    return msgspec.convert(
        row
        | {
            "open_alerts": row["open_alerts"] or 0,
            "concerns": concerns(row),
            "by_digest": row["reading_source"] == "DIGEST",
            "cargo": row if audience == "operator" else None,
        },
        PortBox,
    )


def concerns(row: Row) -> tuple[str, ...]:
    """Return what is wrong with a box, in words, in this order: alerts, excursions, power, set point, door, water.

    A digest says that the air is out of the band; of readings, the excursions say it.
    """
    found = []
    if row["open_alerts"]:
        kinds = ", ".join(row["alert_kinds"]) or f"{row['open_alerts']}"
        seen = f", acknowledged by {', '.join(row['acknowledged_by'])}" if row["acknowledged_by"] else ""
        found.append(f"open alerts: {kinds} ({row['worst_severity'] or 'severity unknown'}){seen}")
    if row["excursions"]:
        times = f"{row['excursions']} times" if row["excursions"] > 1 else "once"
        found.append(f"out of band {times}, {duration(row['minutes_out_of_band'])}")
    if row["in_band"] is False:
        found.append("out of band, says the ship's digest")
    if row["setpoint_temperature"] is not None:
        power = power_state(row["is_connected_to_power_source"], row["is_powered"])
        if power in ("NO_POWER", "UNPLUGGED"):
            found.append(STATES[power])
        agreed = row["agreed_temperature"]
        if agreed is not None and abs(row["setpoint_temperature"] - agreed) > _SETPOINT_KELVIN:
            found.append(f"set to {number(row['setpoint_temperature'])}, agreed {number(agreed)}")
    if row["door_open"]:
        found.append("door open")
    if row["immersed"]:
        found.append("in water")
    return tuple(found)


_OF_BOXES: Final = sorted({*PortBox.__struct_fields__, *Cargo.__struct_fields__} - {"concerns", "by_digest", "cargo"})
_PERHAPS_WRONG: Final = f"""
coalesce(open_alerts > 0, false) or len(alert_kinds) > 0 or excursions > 0 or coalesce(not in_band, false)
    or coalesce(door_open, false) or coalesce(immersed, false)
    or setpoint_temperature is not null and (
        not coalesce(is_connected_to_power_source, true) or not coalesce(is_powered, true)
        or coalesce(abs(setpoint_temperature - agreed_temperature) >= {_SETPOINT_KELVIN}, false)
    )
"""
"""True for each box for which ``concerns`` finds anything."""

_HERE_OR_AT_SEA: Final = f"""
create temp table here_or_at_sea as
select *, $most is null or coalesce(un_location_code = $code, false) or {_PERHAPS_WRONG} or row_number() over (
        partition by vessel_imo_number, holder_kind order by not discharged_here, equipment_reference
    ) <= $most as chosen
from (
    select {", ".join(_OF_BOXES)},
        holder_kind, vessel_imo_number, un_location_code, reading_source, in_band, door_open, immersed
    from ({BOXES})
    where holder_kind = 'ship' or un_location_code = $code
)
"""  # noqa: S608  # our own text
_CHOSEN: Final = "select * exclude (chosen) from here_or_at_sea where chosen order by equipment_reference"
_OTHERS: Final = """
select vessel_imo_number, count(*) as others, count(*) filter (where discharged_here) as for_port
from here_or_at_sea where not chosen group by 1
"""

_MOVEMENTS_SHOWN: Final = 100
_CALLS_SHOWN: Final = 20


class Ship(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A ship and the boxes aboard: those for this port first, in each group those with most concerns first.
    ``last_call``: its newest port call (table ``port_calls``), null where none is known. ``boxes`` also has those that
    were lost overboard; ``for_port`` does not count them. ``others``: how many more are aboard, with nothing wrong."""

    vessel_imo_number: str
    vessel: str
    approach: Approach
    last_call: Row | None
    for_port: int
    concerning: int
    boxes: tuple[PortBox, ...]
    others: int = 0

    @property
    def aboard(self) -> int:
        """Number of boxes without those that were lost overboard."""
        return sum(not box.lost for box in self.boxes) + self.others


class PortReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report.

    Args:
        as_of: The newest time in the tables; on old data the report shows the past.
        arriving: Ships that are expected, the next one first.
        in_port: Ships that are there.
        elsewhere: How many other ships are known.
        not_heard: Boxes that left this port by ship and were not heard since: the ships' open alerts
            ``NOT_HEARD_SINCE_DEPARTURE``. An empty ``equipment_reference`` stands for most boxes of the ship.
        dock: Boxes whose log a site at this port holds.
        movements: The newest first (table ``dock_movements``).
        calls: Ships' calls here, the newest first (table ``port_calls``).
        missing: Tables that do not exist yet.
    """

    un_location_code: str
    port: str
    audience: Audience
    as_of: dt.datetime | None
    arriving: tuple[Ship, ...]
    in_port: tuple[Ship, ...]
    elsewhere: int
    not_heard: tuple[Row, ...]
    dock: tuple[PortBox, ...]
    movements: tuple[Row, ...]
    calls: tuple[Row, ...]
    versions: dict[str, int]
    missing: tuple[str, ...]


READ: Final = (
    "sites",
    "containers_now",
    "positions",
    "port_calls",
    "dock_movements",
    "bookings",
    "alerts_now",
    "excursions",
)
"""The tables that a report is made from, and nothing else."""


class UnknownPortError(ConfigurationError):
    """No UN/LOCODE, or one that is neither in the tables nor in the list of the world's ports."""


def port_report(
    paths: TablePaths,
    code: str,
    audience: Audience = "operator",
    *,
    most: int | None = None,
    distance: Distance = sea_distance,
) -> PortReport:
    """Return the report of one port.

    Args:
        code: UN/LOCODE; small letters and blanks are accepted (``jp tyo``).
        audience: ``authority`` does not see contents, customers or bookings.
        most: Name of each ship only the boxes with something wrong, and so many more, those for this port first.
        distance: Nautical miles by sea between two places.

    Raises:
        UnknownPortError: there is no such port.
        UnavailableError: shore has not written any table yet.
    """
    code = "".join(code.split()).upper()
    with open_slices(paths) as found:
        for name in ("sites", "containers_now", "positions", "port_calls"):
            found.add(name)
        found.add("dock_movements", pc.field("un_location_code") == code)
        found.add("bookings")
        found.add("alerts_now", pc.field("state") != "CLEARED")
        found.check_any()
        name, place = _port(found, code)
        found.add("excursions", _since(found))
        found.run(_HERE_OR_AT_SEA, code=code, most=most)
        rows = found.rows(_CHOSEN)
        aboard: dict[str, list[PortBox]] = defaultdict(list)
        for row in rows:
            if row["holder_kind"] == "ship":
                aboard[row["vessel_imo_number"]].append(box_of(row, audience))
        docked = [box_of(row, audience) for row in rows if row["un_location_code"] == code]
        ships = _ships(found, aboard, place, distance)
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
            not_heard=tuple(found.rows(_NOT_HEARD, kind=NOT_HEARD, left=f"{LEFT_PORT}: {code}")),
            dock=_sorted(docked),
            movements=tuple(found.rows(_MOVEMENTS, most=_MOVEMENTS_SHOWN)),
            calls=tuple(found.rows(_CALLS, code=code, most=_CALLS_SHOWN)),
            versions=dict(found.versions),
            missing=tuple(found.missing),
        )


_NOT_HEARD: Final = """
select a.equipment_reference, coalesce(s.title, a.raised_at) as vessel, a.vessel_imo_number, a.severity,
    a.opened_date_time, a.detail, a.alert_id
from alerts_now a
left join sites s on s.site = a.raised_at and s.kind = 'ship'
where a.source = 'site' and a.kind = $kind and contains(a.detail, $left)
order by a.opened_date_time desc, a.equipment_reference
"""
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
from dock_movements order by event_date_time desc, event_id, log, log_offset limit $most
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
    found: Slices, aboard: Mapping[str, Sequence[PortBox]], place: Place | None, distance: Distance
) -> list[Ship]:
    """Every ship that the tables know. ``aboard``: boxes by IMO number."""
    recent: dict[str, list[Row]] = defaultdict(list)
    for row in found.rows(_RECENT, back=LOOK_BACK):
        recent[row["vessel_imo_number"]].append(row)
    calls = {row["vessel_imo_number"]: row for row in found.rows(_LAST_CALLS)}
    others = {row["vessel_imo_number"]: row for row in found.rows(_OTHERS)}
    ships = []
    for row in found.rows(_SHIPS):
        imo = row["vessel_imo_number"]
        boxes, more = aboard.get(imo, ()), others.get(imo, {"others": 0, "for_port": 0})
        booked = sum(box.discharged_here and not box.lost for box in boxes) + more["for_port"]
        ships.append(
            Ship(
                vessel_imo_number=imo,
                vessel=row["vessel"],
                approach=approach(recent.get(imo, ()), place, booked, distance),
                last_call=calls.get(imo),
                for_port=booked,
                concerning=sum(bool(box.concerns) for box in boxes),
                boxes=_sorted(boxes),
                others=more["others"],
            )
        )
    return ships


def _sorted(boxes: Sequence[PortBox]) -> tuple[PortBox, ...]:
    """Boxes for this port first; within each group those with most concerns first."""
    return tuple(sorted(boxes, key=lambda box: (not box.discharged_here, -len(box.concerns), box.equipment_reference)))


def _next_first(ship: Ship) -> tuple[bool, dt.datetime, str, str]:
    eta = ship.approach.eta
    return (eta is None, eta or dt.datetime.max.replace(tzinfo=dt.UTC), ship.approach.bound, ship.vessel)


def _since(found: Slices) -> pc.Expression | None:
    """Excursions since the earliest time at which a present holder got its box."""
    first = found.row("select min(held_since) as first from containers_now")["first"]
    return None if first is None else pc.field("end_date_time") > pa.scalar(first, TIME)


def _port(found: Slices, code: str) -> tuple[str, Place | None]:
    """The port's name and place."""
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
