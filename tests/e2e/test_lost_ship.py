"""A ship sinks with its cluster: its boxes' logs go on ashore, and the report names what is lost for good."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Cli

pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.timeout(1200)]

TOPOLOGY = """
name: minimal
sites:
  los-angeles: {kind: hq, unlocode: USLAX}
  tokyo: {kind: port, unlocode: JPTYO}
  duck-star: {kind: ship, imo: "9074729"}
streams:
  containers: {insert_point: moves, owners: [BIGU]}
links:
  - {from: tokyo, to: los-angeles, both: true, streams: {
      custody: all, alerts: all, events: all, ships: all, bookings: all, containers: all, strays: all}}
  - {from: duck-star, to: tokyo, both: true, rate: 256 kbit/s, streams: {
      custody: all, alerts: all, events: all, ships: all, bookings: all}}
  - {from: duck-star, to: tokyo, when: berthed, streams: {containers: all, strays: all, deadletters: all}}
  - {from: tokyo, to: duck-star, when: berthed, streams: {containers: aboard}}
"""

SCENARIO = """
name: no-return
title: Out and not back
description: Four boxes go out; the ship sinks, and one box is found.
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
lost_ships:
  - { ship: duck-star, before: tokyo, by: 20h, seized_at: tokyo, seized_after: 6h, recovered: 1, landed_after: 12h }
"""


@pytest.fixture(scope="module")
def report(cli: Cli) -> Any:
    for name, text in (("minimal.yaml", TOPOLOGY), ("no-return.yaml", SCENARIO)):
        (cli.home / name).write_text(text, encoding="utf-8")
    ran = cli(
        "voyage", "run", "minimal.yaml", "--scenario", "no-return.yaml", "--report", "report", "--json", timeout=1100
    )
    assert ran.code == 0, ran.out + ran.err
    return ran.json


def test_only_what_the_ship_had_not_copied_is_lost(report: Any) -> None:
    (loss,) = report["ship_losses"]
    lost = sum(loss["lost"].values())
    assert report["ok"] is True, [line for line in report["lines"] if not line["ok"]]
    assert report["readings_lost"] == report["readings_repeated"] == report["logs_differing"] == 0
    assert report["readings_in_logs"] + lost == report["readings_published"]
    # Twenty-eight hours at sea with a reading every two hours, of each of the four boxes.
    assert len(loss["lost"]) == 4 and 48 <= lost <= 60
    assert loss["kept"] > 20 and report["logs_compared"] > 4


def test_the_port_takes_over_all_boxes_and_one_goes_on_there(report: Any, cli: Cli) -> None:
    (loss,) = report["ship_losses"]
    assert (loss["ship"], loss["port"], loss["taken_over"], len(loss["boxes"])) == ("duck-star", "tokyo", 4, 4)
    (landed,) = loss["landed"]
    shown = cli("custody", "show", landed, "--site", "tokyo", "--topology", "minimal.yaml", "--json").json
    assert [each["event"] for each in shown["intervals"]] == ["GTIN", "LOAD", "SEIZURE", "GTOT"]
    assert [each["holder"] for each in shown["intervals"]] == ["tokyo", "duck-star", "tokyo", None]
