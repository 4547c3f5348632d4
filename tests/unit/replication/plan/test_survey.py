"""Ask sources that are not followed whether they have more records, and retry logs that were unavailable."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.errors import FairleadError, UnavailableError
from fairlead.kafka.protocol.types import TopicPartition
from replication.catalog import EVERYTHING, SourceReach
from replication.changes import PlanChanges
from replication.link.source_link import SourceLink
from replication.plan.maintenance import Survey
from replication.states import LogState, LogTrouble, now
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition
from topologies.model import Priority

LOG = TopicPartition("orders.a")


class Link:
    """One link as the survey sees it, and the cluster at its source. ``end``: end of its copy of the log."""

    def __init__(
        self, name: str, *, up: bool = True, end: int | FairleadError = 0, reach: SourceReach = EVERYTHING
    ) -> None:
        self.name = name
        self.reach = lambda _: reach
        self.link = SimpleNamespace(from_=name.partition("->")[0])
        self.is_up = up
        self.cluster: Link | None = self
        self.logs = SimpleNamespace(ends={})
        self.end = end
        self.asked: list[TopicPartition] = []
        self.forgiven = 0

    async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked += logs
        if isinstance(self.end, FairleadError):
            raise self.end
        return dict.fromkeys(logs, self.end)

    @property
    def rules(self) -> Link:
        return self

    def retry_unavailable(self) -> None:
        self.forgiven += 1


class World:
    """Follow the log over the first link; it ends at 5 here."""

    def __init__(self, *links: Link, holder: str | None = None) -> None:
        self.followed: dict[TopicPartition, set[str]] = {LOG: {links[0].name}}
        self.looked: list[str] = []  # links whose logs were looked at
        self.replica = MirrorPartition(LOG, Priority.NORMAL)
        self.replica.end = 5
        self.changes = PlanChanges()
        self.appender = cast(TargetAppender, SimpleNamespace(replicas={LOG: self.replica}))
        self.survey = Survey(
            cast(list[SourceLink], list(links)),
            followed=lambda: self.followed,
            carried=self._carried,
            holder=lambda _: holder,
            changes=self.changes,
        )

    def _carried(self, link: SourceLink, topics: Collection[str] | None) -> list[TopicPartition]:
        self.looked.append(link.name)
        return [LOG] if topics is None or LOG.topic in topics else []

    async def look(self) -> int:
        return await self.survey.survey_once(self.appender)


@pytest.mark.parametrize(("end", "changes"), [(5, set()), (6, {LOG.topic})])
async def test_a_source_that_has_more_changes_the_plan(end: int, changes: set[str]) -> None:
    """A log of which a source has more records is planned again."""
    first, second = Link("a->t"), Link("b->t", end=end)
    world = World(first, second)
    assert await world.look() == 1
    assert (first.asked, second.asked, second.logs.ends) == ([], [LOG], {LOG: end})
    assert world.changes.take() == changes


async def test_what_a_source_may_not_give_is_no_more() -> None:
    """Records that a source may not write do not count as more; otherwise every survey would make a new plan."""
    second = Link("ship->t", end=90, reach=SourceReach(3, 5))
    world = World(Link("a->t"), second)
    await world.look()
    assert (second.logs.ends, world.changes.take()) == ({LOG: 5}, set())


@pytest.mark.parametrize("other", [None, Link("b->t", up=False, end=9)], ids=["no other", "the other is down"])
async def test_where_there_is_one_source_nobody_is_asked(other: Link | None) -> None:
    """With a single source, nothing is asked."""
    world = World(Link("a->t"), *[each for each in [other] if each is not None])
    assert await world.look() == 0
    assert other is None or other.asked == []


async def test_a_log_that_is_followed_at_its_holder_is_not_asked_for() -> None:
    """A log that is followed at its holder is not asked for elsewhere."""
    second = Link("b->t", end=9)
    assert await World(Link("a->t"), second, holder="a").look() == 0
    assert second.asked == []


@pytest.mark.parametrize("away", [True, False], ids=["does not answer", "has no connection"])
async def test_a_source_that_goes_away_meanwhile_changes_nothing(away: bool) -> None:
    """A source that becomes unavailable during the survey changes nothing."""
    second = Link("b->t", end=UnavailableError("away", hint="wait"))
    if not away:
        second.cluster = None
    world = World(Link("a->t"), second)
    await world.look()
    assert (second.logs.ends, world.changes.take()) == ({}, set())


@pytest.mark.parametrize(("state", "stays"), [(LogState.UNAVAILABLE, False), (LogState.DIVERGED, True)])
def test_only_what_was_unavailable_is_forgiven(state: LogState, stays: bool) -> None:
    """Only logs in the state ``unavailable`` are retried."""
    link: Any = Link("a->t")
    world = World(link)
    world.replica.trouble = LogTrouble(state, "why", now())
    world.followed.clear()
    world.survey.retry_unavailable(world.appender)
    assert (world.replica.trouble is not None) is stays
    assert (world.changes.take(), link.forgiven) == (set() if stays else {LOG.topic}, 1)


async def test_which_logs_to_ask_for_is_decided_once_for_each_plan() -> None:
    """Surveys between two plans ask again, but do not look at all logs of all links again."""
    first, second = Link("a->t"), Link("b->t", end=5)
    world = World(first, second)
    await world.look()
    await world.look()
    assert (world.looked, second.asked) == (["a->t", "b->t"], [LOG, LOG])
    world.followed = {LOG: {"b->t"}}
    world.survey.on_planned({LOG.topic})
    await world.look()
    assert (len(world.looked), first.asked) == (4, [LOG])


async def test_a_plan_of_other_logs_leaves_the_choice() -> None:
    """After a plan of some topics the logs of the others are asked for as before."""
    first, second = Link("a->t"), Link("b->t", end=5)
    world = World(first, second)
    await world.look()
    world.survey.on_planned({"orders.b"})
    await world.look()
    assert second.asked == [LOG, LOG]


async def test_a_link_that_is_down_is_not_asked() -> None:
    """A link that went down after the choice is not asked until it is up again."""
    first, second, third = Link("a->t"), Link("b->t"), Link("c->t")
    world = World(first, second, third)
    await world.look()
    third.is_up = False
    assert await world.look() == 1
    third.is_up = True
    assert await world.look() == 2
