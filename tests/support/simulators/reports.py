"""The report of a good voyage, and parts of it."""

from __future__ import annotations

import datetime as dt

import msgspec

from simulators.report.digests import DigestFigures
from simulators.report.model import CustomerAlertFigures, CustomerFigures, LinkFigures, Report, RollCallFigures

DEPARTED = dt.datetime(2026, 9, 2, tzinfo=dt.UTC)


def roll_call(**changes: object) -> RollCallFigures:
    good = RollCallFigures(
        ship="duck-star", port="JPTYO", departed=DEPARTED, state="COMPLETE", aboard=10, heard=9,
        missing=("BIGU1000016",), truly_missing=("BIGU1000016",), alerted=1, minutes=720.0,
    )  # fmt: skip
    return msgspec.structs.replace(good, **changes)


def customer(**changes: object) -> CustomerFigures:
    good = CustomerFigures(entitled=5, read=5, repeated=0, foreign_read=0, refused=("read containers.*",))
    return msgspec.structs.replace(good, **changes)


def alerts(**changes: int) -> CustomerAlertFigures:
    return msgspec.structs.replace(CustomerAlertFigures(raised=2, due=3, read=3), **changes)


def digests(**changes: object) -> DigestFigures:
    good = DigestFigures(
        ship="duck-star", start="tokyo", end="singapore", digests=2, bytes=1300, told=40, equal=40, kelvin_apart=0.0
    )
    return msgspec.structs.replace(good, **changes)


def report(**changes: object) -> Report:
    good = Report(
        topology="big-blue",
        scenario="duck-voyage",
        seed=7,
        starts=dt.datetime(2026, 9, 1, tzinfo=dt.UTC),
        containers=200,
        readings_published=100,
        readings_in_logs=100,
        readings_lost=0,
        readings_repeated=0,
        repeats_sent=3,
        overboard=("BIGU1000016",),
        overboard_alerts=1,
        false_alerts=0,
        logs_compared=10,
        logs_differing=0,
        delta_rows=100,
        delta_rows_expected=100,
        condition_rows=5,
        tables_equal=("readings + readings_rejected", "conditions"),
        digests=(digests(),),
        alert_seconds={"tokyo": 0.4},
        roll_calls=(roll_call(),),
        customers={"ducks": customer()},
        links=(LinkFigures(name="tokyo->sydney", records=1, bytes=2, lag=0, state="mirroring"),),
        seconds={"voyage": 10.0},
        versions={"kafka": "4.3.1"},
    )
    return msgspec.structs.replace(good, **changes)
