"""Faults planted in the model: the search finds each of them, and the convention's fence makes one of them harmless."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.custody.disk import Violation
from tests.unit.custody.faults import Faults
from tests.unit.custody.machine import Custody


def search(faults: Faults, runs: int) -> int:
    """Search until an invariant is violated; how many runs that took."""

    class Planted(Custody):
        pass

    Planted.faults = faults
    run_state_machine_as_test(
        Planted,
        settings=settings(
            max_examples=runs,
            stateful_step_count=100,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return Planted.runs


FOUND: Final = {
    "a bridge appends after granting, and no broker minds": Faults(appends_after_granting=True, fence_off=True),
    "a grant's entry does not tell the last offset": Faults(entry_without_offset=True),
    "a drain repeats what an earlier holder drained": Faults(drain_repeats=True),
    "a seizure takes the next term": Faults(seizes_next_term=True),
    "a return throws the tail away": Faults(return_throws_tail_away=True),
    "a reading is acknowledged before it is stored": Faults(acknowledges_first=True),
    "what a crash left between marker and entry stays": Faults(no_completion=True),
    "others' drains make a site forget its waiting events": Faults(waiting_by_drained=True),
    "readings that come directly are never late": Faults(only_strays_are_late=True),
    "what is newer than late records is taken for new": Faults(late_counts_as_beyond=True),
    "a copy is judged by its last record only": Faults(returns_by_last_term=True),
    "a stale copy is seized": Faults(seizes_stale_copy=True),
    "a box that left elsewhere is opened where it comes in": Faults(opens_where_it_comes_in=True),
    "custody that comes to a stale copy is given up": Faults(breaks_stale_incoming=True),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("faults", FOUND.values(), ids=FOUND.keys())
def test_a_planted_fault_is_found(faults: Faults) -> None:
    with pytest.raises(Violation, match=r"^I\d: |does not come to rest"):
        search(faults, runs=1_500)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("runs", [50, pytest.param(150, marks=pytest.mark.chaos)])
def test_the_fence_makes_a_bridge_that_appends_after_granting_harmless(runs: int) -> None:
    assert search(Faults(appends_after_granting=True), runs=runs) >= runs
