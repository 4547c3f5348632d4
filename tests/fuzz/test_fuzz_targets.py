"""The targets of ``make fuzz`` take their own seeds, and whatever Hypothesis makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.run import NAMES
from tests.fuzz.targets import TARGETS, Target


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_target_takes_its_seeds(target: Target) -> None:
    seeds = list(target.seeds())
    assert seeds
    for seed in seeds:
        target.run(seed)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@given(data=st.data())
@settings(max_examples=30)
def test_a_target_takes_what_has_gone_wrong_with_a_seed(target: Target, data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(list(target.seeds())))[:2000])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 8))] = data.draw(
            st.binary(max_size=4) | st.sampled_from(target.tokens or ("0",)).map(str.encode)
        )
    target.run(bytes(raw))


def test_the_runner_knows_every_target() -> None:
    assert tuple(TARGETS) == NAMES
