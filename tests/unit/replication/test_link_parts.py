"""The parts of a link that need no broker: permission, standing, lanes, hurrying, how often it looks."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.wire.types import TopicPartition
from replication import hurry as under_test
from replication.hurry import Hurry
from replication.lane import Lane
from replication.lanes import LANE_LOGS, THIN_LANES, Lanes
from replication.permission import Permission
from replication.refresh import QUIET, REFRESH, refresh_pause
from replication.replica import Replica
from replication.standing import Standing
from replication.states import LinkState
from topologies.model import Priority

# ---- permission


async def test_work_ends_when_the_permission_is_withdrawn() -> None:
    permission = Permission()
    permission.give()
    began = asyncio.Event()
    ended: list[str] = []

    async def work() -> None:
        try:
            began.set()
            await asyncio.Future()
        finally:
            ended.append("cleaned up")

    task = asyncio.create_task(permission.during(work()))
    await began.wait()
    permission.withdraw(LinkState.PAUSED, "by ann")
    await task
    assert ended == ["cleaned up"]
    assert not permission.is_given
    assert permission.why_not == (LinkState.PAUSED, "by ann")


async def test_work_that_fails_raises_and_work_that_is_done_returns() -> None:
    permission = Permission()
    permission.give()

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await permission.during(fail())
    await permission.during(asyncio.sleep(0))
    assert permission.is_given


async def test_waiting_ends_when_the_permission_is_given() -> None:
    permission = Permission()
    waiting = asyncio.create_task(permission.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    permission.give()
    await waiting


# ---- standing


def test_a_state_is_dated_from_when_it_was_entered() -> None:
    standing = Standing("a->b")
    standing.enter(LinkState.MIRRORING)
    since = standing.since
    standing.enter(LinkState.MIRRORING, "still")
    assert (standing.since, standing.cause) == (since, "still")


def test_the_last_error_stays_when_the_link_is_up_again() -> None:
    standing = Standing("a->b")
    standing.fail("no route")
    assert standing.as_json()["state"] == "unavailable"
    standing.enter(LinkState.MIRRORING)
    assert standing.last_error == "no route"
    assert (standing.as_json()["state"], standing.as_json()["cause"]) == ("mirroring", "")


# ---- lanes


class FakeLane:
    def __init__(self, priority: Priority) -> None:
        self.priority = priority
        self.logs: set[TopicPartition] = set()

    def __len__(self) -> int:
        return len(self.logs)

    def follow(self, replica: Replica) -> None:
        self.logs.add(replica.tp)

    def unfollow(self, tp: TopicPartition) -> None:
        self.logs.remove(tp)

    def lag(self) -> int:
        return len(self.logs)


class Link:
    """What opens lanes; ``up`` tells whether it can."""

    def __init__(self, *, thin: bool) -> None:
        self.up = True
        self.opened: list[FakeLane] = []
        self.lanes = Lanes(self._open, thin=thin)

    def _open(self, priority: Priority) -> Lane | None:
        if not self.up:
            return None
        self.opened.append(FakeLane(priority))
        return cast(Lane, self.opened[-1])

    def follow(self, count: int, priority: Priority = Priority.NORMAL, name: str = "log") -> list[TopicPartition]:
        logs = [TopicPartition(f"{name}.{number}") for number in range(count)]
        self.lanes.follow({tp: Replica(tp, priority) for tp in logs}, lambda _: priority)
        return logs


def test_a_lane_takes_no_more_logs_than_it_may() -> None:
    link = Link(thin=False)
    link.follow(LANE_LOGS + 1)
    assert [len(each) for each in link.opened] == [LANE_LOGS, 1]
    link.follow(LANE_LOGS + 1)  # known already
    assert len(link.lanes) == LANE_LOGS + 1
    assert link.lanes.lag() == LANE_LOGS + 1


def test_classes_have_lanes_of_their_own() -> None:
    link = Link(thin=False)
    link.follow(3, Priority.NORMAL, "a")
    link.follow(2, Priority.CONTROL, "b")
    assert {each.priority: len(each) for each in link.opened} == {Priority.NORMAL: 3, Priority.CONTROL: 2}


def test_a_thin_link_shares_its_logs_between_two_lanes() -> None:
    link = Link(thin=True)
    link.follow(10)
    assert [len(each) for each in link.opened] == [10 // THIN_LANES] * THIN_LANES
    link.follow(2, Priority.CONTROL, "control")
    assert [len(each) for each in link.opened[THIN_LANES:]] == [2]  # of those that every source gives: one


def test_nothing_is_followed_while_the_link_is_down() -> None:
    link = Link(thin=False)
    link.up = False
    link.follow(2)
    assert len(link.lanes) == 0
    link.up = True
    link.follow(2)
    assert len(link.lanes) == 2
    link.lanes.clear()
    assert (len(link.lanes), link.lanes.lag()) == (0, 0)


def test_logs_that_are_not_wanted_any_more_leave_their_lane() -> None:
    link = Link(thin=False)
    first, second, third = link.follow(3)
    assert link.lanes.unfollow(first)
    assert not link.lanes.unfollow(first)
    link.lanes.unfollow_all_but({third})
    assert link.opened[0].logs == {third}
    assert second not in link.opened[0].logs
    assert len(link.lanes) == 1


# ---- hurrying


async def test_several_changes_cut_a_poll_short_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "HURRY", (0.0, 0.0))
    cut = asyncio.Event()
    times = itertools.count()

    def cut_short() -> None:
        next(times)
        cut.set()

    hurry = Hurry(cut_short, allowed=True)
    for _ in range(3):
        hurry.ask()
    await cut.wait()
    cut.clear()
    hurry.ask()  # a later change is a reason of its own
    await cut.wait()
    assert next(times) == 2


async def test_no_poll_is_cut_short_where_that_is_not_allowed_or_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "HURRY", (0.0, 0.0))
    cut: list[Any] = []
    Hurry(lambda: cut.append("thin"), allowed=False).ask()
    cancelled = Hurry(lambda: cut.append("cancelled"), allowed=True)
    cancelled.ask()
    cancelled.cancel()
    done = asyncio.Event()
    Hurry(done.set, allowed=True).ask()
    await done.wait()
    assert cut == []


# ---- how often a cluster is asked for its topics


@given(size=st.integers(0, 1 << 30), quiet=st.floats(0, 1e6), rate=st.none() | st.integers(1_000, 1 << 30))
def test_looking_is_never_more_frequent_than_that(size: int, quiet: float, rate: int | None) -> None:
    pause = refresh_pause(size, quiet, rate)
    assert pause >= (QUIET[1] if quiet > QUIET[0] else REFRESH[0])
    assert refresh_pause(2 * size, quiet, rate) >= pause
    assert rate is not None or pause <= REFRESH[1]


@pytest.mark.parametrize(
    ("size", "quiet", "rate", "seconds"),
    [
        (1_000, 0, None, 1.0),
        (1_000, 60, None, 3.0),
        (600_000, 0, None, 10.0),
        (600_000, 60, None, 100.0),
        (600_000, 0, 8_000, 300.0),  # a quarter of the link's rate
        (600_000, 60, 8_000, 1500.0),
    ],
)
def test_looking_costs_only_so_much(size: int, quiet: float, rate: int | None, seconds: float) -> None:
    assert refresh_pause(size, quiet, rate) == pytest.approx(seconds)
