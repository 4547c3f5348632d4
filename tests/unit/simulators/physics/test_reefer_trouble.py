"""Doors, set points, and the air that fruit breathes; and the published figures that docs/simulators.md names."""

from __future__ import annotations

import datetime as dt
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.fleet.commodities import COMMODITIES, ReeferUnit, commodity
from simulators.fleet.plan import PowerChange
from simulators.physics.reefer import STEP, ReeferFleet
from tests.support.examples import examples

START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def fleet(name: str, *changes: PowerChange) -> ReeferFleet:
    goods = commodity(name)
    return ReeferFleet([ReeferUnit(goods, goods.setpoint)], START, changes, np.random.default_rng(1))


def run(boxes: ReeferFleet, hours: float, ambient: float = 28.0, sun: float = 0.0) -> None:
    n = len(boxes.air)
    boxes.advance(boxes.time + hours * HOUR, np.full(n, ambient), np.full(n, sun))


def test_an_open_door_warms_the_air_and_hardly_the_cargo() -> None:
    opened = PowerChange(START + 24 * HOUR, 0, powered=True, door_open=True)
    boxes = fleet("pharmaceuticals", opened, PowerChange(START + 24.5 * HOUR, 0, powered=True))
    run(boxes, 24)
    air, cargo = boxes.air[0], boxes.cargo[0]
    run(boxes, 0.5)
    assert boxes.air[0] > air + 4
    assert boxes.cargo[0] < cargo + 1
    run(boxes, 3)
    assert boxes.air[0] < air + 1


def test_another_set_point_is_kept_until_it_is_put_right() -> None:
    wrong = PowerChange(START + HOUR, 0, powered=True, setpoint=-15.0)
    boxes = fleet("ice-cream", wrong, PowerChange(START + 25 * HOUR, 0, powered=True))
    run(boxes, 24)
    assert boxes.setpoint[0] == -15
    assert boxes.air[0] > -23
    run(boxes, 48)
    assert boxes.setpoint[0] == -25
    assert boxes.air[0] == pytest.approx(-25, abs=1.5)


@pytest.mark.parametrize("name", [n for n, goods in COMMODITIES.items() if goods.atmosphere])
def test_a_controlled_atmosphere_is_kept_while_there_is_power(name: str) -> None:
    kept = commodity(name).atmosphere
    assert kept is not None
    boxes = fleet(name, PowerChange(START + 72 * HOUR, 0, powered=False))
    run(boxes, 71)
    assert boxes.o2[0] == pytest.approx(kept.o2, abs=0.2)
    assert boxes.co2[0] == pytest.approx(kept.co2, abs=0.2)
    run(boxes, 24)
    assert boxes.co2[0] > kept.co2 + 1, "it goes on breathing"


def test_vents_keep_the_air_of_fruit_good() -> None:
    boxes = fleet("bananas")
    run(boxes, 72)
    assert 0.2 < boxes.co2[0] < 1.5
    assert 19 < boxes.o2[0] < 20.8


def test_cargo_that_does_not_breathe_has_ordinary_air() -> None:
    boxes = fleet("frozen-fish")
    run(boxes, 48)
    assert boxes.o2[0] == pytest.approx(20.9)
    assert boxes.co2[0] == pytest.approx(0.04)


def test_an_open_door_lets_the_atmosphere_out() -> None:
    boxes = fleet("apples-ca", PowerChange(START + HOUR, 0, powered=True, door_open=True))
    run(boxes, 2)
    assert boxes.o2[0] > 18


def test_onions_are_kept_dry() -> None:
    boxes = fleet("onions")
    run(boxes, 24)
    assert boxes.humidity[0] == pytest.approx(70, abs=2)


@given(st.sampled_from(sorted(COMMODITIES)), st.floats(-20, 45), st.booleans(), st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_gas_shares_stay_physical(name: str, ambient: float, plugged: bool, door: bool) -> None:
    boxes = fleet(name, PowerChange(START + HOUR, 0, powered=plugged, door_open=door))
    run(boxes, 200, ambient)
    sample = boxes.sample()
    assert 0 <= sample.o2[0] <= 21.3
    assert 0 <= sample.co2[0] <= 100
    assert 0 <= sample.humidity[0] <= 100
    assert math.isfinite(boxes.air[0])


# -- published figures


@pytest.mark.parametrize(("name", "days"), [("frozen-fish", 1), ("frozen-fish", 3), ("ice-cream", 2)])
def test_without_power_cargo_warms_as_the_container_handbook_says(name: str, days: int) -> None:
    """8.4.3.1.1: dT = (T_out - T) (1 - exp(-k A t / (m c))): all of the heat in the cargo at once. The model's comes
    through the air, and is a little later."""
    goods = commodity(name)
    boxes = fleet(name, PowerChange(START, 0, powered=False))
    run(boxes, 24 * days, 30)
    expected = (30 - goods.setpoint) * (1 - math.exp(-44 * days * 86_400 / (goods.mass * goods.heat * 1e6)))
    assert boxes.cargo[0] - goods.setpoint == pytest.approx(expected, rel=0.2)


def test_fourteen_hours_without_power_hardly_show_in_chilled_cargo() -> None:
    """Thai Reefer's case: 14 h, set point 2, return air 0.4 K higher when power was back."""
    outage = PowerChange(START + 24 * HOUR, 0, powered=False), PowerChange(START + 38 * HOUR, 0, powered=True)
    boxes = fleet("chilled-beef", *outage)
    run(boxes, 24)
    before = boxes.cargo[0]
    run(boxes, 14)
    assert 0.2 < boxes.cargo[0] - before < 1.6


def test_a_frozen_box_draws_as_much_power_as_measured_ones() -> None:
    """2.7 kW for a TEU, give or take 60 % (Fitzgerald, 2011); 4.4 kW more for each reefer aboard (Pacific, 2022)."""
    boxes = fleet("frozen-fish")
    run(boxes, 24)
    power = []
    for _ in range(288):
        run(boxes, STEP / HOUR)
        power.append(boxes.power[0] / 1000)
    assert 1.5 < float(np.mean(power)) < 5.5
    assert max(power) < 9


def test_frozen_return_air_goes_up_and_down_within_a_kelvin_or_so() -> None:
    """Carrier switches at 0.2 K either side of the set point, Thermo King at 1 K."""
    boxes = fleet("ice-cream")
    run(boxes, 2)
    air = []
    for _ in range(40):
        run(boxes, STEP / HOUR)
        air.append(boxes.air[0])
    assert max(air) - min(air) < 2.5
    assert sum((a > -25) != (b > -25) for a, b in pairwise(air)) >= 4


def test_warm_citrus_takes_as_long_to_cool_as_measured() -> None:
    """Oranges that were loaded warm were at 3 degrees within 5 to 6 days (Berry and others, 2020)."""
    unit = ReeferUnit(commodity("oranges"), -0.6, three_probes=True)
    boxes = ReeferFleet([unit], START, [], np.random.default_rng(1))
    for values in (boxes.air, boxes.cargo, boxes.supply, boxes.pulp):
        values[...] = 20.0
    run(boxes, 5 * 24, 25.0)
    assert boxes.pulp[1, 0] > 3.0
    run(boxes, 24, 25.0)
    assert boxes.pulp.max() < 3.0
