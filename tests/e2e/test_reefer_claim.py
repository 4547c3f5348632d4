"""Sail the reefers in trouble, and ask as a user does how far the cold treatment of the oranges came."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from shore.report.wording import number as worded
from simulators.fleet.scenario_file import load
from simulators.voyage.voyage import Voyage
from tests.e2e.conftest import Cli
from tests.support.cold_truth import ColdTruth, cold_truths
from topologies.loader.load import load as load_topology

pytestmark = [pytest.mark.chaos, pytest.mark.e2e, pytest.mark.timeout(1200)]

DAY = dt.timedelta(days=1)
QUERY = """
select equipment_reference, state, probes, days, breaks, broken_by,
    epoch(since_date_time) as since, epoch(until_date_time) as until, epoch(broken_date_time) as broken
from cold_treatments
"""


@pytest.fixture(scope="module")
def sailed(cli: Cli) -> Any:
    ran = cli(
        "voyage", "run", "--scenario", "reefer-claim", "--seed", "7", "--report", "report", "--json", timeout=1100
    )
    assert ran.code == 0, ran.err + ran.out
    assert ran.json["ok"], [line for line in ran.json["lines"] if not line["ok"]]
    return ran.json


@pytest.fixture(scope="module")
def truths() -> dict[str, ColdTruth]:
    return cold_truths(Voyage(load("reefer-claim"), load_topology("big-blue", env={}), seed=7))


def test_the_table_has_the_days_without_a_break_that_the_devices_measured(
    sailed: Any, truths: dict[str, ColdTruth], cli: Cli
) -> None:
    rows = {row["equipment_reference"]: row for row in cli("sql", QUERY, "--json").json}
    assert rows.keys() == truths.keys()
    for number, truth in truths.items():
        row, (since, until) = rows[number], truth.cold[-1]
        assert (row["state"], row["probes"], row["breaks"]) == ("RUNNING", 3, len(truth.warm_again))
        assert (row["since"], row["until"]) == pytest.approx((since.timestamp(), until.timestamp()), abs=0.001)
        assert row["days"] == pytest.approx((until - since) / DAY)
        if truth.box.outages:
            assert row["broken_by"] == "WARM"
            assert row["broken"] == pytest.approx(truth.warm_again[-1].timestamp(), abs=0.001)
        else:
            assert row["broken"] is row["broken_by"] is None
    assert sum(row["breaks"] == 0 for row in rows.values()) == 1


def test_the_report_of_a_container_tells_how_far_it_came(sailed: Any, truths: dict[str, ColdTruth], cli: Cli) -> None:
    for number, truth in truths.items():
        assert cli("report", "container", number, "--out", f"told-{number}").code == 0
        (page,) = Path(cli.home / f"told-{number}").rglob(f"{number}.html")
        text = page.read_text(encoding="utf-8")
        _, _, told = text.partition("Cold treatment</h2>")
        assert "running" in told[:2000]
        assert ("too warm" in told[:2000]) == bool(truth.box.outages)
        since, until = truth.cold[-1]
        assert f">{worded((until - since) / DAY, 2)}<" in told[:2000]
