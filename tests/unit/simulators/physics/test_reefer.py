"""The thermal model against known behaviour of real reefers: bounds, not exact values."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators.fleet.commodities import COMMODITIES, Commodity, ReeferUnit, commodity
from simulators.fleet.plan import PowerChange
from simulators.physics.reefer import STEP, ReeferFleet, Sample
from tests.support.examples import examples

START = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
GOODS = sorted(COMMODITIES.values(), key=lambda c: c.name)
ORANGES = ReeferUnit(commodity("oranges"), -0.6, three_probes=True)
ALL = [*(ReeferUnit(goods, goods.setpoint) for goods in GOODS), ORANGES]


def fleet(units: list[ReeferUnit], *changes: PowerChange, seed: int = 1) -> ReeferFleet:
    return ReeferFleet(units, START, changes, np.random.default_rng(seed))


def run(boxes: ReeferFleet, hours: float, ambient: float, sun: float = 0.0) -> None:
    n = len(boxes.air)
    boxes.advance(boxes.time + hours * HOUR, np.full(n, ambient), np.full(n, sun))


def rows(boxes: ReeferFleet, hours: int, ambient: float) -> list[tuple[Sample, list[bool]]]:
    """A sample every five minutes."""
    out = []
    for _ in range(hours * 12):
        run(boxes, STEP / HOUR, ambient)
        out.append((boxes.sample(), boxes.defrosting.tolist()))
    return out


@pytest.mark.parametrize("ambient", [-5.0, 15.0, 38.0])
@pytest.mark.parametrize("goods", GOODS, ids=lambda c: c.name)
def test_the_controlled_probe_stays_at_the_set_point(goods: Commodity, ambient: float) -> None:
    boxes = fleet([ReeferUnit(goods, goods.setpoint)])
    run(boxes, 24, ambient)
    held = []
    since_defrost = 99
    for sample, defrosting in rows(boxes, 48, ambient):
        since_defrost = 0 if defrosting[0] else since_defrost + 1
        if since_defrost > 12:  # an hour to pull down again
            held.append(float((sample.return_ if goods.frozen else sample.supply)[0]))
    tolerance = 1.5 if goods.frozen else 0.5
    assert len(held) > 300
    assert max(abs(t - goods.setpoint) for t in held) < tolerance


@given(st.floats(-20, 45), st.floats(0, 9), st.integers(0, 2**32))
@settings(max_examples=examples(20), deadline=None)
def test_physical_bounds_hold_whatever_the_weather(ambient: float, sun: float, seed: int) -> None:
    out = [PowerChange(START + 5 * HOUR, i, False) for i in range(0, len(ALL), 2)]
    boxes = fleet(ALL, *out, seed=seed)
    for _ in range(8):
        run(boxes, 6, ambient, sun)
        sample = boxes.sample()
        for values in (sample.supply, sample.return_, sample.cargo, sample.pulp, boxes.air):
            assert np.isfinite(values).all()
            assert values.min() > -40
            assert values.max() < max(ambient + sun, 20) + 8
        assert ((sample.humidity >= 0) & (sample.humidity <= 100)).all()
        assert (boxes.power >= 0).all()
        assert boxes.power.max() < 15_000
        assert not boxes.power[~boxes.powered].any()


def test_chilled_return_air_is_warmer_than_supply_by_a_degree_or_so() -> None:
    boxes = fleet([ReeferUnit(commodity("bananas"), 13.3), ReeferUnit(commodity("chilled-beef"), -1.4)])
    run(boxes, 24, 30.0)
    lift = boxes.air - boxes.supply
    assert (lift > 0.2).all()
    assert (lift < 2.5).all()


def test_the_compressor_of_a_frozen_box_switches_on_and_off() -> None:
    boxes = fleet([ReeferUnit(commodity("frozen-fish"), -20.0)])
    run(boxes, 12, 25.0)
    power = []
    for _ in range(72):
        run(boxes, STEP / HOUR, 25.0)
        power.append(boxes.power[0] > 2500)
    changes = sum(a != b for a, b in pairwise(power))
    assert changes >= 6


def test_without_power_air_warms_within_hours_and_cargo_within_days() -> None:
    boxes = fleet([ReeferUnit(commodity("frozen-fish"), -20.0)], PowerChange(START, 0, False))
    run(boxes, 4, 32.0)
    assert -20 < boxes.air[0] < -10
    assert boxes.cargo[0] < -19
    run(boxes, 44, 32.0)
    assert -19 < boxes.cargo[0] < -8


def test_power_restored_brings_the_box_back() -> None:
    off, on = PowerChange(START + HOUR, 0, False), PowerChange(START + 9 * HOUR, 0, True)
    boxes = fleet([ReeferUnit(commodity("pharmaceuticals"), 5.0)], off, on)
    run(boxes, 8, 35.0)
    warm = boxes.air[0]
    run(boxes, 4, 35.0)
    assert warm > 7.5
    assert boxes.supply[0] == pytest.approx(5.0, abs=0.5)
    assert boxes.air[0] < warm - 1


def test_machinery_that_no_longer_cools_draws_power_and_warms() -> None:
    boxes = fleet([ReeferUnit(commodity("ice-cream"), -25.0)], PowerChange(START + HOUR, 0, True, False))
    run(boxes, 24, 30.0)
    assert boxes.powered[0]
    assert boxes.power[0] > 0
    assert boxes.air[0] > -18


def test_a_defrost_shows_at_the_return_probe_and_ends() -> None:
    boxes = fleet([ReeferUnit(commodity("apples"), 0.5, first_defrost_hours=2.0)])
    seen = rows(boxes, 14, 20.0)
    defrosting = [flags[0] for _, flags in seen]
    assert 5 <= sum(defrosting) <= 15, "two defrosts of about half an hour"
    high = [float(s.return_[0]) for s, flags in seen if flags[0]]
    usual = [float(s.return_[0]) for s, flags in seen if not flags[0]]
    assert min(high) > np.median(usual) + 2


def test_warm_coils_need_no_defrost() -> None:
    boxes = fleet([ReeferUnit(commodity("wine"), 14.0)])
    assert not any(flags[0] for _, flags in rows(boxes, 24, 30.0))


def test_humidity_depends_on_the_commodity() -> None:
    boxes = fleet([ReeferUnit(commodity("bananas"), 13.3), ReeferUnit(commodity("toy-ducks"), 18.0)])
    run(boxes, 24, 28.0)
    assert boxes.humidity[0] > 85
    assert 45 < boxes.humidity[1] < 65


def test_the_sun_heats_boxes_on_deck_only() -> None:
    goods = commodity("toy-ducks")
    boxes = fleet(
        [ReeferUnit(goods, 18.0, on_deck=True), ReeferUnit(goods, 18.0, on_deck=False)],
        PowerChange(START, 0, False),
        PowerChange(START, 1, False),
    )
    run(boxes, 12, 30.0, sun=9.0)
    assert boxes.air[0] > boxes.air[1] + 0.3


@given(st.lists(st.integers(1, 36), min_size=1, max_size=6))
@settings(max_examples=examples(20), deadline=None)
def test_many_short_advances_equal_one_long_one(parts: list[int]) -> None:
    changes = [PowerChange(START + 2 * HOUR, 0, False), PowerChange(START + 4 * HOUR, 0, True)]
    pieces, whole = fleet(ALL, *changes), fleet(ALL, *changes)
    for steps in parts:
        run(pieces, steps * (STEP / HOUR), 30.0)
    run(whole, sum(parts) * (STEP / HOUR), 30.0)
    assert (pieces.air == whole.air).all()
    assert (pieces.cargo == whole.cargo).all()
    assert (pieces.pulp == whole.pulp).all()
    assert (pieces.humidity == whole.humidity).all()


def test_three_probes_show_three_places_of_the_cargo() -> None:
    """The further the air has come to the return intake, the warmer is the fruit; each place has a lag of its own."""
    off, on = PowerChange(START + 240 * HOUR, 0, False), PowerChange(START + 252 * HOUR, 0, True)
    boxes = fleet([ORANGES], off, on)
    run(boxes, 240, 28.0)
    intake, centre, wall = boxes.pulp[:, 0].tolist()
    assert boxes.supply[0] < centre < wall < intake < 1.1
    assert intake == pytest.approx(boxes.cargo[0], abs=0.1)  # the one mass of the model has return air around it
    run(boxes, 12, 28.0)
    risen = boxes.pulp[:, 0] - [intake, centre, wall]
    assert risen[0] > risen[2] > risen[1] > 0.1
    assert boxes.air[0] > boxes.pulp.max(), "fruit follows the air"
    shown = boxes.sample().pulp[:, 0]
    assert shown == pytest.approx(boxes.pulp[:, 0], abs=0.15)
    assert len(set(shown.tolist())) == 3
    assert 1.3 < boxes.pulp[0, 0] < 2.0
    run(boxes, 48, 28.0)
    assert boxes.pulp.max() < 1.11


def test_three_probes_change_nothing_of_other_boxes_or_of_the_box_itself() -> None:
    other = ReeferUnit(commodity("apples"), 0.5)
    three, one = fleet([other, ORANGES]), fleet([other, replace(ORANGES, three_probes=False)])
    for boxes in (three, one):
        run(boxes, 48, 25.0)
    assert three.probed.tolist() == [1]
    assert one.probed.tolist() == []
    for shown, expected in zip(three.sample()[:-1], one.sample()[:-1], strict=True):
        assert shown.tolist() == expected.tolist()
