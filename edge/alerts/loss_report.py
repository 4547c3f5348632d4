"""Drafts the report of lost containers that SOLAS V/31 and V/32 require since 1 January 2026 (MSC.550(108)).

In: the overboard alerts of one ship, its environment log, and the bookings it knows. Out: one report per incident, as a
record (JSON) and as text to read, complete and send. ``to_complete`` lists what the logs do not contain; nothing is
guessed. The master decides whether to send the report, and to whom. Pure.

The fields follow the regulation as quoted in Lloyd's Register's Class News 18/25. The form in IMO's GISIS was not
available.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from fairlead.records.alert import OVERBOARD, Alert
from fairlead.records.booking import Booking
from fairlead.records.reading import Base, GeoLocation
from fairlead.records.ship import Environment

ReportType = Literal["PRELIMINARY", "FOLLOW_UP", "FINAL"]
INCIDENT: Final = dt.timedelta(hours=12)  # losses of one ship at most this far apart go into one report; our own choice
RECIPIENTS: Final = ("ships in the vicinity", "the nearest coastal State", "the flag State", "the company")


class ReportedShip(Base, frozen=True, kw_only=True):
    vessel_imo_number: str | None = msgspec.field(name="vesselIMONumber")
    name: str
    call_sign: str | None = None
    mmsi: str | None = None


class LostContainer(Base, frozen=True, kw_only=True):
    """One container. ``last_position`` is its own last position, or the ship's if it has no fix of its own."""

    equipment_reference: str
    alert_id: str = msgspec.field(name="alertID")
    loss_date_time: dt.datetime
    position_at_loss: GeoLocation | None
    last_position: GeoLocation | None
    last_date_time: dt.datetime
    booking_reference: str | None
    commodity: str | None
    evidence: tuple[str, ...]


class Weather(Base, frozen=True, kw_only=True):
    """A report of the ship's environment log. Wind in m/s, waves in m, temperatures in Celsius, pressure in hPa."""

    date_time: dt.datetime
    wind_speed: float | None
    significant_wave_height: float | None
    air_temperature: float | None
    sea_temperature: float | None
    air_pressure: float | None


class LostContainerReport(Base, frozen=True, kw_only=True):
    report_type: ReportType
    draft: bool
    ship: ReportedShip
    loss_date_time: dt.datetime
    position: GeoLocation | None
    position_type: Literal["ACTUAL", "ESTIMATED", "DISCOVERED"]
    number_of_containers: int
    number_is_estimate: bool
    containers: tuple[LostContainer, ...]
    weather: Weather | None
    recipients: tuple[str, ...]
    to_complete: tuple[str, ...]


def incident_of(alert: Alert, history: Sequence[Alert]) -> list[Alert]:
    """Return all states of the overboard alerts of the same incident as ``alert``: same ship, within ``INCIDENT``.

    Leaves out alerts that were cleared, because the container is aboard after all or was discharged.
    """
    states: dict[str, list[Alert]] = {}
    for each in history:
        if each.kind == OVERBOARD and each.raised_at == alert.raised_at:
            states.setdefault(each.alert_id, []).append(each)
    near = [
        story
        for story in states.values()
        if story[-1].state != "CLEARED" and abs(story[0].event_date_time - alert.event_date_time) <= INCIDENT
    ]
    return [each for story in near for each in story]


def draft(
    alerts: Sequence[Alert],
    *,
    ship_name: str,
    environment: Iterable[Environment] = (),
    bookings: Mapping[str, Booking] | None = None,
    report_type: ReportType = "PRELIMINARY",
) -> LostContainerReport:
    """Return the report of one incident.

    Args:
        alerts: The result of ``incident_of``, in the order of the log; at least one.
        environment: The ship's environment reports around that time.
        bookings: Container number to its booking.
    """
    stories: dict[str, list[Alert]] = {}
    for alert in alerts:
        stories.setdefault(alert.alert_id, []).append(alert)
    containers = tuple(
        sorted(
            (_container(story, (bookings or {}).get(story[0].equipment_reference)) for story in stories.values()),
            key=lambda container: (container.loss_date_time, container.equipment_reference),
        )
    )
    first = containers[0]
    imo = next((alert.vessel_imo_number for alert in alerts if alert.vessel_imo_number), None)
    weather = _weather(environment, first.loss_date_time)
    missing = [
        "call sign and MMSI",
        "dangerous goods, with UN numbers",
        "size and type of the containers, and whether they are empty",
        "cargo spill",
        "direction of drift",
        "number of containers, by a count on deck",
    ]
    if first.position_at_loss is None:
        missing.append("position")
    if weather is None:
        missing.append("weather and sea state")
    return LostContainerReport(
        report_type=report_type,
        draft=True,
        ship=ReportedShip(vessel_imo_number=imo, name=ship_name),
        loss_date_time=first.loss_date_time,
        position=first.position_at_loss,
        position_type="ESTIMATED",
        number_of_containers=len(containers),
        number_is_estimate=report_type != "FINAL",
        containers=containers,
        weather=weather,
        recipients=RECIPIENTS,
        to_complete=tuple(missing),
    )


def text(report: LostContainerReport) -> str:
    """Return the report as plain text, with times in UTC and positions in degrees and minutes."""
    ship = report.ship
    lines = [
        f"REPORT OF LOST CONTAINERS (SOLAS V/31, V/32) - {report.report_type.replace('_', '-')} - DRAFT, NOT SENT",
        "",
        f"Ship            {ship.name}, IMO {ship.vessel_imo_number or '?'}",
        f"Time of loss    {_utc(report.loss_date_time)}",
        f"Position        {_degrees(report.position)} ({report.position_type.lower()})",
        f"Number lost     {report.number_of_containers}" + (" (estimate)" if report.number_is_estimate else ""),
        f"Weather         {_weather_line(report.weather)}",
        f"To              {'; '.join(report.recipients)}",
        "",
        "Containers",
    ]
    for each in report.containers:
        cargo = each.commodity or "cargo unknown"
        booking = f", booking {each.booking_reference}" if each.booking_reference else ""
        where = f"{_utc(each.loss_date_time)}  {_degrees(each.position_at_loss)}"
        lines += [
            f"  {each.equipment_reference}  {where}  {cargo}{booking}",
            f"      last known {_utc(each.last_date_time)} at {_degrees(each.last_position)}",
            f"      evidence: {'; '.join(each.evidence)}",
        ]
    lines += ["", "To be completed by the master", *(f"  - {each}" for each in report.to_complete)]
    return "\n".join(lines) + "\n"


def _container(story: Sequence[Alert], booking: Booking | None) -> LostContainer:
    opened, last = story[0], story[-1]
    return LostContainer(
        equipment_reference=opened.equipment_reference,
        alert_id=opened.alert_id,
        loss_date_time=opened.event_date_time,
        position_at_loss=opened.geo_location,
        last_position=last.geo_location,
        last_date_time=last.event_date_time,
        booking_reference=booking.booking_reference if booking is not None else None,
        commodity=(booking.commodity or None) if booking is not None else None,
        evidence=tuple(f"{each.name}: {each.detail}" if each.detail else each.name for each in last.evidence),
    )


def _weather(environment: Iterable[Environment], at: dt.datetime) -> Weather | None:
    """Return the report nearest to a time, within ``INCIDENT`` of it; None if there is none."""
    near = [each for each in environment if abs(each.device.device_date_time - at) <= INCIDENT]
    if not near:
        return None
    best = min(near, key=lambda each: abs(each.device.device_date_time - at))
    return Weather(
        date_time=best.device.device_date_time,
        wind_speed=best.wind_speed,
        significant_wave_height=best.significant_wave_height,
        air_temperature=best.air_temperature,
        sea_temperature=best.sea_temperature,
        air_pressure=best.air_pressure,
    )


def _weather_line(weather: Weather | None) -> str:
    if weather is None:
        return "not known"
    named = (
        ("wind", weather.wind_speed, "m/s"),
        ("waves", weather.significant_wave_height, "m"),
        ("sea", weather.sea_temperature, "C"),
        ("air", weather.air_temperature, "C"),
        ("pressure", weather.air_pressure, "hPa"),
    )
    known = [f"{name} {value:g} {unit}" for name, value, unit in named if value is not None]
    return f"{', '.join(known) or 'not known'} (at {_utc(weather.date_time)})"


def _utc(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _degrees(place: GeoLocation | None) -> str:
    """Return a position in degrees and minutes: 33-51.30S 151-12.00E."""
    if place is None:
        return "position not known"
    return f"{_minutes(place.latitude, 2, 'NS')} {_minutes(place.longitude, 3, 'EW')}"


def _minutes(value: float, width: int, signs: str) -> str:
    hundredths = round(abs(value) * 6000)
    whole, rest = divmod(hundredths, 6000)
    return f"{whole:0{width}d}-{rest / 100:05.2f}{signs[value < 0]}"
