"""A ship loses its satellite at sea during a voyage: no reading is lost, and the report lists the cut."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Cli

pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.timeout(1200)]

TOPOLOGY = """
name: minimal
sites:
  tokyo: {kind: port, unlocode: JPTYO}
  duck-star: {kind: ship, imo: "9074729"}
streams:
  containers: {insert_point: moves, owners: [BIGU]}
links:
  - {from: duck-star, to: tokyo, both: true, rate: 256 kbit/s, streams: {
      custody: all, alerts: all, events: all, ships: all, bookings: all}}
  - {from: duck-star, to: tokyo, when: berthed, streams: {containers: all, strays: all, deadletters: all}}
  - {from: tokyo, to: duck-star, when: berthed, streams: {containers: aboard}}
"""

SCENARIO = """
name: dark-harbour
title: Out without a satellite
description: Four boxes go out and come back; the satellite fails on the way, and meanwhile a box falls.
topology: minimal
booking_office: tokyo
start: 2026-09-01T00:00:00Z
reading_interval: 2h
ship_interval: 6h
ships:
  duck-star:
    first_arrival: 18h
    calls: [{ port: tokyo, stay: 12h, at_sea: 48h }, { port: tokyo, stay: 18h }]
cargo:
  fish: { owner: BIGU, commodity: frozen-fish, containers: 4, route: [tokyo, duck-star, tokyo] }
faults:
  - { kind: overboard, ship: duck-star, lot: fish, containers: 1, before: tokyo, by: 20h }
links:
  - { site: duck-star, carrier: satellite, starts: 2d, lasts: 1d }
"""


@pytest.fixture(scope="module")
def report(cli: Cli) -> Any:
    for name, text in (("minimal.yaml", TOPOLOGY), ("dark-harbour.yaml", SCENARIO)):
        (cli.home / name).write_text(text, encoding="utf-8")
    ran = cli(
        "voyage", "run", "minimal.yaml", "--scenario", "dark-harbour.yaml", "--report", "report", "--json", timeout=1100
    )
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def test_nothing_is_lost_by_a_link_that_is_cut(report: Any) -> None:
    assert report["readings_published"] == report["readings_in_logs"] > 50
    assert report["readings_lost"] == report["readings_repeated"] == report["logs_differing"] == 0
    assert report["logs_compared"] > 4
    assert [one for one in report["lines"] if not one["ok"]] == []
    assert report["ok"] is True
    assert report["shore"] is False, "nobody here fills tables, so none are missing"


def test_the_report_lists_the_cuts(report: Any) -> None:
    (cut,) = report["cuts"]
    assert cut["seconds"] >= 5, "long enough to be noticed"
    assert cut["between"] == ["duck-star", "tokyo"]
    assert (cut["starts"], cut["ends"]) == ("2026-09-03T00:00:00Z", "2026-09-04T00:00:00Z")


def test_an_alert_arrives_when_the_cut_link_is_back(report: Any) -> None:
    assert len(report["overboard"]) == report["overboard_alerts"] == 1
    assert report["alert_seconds"]["tokyo"] is not None
    assert any(link["name"] == "duck-star->tokyo" and link["records"] > 0 for link in report["links"])
