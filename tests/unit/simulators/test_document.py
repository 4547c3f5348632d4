"""The example of ``docs/simulators-extend.md`` runs."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import pytest

from fairlead.cli import app as cli
from fairlead.errors import ExitCode
from simulators.fleet.planner import make_plan
from simulators.fleet.scenario_file import load
from simulators.network.weather import Conditions
from simulators.physics.climate import link_weather
from tests.support.simulators.worlds import big_blue, unmet

TEXT = (Path(__file__).parents[3] / "docs" / "simulators-extend.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
(LINKS,) = re.findall(r"```yaml links\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wine-home.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    return path


def test_the_example_meets_its_expectations(file: Path) -> None:
    scenario = load(file)
    plan = make_plan(scenario, big_blue(), 7)
    assert scenario.expects
    assert unmet(plan) == []
    assert sum(bool(box.outages) for box in plan.boxes) > 5, "the yard is dark while boxes stand there"
    assert sum(bool(box.doors) for box in plan.boxes) == 6


def test_its_command_runs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["voyage", "size", "16", "--scenario", str(file), "--interval", "12h", "--json"]
    assert cli.run(arguments) == ExitCode.OK
    body = json.loads(capsys.readouterr().out)
    assert (body["scenario"], body["modelled"]) == ("wine-home", 16)


def test_its_link_weather_is_as_described(file: Path) -> None:
    file.write_text(EXAMPLE + LINKS, encoding="utf-8")
    plan = make_plan(load(file), big_blue(), 7)
    sky = link_weather(plan)

    def home(days: float) -> Conditions:
        return sky.between("duck-star", "los-angeles", plan.starts + days * dt.timedelta(days=1))

    assert (home(5.5).latency, home(5.5).rate) == (900, 2_000)
    assert [home(days).up for days in (5.9, 6, 8.9, 9)] == [True, False, False, True]
    cut = {frozenset(between) for between, _, _ in sky.outages()}
    assert {frozenset(("singapore", each)) for each in ("tokyo", "sydney", "los-angeles", "duck-star")} <= cut
