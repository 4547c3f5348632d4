"""What is left of a fleet when its headquarters are lost, and who reads on."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any, cast

import pytest

from fairlead.errors import ConfigurationError
from simulators.fleet.planner import check_fit
from simulators.fleet.scenario import HeadquartersLoss
from simulators.fleet.scenario_file import load
from simulators.report.model import HeadquartersFigures
from simulators.steps import LinkChange
from simulators.voyage.headquarters import LostHeadquarters, program_of, without_headquarters
from topologies.loader.load import load as load_topology

HERE = load_topology("two-headquarters")
LOSS = HeadquartersLoss(site="los-angeles", heir="tokyo", starts=dt.timedelta(days=4))
T = dt.datetime(2026, 7, 10, tzinfo=dt.UTC)


def test_nothing_leads_to_lost_headquarters_and_the_heir_has_its_work() -> None:
    left = without_headquarters(HERE, LOSS)
    assert "los-angeles" not in left.sites
    assert all("los-angeles" not in (link.from_, link.to) for link in left.links)
    assert left.shore is not None and left.shore.sites == ("tokyo",)
    assert {name: (each.feed_at, each.reads_at) for name, each in left.customers.items()} == {
        "ducks": ("tokyo", ()),
        "toyshop": ("tokyo", ()),
    }
    assert left.users["analyst"].at == ("tokyo",)


def test_the_program_is_one_of_a_customer_that_may_read_at_both() -> None:
    assert program_of(HERE, LOSS) == "ducks"
    with pytest.raises(ConfigurationError, match="may read at singapore"):
        program_of(HERE, LOSS.model_copy(update={"heir": "singapore"}))


def test_headquarters_are_lost_once_and_not_before_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[str] = []
    monkeypatch.setattr(LostHeadquarters, "_lose", lambda self: lost.append(self.loss.site))
    context = cast(Any, type("Context", (), {"topology": HERE}))
    one = LostHeadquarters(context, LOSS, T, cast(Any, None), lost.append)
    for hours in (-1, 0, 1):
        asyncio.run(one.on_step(LinkChange(T + dt.timedelta(hours=hours), ("tokyo", "singapore"), up=True)))
        assert one.left_over_now() == (HERE if hours < 0 else one.left_over)
    assert lost == ["los-angeles"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"heir": "singapore"}, "cannot move from los-angeles to singapore"),
        ({"site": "tokyo", "heir": "los-angeles"}, "cannot move from tokyo to los-angeles"),
    ],
)
def test_a_loss_that_does_not_fit_the_topology_is_refused(change: dict[str, str], problem: str) -> None:
    scenario = load("lost-headquarters")
    check_fit(scenario, HERE)
    loss = LOSS.model_copy(update=change)
    with pytest.raises(ConfigurationError, match=problem):
        check_fit(scenario.model_copy(update={"lost_headquarters": loss}), HERE)
    with pytest.raises(ConfigurationError, match="has work to do"):
        check_fit(scenario.model_copy(update={"booking_office": "los-angeles"}), HERE)


def test_the_report_fails_when_the_program_misses_or_repeats_a_reading() -> None:
    good = HeadquartersFigures(
        site="los-angeles", heir="tokyo", lost_at=T, customer="ducks", read_before=9, read_after=4, lost=0, repeated=0
    )
    assert [line.ok for line in good.lines()] == [True, True]
    for change in ({"lost": 1}, {"repeated": 1}, {"read_after": 0}):
        bad = HeadquartersFigures(**{**{name: getattr(good, name) for name in good.__struct_fields__}, **change})
        assert [line.ok for line in bad.lines()] == [True, False]
