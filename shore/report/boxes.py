"""A box as the report of a port shows it: what it should be, what it is, and what is wrong with it."""

from __future__ import annotations

import datetime as dt
from typing import Final, Literal, TypeAlias

import msgspec

from shore.report.page import duration, number
from shore.report.slices import Row
from shore.tables.valid_bookings import VALID_BOOKINGS, covers

Audience: TypeAlias = Literal["operator", "authority"]
"""Who reads: a port's operator handles the cargo, a port authority is not told what it is."""

_SETPOINT_KELVIN: Final = 0.05  # what is less is rounding

BOXES: Final = f"""
select n.*, b.port_of_discharge, b.commodity, b.setpoint_temperature as agreed_temperature,
    coalesce(b.port_of_discharge = $code, false) as discharged_here,
    coalesce(e.excursions, 0) as excursions, coalesce(e.minutes_out_of_band, 0) as minutes_out_of_band,
    coalesce(a.kinds, []) as alert_kinds
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
    select equipment_reference, list(distinct kind order by kind) as kinds from alerts_now group by all
) a on a.equipment_reference = n.equipment_reference
"""  # noqa: S608  # our own text
"""Boxes with their booking, their excursions since they came where they are, and their open alerts; ``$code`` is the
port. To be completed with a ``where``."""


class Cargo(msgspec.Struct, frozen=True, kw_only=True):
    """What a port authority is not told."""

    booking_reference: str | None
    customer: str | None
    commodity: str | None


class Box(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One box. Degrees Celsius; ``reading_date_time`` is the device time of what it last said.

    Args:
        discharged_here: Whether it is booked to be unloaded at the port of the report.
        agreed_temperature: Set point that its booking names.
        excursions: Of the temperature, since it came where it is; ``minutes_out_of_band`` in them.
        concerns: What is wrong with it, in words, the worst first; empty when nothing is.
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
    is_powered: bool | None
    open_alerts: int
    worst_severity: str | None
    alert_kinds: tuple[str, ...]
    excursions: int
    minutes_out_of_band: float
    concerns: tuple[str, ...]
    cargo: Cargo | None = None


def box_of(row: Row, audience: Audience) -> Box:
    """A box from a row of ``BOXES``."""
    fields = {name: row[name] for name in Box.__struct_fields__ if name in row}
    fields["alert_kinds"] = tuple(row["alert_kinds"])
    fields["open_alerts"] = row["open_alerts"] or 0
    fields["is_powered"] = _both(row["is_powered"], row["is_connected_to_power_source"])
    cargo = Cargo(**{name: row[name] for name in Cargo.__struct_fields__}) if audience == "operator" else None
    return Box(**fields, concerns=concerns(row), cargo=cargo)


def concerns(row: Row) -> tuple[str, ...]:
    """What is wrong with a box."""
    found = []
    if row["open_alerts"]:
        kinds = ", ".join(row["alert_kinds"]) or f"{row['open_alerts']}"
        found.append(f"open alerts: {kinds} ({row['worst_severity'] or 'severity unknown'})")
    if row["excursions"]:
        times = f"{row['excursions']} times" if row["excursions"] > 1 else "once"
        found.append(f"out of band {times}, {duration(row['minutes_out_of_band'])}")
    if row["setpoint_temperature"] is not None:
        if _both(row["is_powered"], row["is_connected_to_power_source"]) is False:
            found.append("no power")
        agreed = row["agreed_temperature"]
        if agreed is not None and abs(row["setpoint_temperature"] - agreed) > _SETPOINT_KELVIN:
            found.append(f"set to {number(row['setpoint_temperature'])}, agreed {number(agreed)}")
    if row["door_open"]:
        found.append("door open")
    if row["immersed"]:
        found.append("in water")
    return tuple(found)


def _both(one: bool | None, other: bool | None) -> bool | None:
    """Whether both are so; None where nothing says so or otherwise."""
    if one is None or other is None:
        return one if other is None else other
    return one and other
