"""A line of the report is true only if its figures are, as text and as JSON. ``test_voyage_page`` has the page."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections import Counter

import msgspec
import pytest
from rich.console import Console

from fairlead.records.alert import NOT_HEARD, Alert
from fairlead.records.ship import RollCall, pack_numbers
from simulators.report.counting import LogCount, count_readings
from simulators.report.model import LinkFigures, as_table
from simulators.report.roll_calls import roll_call_figures
from simulators.steps import ReadingId
from simulators.voyage.truth import DepartureTruth, OverboardLoss
from simulators.voyage.waiting import AheadOfShip
from tests.support.simulators.reports import DEPARTED, alerts, customer, digests, report, roll_call

ARRIVAL = AheadOfShip(
    ship="duck-star",
    port="singapore",
    at=dt.datetime(2026, 9, 9, 14, tzinfo=dt.UTC),
    ashore=5120,
    ashore_here=5120,
    own=310,
    own_here=310,
    boxes=9800,
    boxes_here=4100,
    seconds=0.8,
)


@pytest.mark.parametrize(
    "changes",
    [
        {"arrivals": (ARRIVAL, msgspec.structs.replace(ARRIVAL, ashore_here=5119))},
        {"arrivals": (msgspec.structs.replace(ARRIVAL, own_here=0, missing="alerts.duck-star: 0 of 310"),)},
        {"readings_published": 0, "readings_in_logs": 0},
        {"readings_in_logs": 99, "readings_lost": 1},
        {"readings_repeated": 1},
        {"logs_differing": 1},
        {"logs_compared": 0},
        {"delta_rows": 99},
        {"delta_rows": 0, "delta_rows_expected": 0},
        {"condition_rows": 0},
        {"tables_equal": ()},
        {"tables_different": ("events",)},
        {"tables_not_compared": ("events",)},
        {"overboard_alerts": 0},
        {"false_alerts": 1},
        {"alert_seconds": {"tokyo": 0.4, "sydney": None}},
        {"links": (LinkFigures(name="tokyo->sydney", records=1, bytes=2, lag=3, state="mirroring"),)},
        {"roll_calls": (roll_call(missing=(), alerted=0),)},
        {"roll_calls": (roll_call(truly_missing=()),)},
        {"roll_calls": (roll_call(alerted=0),)},
        {"roll_calls": (roll_call(unlisted=("BIGU1000021",)),)},
        {"roll_calls": (roll_call(state=None, missing=(), truly_missing=()),)},
        {"digests": (digests(equal=39),)},
        {"customers": {"ducks": customer(read=4)}},
        {"customers": {"ducks": customer(repeated=1)}},
        {"customers": {"ducks": customer(foreign_read=1)}},
        {"customers": {"ducks": customer(wrongly_allowed=("write",))}},
        {"customers": {"ducks": customer(refused=())}},
        {"customers": {"ducks": customer(alerts=alerts(read=2))}},
        {"customers": {"ducks": customer(alerts=alerts(repeated=1))}},
        {"customers": {"ducks": customer(alerts=alerts(foreign=1))}},
    ],
)
def test_each_false_figure_fails_the_report(changes: dict[str, object]) -> None:
    bad = report(**changes)
    assert not bad.ok
    assert sum(not line.ok for line in bad.lines()) >= 1


def test_the_next_port_was_up_to_date_before_the_ship_arrived() -> None:
    """The text says so; a link that the scenario cuts excuses what is missing, and is named."""
    shown = (
        "5,120 of 5,120 records known ashore, 310 of 310 of the ship's alerts, positions and custody, "
        "the last 0.8 s later; 4,100 of 9,800 of its boxes"
    )
    good = report(arrivals=(ARRIVAL,))
    assert good.ok
    (line,) = [each for each in good.lines() if each.what.startswith("singapore up to date before duck-star arrives")]
    assert line.value == shown and line.what.endswith("09 Sep 14:00")
    missing, between = "alerts.duck-star: 0 of 310", ("duck-star", "los-angeles")
    cut = report(arrivals=(msgspec.structs.replace(ARRIVAL, own_here=0, cut=between, missing=missing),))
    assert cut.ok
    named = f"missing {missing}; the link duck-star - los-angeles is cut"
    assert any(each.value.endswith(named) for each in cut.lines())


def test_json_has_the_promised_keys() -> None:
    body = json.loads(report().to_json())
    promised = {
        "ok", "readings_published", "readings_lost", "readings_repeated", "logs_compared", "logs_differing",
        "delta_rows", "delta_rows_expected", "alert_seconds", "customers",
    }  # fmt: skip
    assert promised <= body.keys()
    assert {"entitled", "read", "foreign_read", "refused"} <= body["customers"]["ducks"].keys()
    assert body["ok"] is True


def test_the_table_marks_the_false_line() -> None:
    bad = report(readings_lost=1, readings_in_logs=99)
    console = Console(width=120, file=io.StringIO())
    with console.capture() as shown:
        console.print(as_table(bad))
    assert "FALSE" in shown.get()


def test_the_table_holds_digests_against_the_bulk() -> None:
    console = Console(width=160, file=io.StringIO())
    with console.capture() as shown:
        console.print(as_table(report()))
    assert "digests of duck-star, tokyo to singapore" in shown.get()


def test_lost_and_repeated_readings_are_counted() -> None:
    a, b, c = (ReadingId("BIGU1000016", "d", 0, n) for n in range(3))
    assert count_readings({a, b, c}, Counter({a: 1, b: 3})) == LogCount(in_logs=2, lost=1, repeated=2)
    assert count_readings({a}, Counter({a: 1})) == LogCount(in_logs=1, lost=0, repeated=0)


def test_without_shore_no_tables_are_expected() -> None:
    changes = {"delta_rows": 0, "condition_rows": 0}
    assert not report(**changes).ok
    assert report(shore=False, **changes).ok
    assert not report(shore=False, readings_lost=1, **changes).ok


def test_text_and_json_hold_each_customers_alerts_against_its_feed() -> None:
    shown = report(customers={"ducks": customer(), "yellow": customer(alerts=alerts())})
    [line] = [line for line in shown.lines() if line.what.startswith("alerts of customer")]
    assert (line.what, line.ok) == ("alerts of customer yellow", True)
    assert line.value == "2 of its boxes in 3 states; in its feed 3, repeated 0, of others 0"
    of_customers = json.loads(shown.to_json())["customers"]
    assert of_customers["yellow"]["alerts"] == {"raised": 2, "due": 3, "read": 3, "repeated": 0, "foreign": 0}
    assert of_customers["ducks"]["alerts"] is None


def test_the_text_shows_each_roll_call() -> None:
    [line] = [line for line in report().lines() if line.what.startswith("roll call")]
    assert line.what == "roll call, duck-star from JPTYO 02 Sep 00:00"
    assert line.value == "aboard 10, heard 9, missing 1 (BIGU1000016), 1 alerted, complete after 720 min"


def test_a_call_that_was_cut_short_needs_no_alerts_and_one_that_was_not_due_no_record() -> None:
    assert roll_call(state="CUT_SHORT", alerted=0).ok
    assert roll_call(state=None, due=False).ok


def test_an_alert_counts_for_the_sailing_in_which_it_is_open() -> None:
    box, day = "BIGU1000001", dt.timedelta(days=1)
    sailings = [
        DepartureTruth(
            "duck-star", "JPTYO", f"depa-{n}", DEPARTED + n * day, frozenset({box}), DEPARTED + (n + 0.9) * day
        )
        for n in range(3)
    ]
    records = [
        RollCall(
            vessel_imo_number="9074729", departure_id=each.event_id, departure_date_time=each.time,
            called_date_time=each.time + day / 2, state="CALLED", aboard=1, heard=0, missing=pack_numbers({box}),
        )
        for each in sailings
    ]  # fmt: skip
    opened = Alert(
        alert_id="it", kind="SILENCE", severity="ALARM", state="OPENED", equipment_reference=box,
        raised_at="duck-star", event_date_time=DEPARTED + 1.1 * day, raised_date_time=DEPARTED,
    )  # fmt: skip
    cleared = msgspec.structs.replace(opened, state="CLEARED", event_date_time=DEPARTED + 1.7 * day, revision=1)

    def alerted(*said: Alert) -> list[int]:
        found = roll_call_figures(sailings, [], records, {"": said, "JPTYO": said})
        return [each.alerted for each in found]

    assert alerted(opened, cleared) == [0, 1, 0]
    assert alerted(opened) == [0, 1, 1], "it is open still"


def test_a_departure_is_compared_with_its_first_record_and_the_alerts_at_both_places() -> None:
    a, b, c, d = (f"BIGU100000{n}" for n in range(4))
    sailing = DepartureTruth("duck-star", "JPTYO", "depa-1", DEPARTED, frozenset({a, b, c, d}), DEPARTED)
    sailing.until += dt.timedelta(days=1)
    sailing.heard = {a: DEPARTED + dt.timedelta(hours=1), b: DEPARTED + dt.timedelta(hours=5)}
    lost = [OverboardLoss(d, "duck-star", DEPARTED + dt.timedelta(minutes=5), DEPARTED)]
    called = RollCall(
        vessel_imo_number="9074729",
        departure_id="depa-1",
        departure_date_time=DEPARTED,
        called_date_time=DEPARTED + dt.timedelta(hours=2),
        state="CALLED",
        aboard=4,
        heard=1,
        overboard=1,
        missing=pack_numbers({b, c}),
    )
    said = [
        Alert(
            alert_id=f"{NOT_HEARD}.{number}", kind=NOT_HEARD, severity="ALARM", state="OPENED",
            equipment_reference=number, raised_at="duck-star", event_date_time=DEPARTED, raised_date_time=DEPARTED,
        )
        for number in (b, c)
    ]  # fmt: skip
    [figures] = roll_call_figures([sailing], lost, [called], {"": said, "JPTYO": said})
    assert (figures.truly_missing, figures.alerted, figures.minutes, figures.ok) == ((b, c), 2, None, True)
    [figures] = roll_call_figures([sailing], lost, [called], {"": said, "JPTYO": said[:1]})
    assert (figures.alerted, figures.ok) == (1, False)
    [figures] = roll_call_figures([sailing], lost, [], {})
    assert (figures.due, figures.ok) == (True, False)
