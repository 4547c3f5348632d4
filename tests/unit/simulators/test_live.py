"""The live view: its state, and its picture at fixed sizes. No terminal, no brokers."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from fairlead.records.alert import Alert, AlertState
from fairlead.records.reading import GeoLocation
from simulators.live.chart import ChartMark, draw, window
from simulators.live.gather import AlertLine, BoxHolder, Gathering, LinkLine, VoyageView
from simulators.live.screen import frame
from simulators.steps import MessageKind, Publish
from simulators.voyage.voyage import Voyage
from tests.support.examples import examples
from tests.unit.simulators.worlds import small_plan, small_steps, voyage

NOON = dt.datetime(2026, 9, 13, 12, tzinfo=dt.UTC)
VIEW = VoyageView(
    title="The duck voyage",
    clock=NOON,
    starts=NOON - dt.timedelta(days=5),
    ends=NOON + dt.timedelta(days=5),
    phase="publishing",
    speed=3600.0,
    published=12_345,
    expected=27_000,
    per_second=1_234.5,
    holders=(
        BoxHolder("duck-star", (-33.0, 155.0), 96, ship=True, lost=4),
        BoxHolder("blue-marlin", (20.0, 130.0), 44, ship=True),
        BoxHolder("tokyo", (35.6, 139.8), 12, ship=False),
        BoxHolder("sydney", (-33.9, 151.2), 0, ship=False),
    ),
    links=(
        *(LinkLine(f"tokyo->port-{n}", "mirroring", n) for n in range(40)),
        LinkLine("duck-star->los-angeles", "unavailable", None),
    ),
    open_alerts={"CRITICAL": 4, "WARNING": 1},
    alerts=tuple(
        AlertLine(NOON - dt.timedelta(minutes=n), "CRITICAL", "OVERBOARD", "BIGU1000016", "duck-star", "OPENED")
        for n in range(70)
    ),
    troubles={"sydney": "connection refused"},
)


@cache
def planned() -> Voyage:
    return voyage()


def shown(view: VoyageView, columns: int, lines: int, *, colours: bool = False) -> list[str]:
    console = Console(
        width=columns,
        height=lines,
        record=True,
        file=io.StringIO(),
        force_terminal=colours,
        color_system="truecolor",
        highlight=False,
    )
    console.print(frame(view, columns, lines), end="")
    return console.export_text(styles=colours).splitlines()


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (120, 40)])
def test_the_view_fills_the_terminal(size: tuple[int, int]) -> None:
    lines = shown(VIEW, *size)
    assert len(lines) == size[1]
    assert {cell_len(line) for line in lines} == {size[0]}
    text = "\n".join(lines)
    for wanted in (
        "The duck voyage",
        "Sun 13 Sep 2026 12:00:00 UTC",
        " 50%",
        "3600 x real time",
        "publishing",
        "12,345 of about 27,000 published, 1,23",
        "sydney: connection refused",
        "▲ duck-star          96 -4",
        "■ tokyo              12",
        "41, 780 records behind",
        "unavailable",
        "4 CRITICAL  1 WARNING",
        "13 Sep 12:00 OVERBOARD",
        "space pauses",
    ):
        assert wanted in text, wanted
    assert text.index("duck-star->los-angeles"[:12]) < text.index("tokyo->port-39"), "trouble comes first"


@given(st.integers(1, 250), st.integers(1, 80), st.integers(0, 4), st.booleans())
@settings(deadline=None, max_examples=examples(60))
def test_any_terminal_size_works(columns: int, lines: int, holders: int, under_way: bool) -> None:
    view = dataclasses.replace(VIEW, holders=VIEW.holders[:holders], clock=NOON if under_way else None)
    found = frame(view, columns, lines).plain.split("\n")
    assert len(found) == lines
    assert {cell_len(line) for line in found} == {columns}


# -- the chart


@given(
    st.lists(st.tuples(st.floats(-80, 80), st.floats(-180, 180)), min_size=1, max_size=8),
    st.integers(10, 100),
    st.integers(3, 30),
)
@settings(deadline=None, max_examples=examples(25))
def test_every_place_is_on_the_chart(places: list[tuple[float, float]], columns: int, rows: int) -> None:
    found = window(places, columns, rows)
    for place in places:
        lines = draw(found, columns, rows, [ChartMark(*place, "x", "", "")])
        assert [len(line.plain) for line in lines] == [columns] * rows
        assert sum(line.plain.count("x") for line in lines) == 1


# -- what is gathered


def test_the_view_shows_boxes_where_the_plan_has_them() -> None:
    gathering = Gathering(planned(), speed=None, keys=False)
    last = small_steps()[0].sim_time
    for step in small_steps():
        if isinstance(step, Publish):
            gathering.published(step)
            last = step.sim_time
    plan = small_plan()
    held = Counter(box.holder(last) for box in plan.boxes if box.falls is None)
    fallen = Counter(box.holder(box.falls) for box in plan.boxes if box.falls)
    holders = {holder.name: holder for holder in gathering.view(None).holders}
    assert set(holders) == {"duck-star", "blue-marlin", "tokyo", "singapore", "sydney"}
    assert {name: holder.boxes for name, holder in holders.items()} == {name: held[name] for name in holders}
    assert {name: holder.lost for name, holder in holders.items()} == {name: fallen[name] for name in holders}
    assert holders["duck-star"].lost > 0
    place = holders["duck-star"].place
    assert place is not None
    assert place == pytest.approx((-33.9, 151.2), abs=1.0), "it has arrived in Sydney"


def test_readings_per_second_are_those_of_the_last_seconds() -> None:
    wall = [0.0]
    gathering = Gathering(planned(), speed=None, keys=False, clock=lambda: wall[0])
    readings = [step for step in small_steps() if isinstance(step, Publish) and step.kind is MessageKind.READING]
    assert gathering.view(None).per_second == 0
    for second in range(1, 31):
        wall[0] = second
        for reading in readings[: 50 if second <= 15 else 0]:
            gathering.published(reading)
        rate = gathering.view(None).per_second
        if second in (5, 15):
            assert rate == pytest.approx(50, rel=0.15)
    assert rate == 0


def alert(number: str, revision: int, state: AlertState, minute: int) -> Alert:
    return Alert(
        alert_id=f"OVERBOARD.{number}",
        kind="OVERBOARD",
        severity="CRITICAL",
        state=state,
        equipment_reference=number,
        raised_at="duck-star",
        event_date_time=NOON + dt.timedelta(minutes=minute),
        raised_date_time=NOON,
        vessel_imo_number=None,
        geo_location=GeoLocation(latitude=0.0, longitude=150.0),
        evidence=(),
        causes=(),
        revision=revision,
    )


def test_alerts_are_counted_once_by_their_newest_state() -> None:
    gathering = Gathering(planned(), speed=1.0, keys=True)
    for each in (alert("A", 0, "OPENED", 0), alert("A", 0, "OPENED", 0), alert("B", 0, "OPENED", 2)):
        gathering.alerted(each)
    assert gathering.view(None).open_alerts == {"CRITICAL": 2}
    gathering.alerted(alert("A", 1, "CLEARED", 5))
    gathering.alerted(alert("A", 0, "OPENED", 0))  # from a site that is behind
    view = gathering.view(None)
    assert view.open_alerts == {"CRITICAL": 1}
    assert [(line.container, line.state) for line in view.alerts] == [("A", "CLEARED"), ("B", "OPENED")]
