"""Barriers around a link that is cut."""

from __future__ import annotations

import datetime as dt

from simulators.fleet.scenario_file import load
from simulators.steps import BarrierKind, LinkChange, VoyageBarrier
from simulators.voyage.voyage import Voyage
from tests.support.simulators.worlds import barriers, big_blue

MINUTE = dt.timedelta(minutes=1)


def steps_of(name: str) -> list[VoyageBarrier | LinkChange]:
    voyage = Voyage(load(name).adjusted(containers=6, reading_interval=dt.timedelta(days=1)), big_blue(), seed=7)
    return [step for step in voyage.steps() if isinstance(step, VoyageBarrier | LinkChange)]


def test_a_ship_at_sea_stores_its_readings_before_its_link_changes() -> None:
    steps = steps_of("dark-ship")
    changes = [step for step in steps if isinstance(step, LinkChange)]
    assert [change.up for change in changes] == [False, True]
    for change in changes:
        before = steps[steps.index(change) - 1]
        assert isinstance(before, VoyageBarrier)
        assert (before.kind, before.site) == (BarrierKind.RECORDED, "duck-star")
        assert before.sim_time == change.sim_time - MINUTE
        assert len(before.log_ends) > 2


def test_only_barriers_that_need_a_link_give_way_to_a_cut() -> None:
    for name in ("dark-ship", "typhoon-tokyo"):
        found = barriers(steps_of(name))
        firm = {step.kind for step in found if not step.gives_way}
        assert firm == {BarrierKind.RECORDED, BarrierKind.FINISHED}, "bookings, and the end"
        assert all(step.site in ("los-angeles", "") for step in found if not step.gives_way)
        assert {BarrierKind.CUSTODY, BarrierKind.DEPARTURE} <= {step.kind for step in found if step.gives_way}
