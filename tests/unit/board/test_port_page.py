"""Which alerts belong on a port's page."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from board.pages.port import _concerns as concerns
from fairlead.records.alert import LEFT_PORT, Alert, Evidence
from shore.report.port import Approach, PortReport, Ship
from topologies.loader.load import load

BIG_BLUE = load("big-blue")
NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
STAR = "9074729"


def alert(raised_at: str, **changes: Any) -> Alert:
    values: dict[str, Any] = {
        "alert_id": "x",
        "kind": "OVERBOARD",
        "severity": "CRITICAL",
        "state": "OPENED",
        "equipment_reference": "BIGU1000010",
        "raised_at": raised_at,
        "event_date_time": NOW,
        "raised_date_time": NOW,
    }
    return Alert(**(values | changes))


def report(*ships: str) -> PortReport:
    coming = tuple(
        Ship(
            vessel_imo_number=imo,
            vessel=imo,
            approach=Approach(bound="CARGO"),
            last_call=None,
            for_port=1,
            concerning=0,
            boxes=(),
        )
        for imo in ships
    )
    empty: dict[str, Any] = dict.fromkeys(("in_port", "not_heard", "dock", "movements", "calls", "missing"), ())
    return PortReport(
        un_location_code="SGSIN",
        port="Singapore",
        audience="operator",
        as_of=NOW,
        arriving=coming,
        elsewhere=0,
        versions={},
        **empty,
    )


@pytest.mark.parametrize(
    ("raised", "known", "expected"),
    [
        (alert("singapore"), report(), True),
        (alert("tokyo"), report(), False),
        (alert("duck-star"), report(STAR), True),
        (alert("duck-star", vessel_imo_number=STAR), report(STAR), True),
        (alert("duck-star"), report("9321483"), False),
        (alert("duck-star", evidence=(Evidence(name=LEFT_PORT, weight=1, detail="SGSIN"),)), report(), True),
        (alert("duck-star"), None, True),
        (alert("tokyo"), None, False),
    ],
)
def test_an_alert_belongs_on_the_page_of_its_port_and_of_ships_that_come(
    raised: Alert, known: PortReport | None, expected: bool
) -> None:
    assert concerns(BIG_BLUE, known, raised, "SGSIN") is expected
