"""The report of one container as a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from shore.report import course, drawing
from shore.report.container import ContainerReport
from shore.report.course import Interval
from shore.report.drawing import Mark
from shore.report.page import number, render, time
from shore.report.slices import Row, Slices
from shore.tables.bands import BAND_KELVIN
from topologies.drawing.seachart import ports

_GAPS_SHOWN: Final = 20
_EVENTS_SHOWN: Final = 200
_REJECTED_SHOWN: Final = 50


def container_page(found: Slices, report: ContainerReport, doubts: Sequence[str] = ()) -> str:
    """The page of a report; the drawings are made from what ``open_container`` opened for it.

    Args:
        doubts: What it may lack (``shore.report.doubts``); stands at its top.
    """
    defrosts = [each for each in report.states if each.kind == "DEFROST"]
    behind: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in report.alert_readings:
        behind[row["source"], row["alert_id"]].append(row)
    events = [each for each in (*report.states, *report.wrong_set_points) if each.kind != "DEFROST"]
    return render(
        "container.html.j2",
        report.sites,
        r=report,
        doubts=doubts,
        f=report.figures,
        out=_out_of_band(report),
        open_alerts=sum(row["state"] != "CLEARED" for row in report.alerts),
        way=drawing.way(report.way, _marks(report)),
        told_way=_told_way(report),
        told_chart=_told_chart(report),
        rejected_shown=_REJECTED_SHOWN,
        sources=_sources(report),
        chart=_chart(found, report),
        band=BAND_KELVIN,
        events=sorted(sorted(events, key=lambda each: -each.minutes)[:_EVENTS_SHOWN], key=lambda each: each.start),
        events_in_all=len(events),
        states=drawing.STATES,
        defrosts=defrosts,
        defrost_minutes=sum(each.minutes for each in defrosts),
        behind=behind,
        missing_numbers=sum(row["missing"] or 0 for row in report.quality),
        gap_minutes=sum(each.minutes for each in report.gaps),
        longest_gaps=sorted(report.gaps, key=lambda each: -each.minutes)[:_GAPS_SHOWN],
    )


def _chart(found: Slices, report: ContainerReport) -> str:
    first, last = report.figures.first_date_time, report.figures.last_date_time
    if first is None or last is None:
        return ""
    excursions = [
        Interval(kind="EXCURSION", start=row["start_date_time"], end=row["end_date_time"])
        for row in report.excursions
        if row["quantity"] == "TEMPERATURE"
    ]
    pixel = (last - first) / drawing.WIDTH
    states = course.joined([*report.states, *report.wrong_set_points, *report.gaps], 2 * pixel)
    return drawing.temperatures(
        course.curve(found), course.set_points(found), states, excursions, span=(first, last), band=BAND_KELVIN
    )


def _told_way(report: ContainerReport) -> str:
    """The map in words, for who cannot see it."""
    names = [mark.label for mark in _marks(report)]
    what = f"Map of the way of {report.equipment_reference}"
    if report.way:
        what += f" from {time(report.way[0]['time'])} to {time(report.way[-1]['time'])} UTC"
    return f"{what}; marked: {', '.join(names)}." if names else f"{what}."


def _told_chart(report: ContainerReport) -> str:
    """The curves in words; every number is in the tables and files."""
    f = report.figures
    parts = [
        f"{what} {number(low)} to {number(high)} degrees Celsius"
        for what, low, high in (
            ("supply air", f.supply_min, f.supply_max),
            ("return air", f.return_min, f.return_max),
        )
        if low is not None
    ]
    span = f"{time(f.first_date_time)} to {time(f.last_date_time)} UTC"
    return "; ".join([f"Temperature against set point, {span}", *parts]) + ". Excursions are in the table below."


def _out_of_band(report: ContainerReport) -> list[tuple[str, int, float, float]]:
    """By quantity: how many excursions, the minutes seen out of band in them, and the minutes that they lasted."""
    counted: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in report.excursions:
        counted[row["quantity"]].append((row["minutes_out_of_band"], row["minutes"]))
    return [
        (quantity, len(both), sum(seen for seen, _ in both), sum(lasted for _, lasted in both))
        for quantity, both in sorted(counted.items())
    ]


def _marks(report: ContainerReport) -> list[Mark]:
    """The ports that it touched or is booked for, and where its alerts were."""
    codes = {row["un_location_code"] for row in report.movements}
    codes |= {
        report.sites[row["holder"]]["un_location_code"] for row in report.custody if row["holder"] in report.sites
    }
    if report.booking is not None:
        codes |= {report.booking["port_of_loading"], report.booking["port_of_discharge"]}
    return [*_ports(codes, report), *_alerts(report)]


def _ports(codes: set[str | None], report: ContainerReport) -> Iterator[Mark]:
    titles = {row["un_location_code"]: row["title"] for row in report.sites.values()}
    known = ports()
    for code in sorted(code for code in codes if code):
        if code in known:
            yield Mark(titles.get(code) or known[code].name, known[code].longitude, known[code].latitude)


def _alerts(report: ContainerReport) -> Iterator[Mark]:
    for row in report.alerts:
        if row["latitude"] is not None and row["longitude"] is not None:
            yield Mark(row["kind"], row["longitude"], row["latitude"], "event")


def _sources(report: ContainerReport) -> str:
    sources = {row["source"] for row in report.way}
    return {
        frozenset({"OWN"}): "Positions are the container's own",
        frozenset({"SHIP"}): "Positions are those of the ships that held it",
        frozenset(
            {"OWN", "SHIP"}
        ): "Positions are the container's own, and those of ships that held it where it gave none",
    }.get(frozenset(sources), "No position is known; the ports are those of its custody and booking")
