"""Topics are created in groups; while one group becomes available, the next is being created."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.errors import FairleadError, RefusedError, UnavailableError
from fairlead.kafka.client.cluster import SERVED, Cluster
from fairlead.kafka.client.metadata import TopicChanges
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import LEADER_NOT_AVAILABLE, BrokerError, broker_error
from fairlead.kafka.protocol.types import TopicInfo, TopicPartition
from replication.link.source_link import SourceLink
from replication.plan import topics as making
from replication.plan.topics import TopicModel, create_topics, topic_models
from replication.target.topics import TargetTopics
from topologies.model import Link


class Target:
    """A cluster that makes a topic available when the test says so; ``done`` lists the steps."""

    endpoint = KafkaEndpoint("ship", (("127.0.0.1", 1),))

    def __init__(self) -> None:
        self.done: list[str] = []
        self.serve = asyncio.Semaphore(0)
        self.fail = ""
        self.there: dict[str, int] = {}  # topics that others have created, with their partitions
        self.refuse: set[str] = set()  # topics that may not be created, or made larger
        self.leaderless: set[TopicPartition] = set()
        self.slow: list[TopicPartition] = []  # all that is served at the next looks
        self.waits: list[float] = []  # seconds that each look at what is served may take
        self.asked: list[str] = []  # topics that were asked for the settings that a new topic would get by default
        self.implied: dict[str, Mapping[str, str]] = {}
        self.settings: dict[str, Mapping[str, str]] = {}

    async def topic_settings(self, topics: list[str], _names: Collection[str]) -> dict[str, dict[str, str]]:
        return {topic: {"cleanup.policy": "compact"} for topic in topics}

    async def topic_defaults(self, topic: str, names: Collection[str]) -> dict[str, str]:
        assert {"retention.ms", "cleanup.policy", "min.compaction.lag.ms"} <= set(names)
        self.asked.append(topic)
        return {"retention.ms": "-1"}

    @property
    def logs_per_request(self) -> int:
        return 1000

    async def unserved(self, logs: Collection[TopicPartition], timeout: float) -> dict[TopicPartition, BrokerError]:  # noqa: ASYNC109
        await self.serve.acquire()
        self.waits.append(timeout)
        if self.slow:
            served = self.slow.pop()
            return {tp: broker_error(LEADER_NOT_AVAILABLE, tp) for tp in logs if tp != served}
        late = {tp: broker_error(LEADER_NOT_AVAILABLE, tp) for tp in logs if tp in self.leaderless}
        self.done.append("served " + " ".join(tp.topic for tp in logs if tp not in late))
        return late

    def create(
        self,
        _endpoint: KafkaEndpoint,
        topics: Mapping[str, Any],
        *,
        implied: Mapping[str, str],
        failures: dict[str, FairleadError],
        **_: Any,
    ) -> set[str]:
        if self.fail in topics:
            failures[self.fail] = UnavailableError("away")
            return set()
        failures |= self._refused(topics)
        self.implied |= dict.fromkeys(topics, implied)
        self.settings |= topics
        self.done.append("made " + " ".join(topic for topic in topics if topic not in self.refuse))
        return topics.keys() - self.refuse - self.there.keys()

    async def topics(self, names: Collection[str], *, refresh: bool) -> dict[str, TopicInfo]:
        assert refresh and set(names) <= self.there.keys()
        return {name: TopicInfo(name, name.encode(), dict.fromkeys(range(self.there[name]), 1)) for name in names}

    def grow(self, _endpoint: KafkaEndpoint, topics: Mapping[str, int], *, failures: dict[str, FairleadError]) -> None:
        failures |= self._refused(topics)
        self.done.append("grew " + " ".join(topic for topic in topics if topic not in self.refuse))

    def _refused(self, topics: Iterable[str]) -> dict[str, FairleadError]:
        return {topic: RefusedError(f"no {topic}") for topic in topics if topic in self.refuse}


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    made = Target()
    monkeypatch.setattr(making, "create_logs", made.create)
    monkeypatch.setattr(making, "grow_topics", made.grow)
    yield made


def parts(target: Target, *names: str) -> list[dict[str, TopicModel]]:
    return [{name: TopicModel(cast(Cluster, target), 1)} for name in names]


async def test_the_next_part_is_made_while_one_is_waited_for(target: Target) -> None:
    """The next group is created while the first one is waited for."""
    async with contextlib.aclosing(create_topics(cast(Cluster, target), parts(target, "a", "b", "c"), {})) as made:
        first = asyncio.ensure_future(anext(made))
        async with asyncio.timeout(10):
            while target.done != ["made a", "made b"]:  # noqa: ASYNC110 - a thread does it
                await asyncio.sleep(0.001)
        target.serve.release()
        assert set((await first).partitions) == {"a"}
        target.serve.release()
        assert set((await anext(made)).partitions) == {"b"}
        target.serve.release()
        assert [set(each.partitions) async for each in made] == [{"c"}]
    assert [each for each in target.done if each.startswith("served")] == ["served a", "served b", "served c"]


async def test_what_is_here_is_not_made(target: Target) -> None:
    """A topic that exists is not created."""
    target.serve.release()
    found = [set(each.partitions) async for each in create_topics(cast(Cluster, target), parts(target, "a"), {"a": 1})]
    assert (found, target.done) == ([{"a"}], ["served a"])


async def test_a_topic_that_is_here_tells_which_settings_go_without_saying(target: Target) -> None:
    """An existing topic shows which settings are the broker's defaults."""
    target.serve.release()
    target.serve.release()
    async for _ in create_topics(cast(Cluster, target), parts(target, "a", "b"), {"old": 1}):
        pass
    assert (target.asked, target.implied["b"]) == (["old", "old"], {"retention.ms": "-1"})


async def test_at_an_empty_target_the_first_topics_have_all_settings(target: Target) -> None:
    """At an empty target, the first topics are created with all settings given."""
    target.serve.release()
    target.serve.release()
    async for _ in create_topics(cast(Cluster, target), parts(target, "a", "b"), {}):
        pass
    assert (target.asked, target.implied) == (["a"], {"a": {}, "b": {"retention.ms": "-1"}})


async def test_a_part_that_fails_ends_it_after_those_before(target: Target) -> None:
    """A target that goes away ends the creation after the groups before it."""
    target.fail = "b"
    target.serve.release()
    made = create_topics(cast(Cluster, target), parts(target, "a", "b", "c"), {})
    assert set((await anext(made)).partitions) == {"a"}
    with pytest.raises(UnavailableError):
        await anext(made)
    assert target.done == ["made a", "served a"]


async def test_a_topic_that_is_refused_holds_up_no_other(target: Target) -> None:
    """The topics of a group that the target refuses are returned with the error; the others are created."""
    target.refuse = {"b", "grown"}
    for _ in range(2):
        target.serve.release()
    one = TopicModel(cast(Cluster, target), 1)
    wanted = [{"a": one, "b": one, "grown": TopicModel(None, 3), "large": TopicModel(None, 2)}, {"c": one}]
    made = [each async for each in create_topics(cast(Cluster, target), wanted, {"grown": 1, "large": 1})]
    assert [set(each.partitions) for each in made] == [{"a", "large"}, {"c"}]
    assert [{topic: error.what for topic, error in each.refused.items()} for each in made] == [
        {"b": "no b", "grown": "no grown"},
        {},
    ]
    assert set(target.done) == {"made a", "grew large", "served a large large", "made c", "served c"}


async def test_a_topic_without_a_leader_holds_up_no_other(target: Target) -> None:
    """A topic that no broker serves is returned with the error; the others of its group, and later ones, go on."""
    target.leaderless = {TopicPartition("b", 1)}
    for _ in range(3):
        target.serve.release()
    wanted = [{"a": TopicModel(None, 1), "b": TopicModel(None, 2)}, {"c": TopicModel(None, 1)}]
    made = [each async for each in create_topics(cast(Cluster, target), wanted, {})]
    assert [(dict(each.partitions), {*each.created}) for each in made] == [
        ({"a": 1}, {"a"}),
        ({}, set()),
        ({"c": 1}, {"c"}),
    ]
    assert [list(each.refused) for each in made] == [[], ["b"], []]
    assert "LEADER_NOT_AVAILABLE" in made[1].refused["b"].what
    assert target.waits == [SERVED[0], SERVED[1], SERVED[0]]


async def test_what_is_served_is_returned_before_what_is_not_served_yet(target: Target) -> None:
    """A broker that is busy serves new topics one after the other; it is waited for while it gets on."""
    names = ("a", "b", "c")
    target.slow = [TopicPartition(name) for name in names]
    for _ in range(3):
        target.serve.release()
    wanted = [{name: TopicModel(None, 1) for name in names}]
    made = [each async for each in create_topics(cast(Cluster, target), wanted, {})]
    assert [dict(each.partitions) for each in made] == [{"c": 1}, {"b": 1}, {"a": 1}]
    assert not any(each.refused for each in made)


async def test_a_topic_that_others_have_created_is_not_counted_as_created(target: Target) -> None:
    """A topic that turns out to exist is not among those that were created, has the partitions that it has, and gets
    more if it has too few."""
    target.there = {"b": 1, "large": 6}
    target.serve.release()
    wanted = {topic: TopicModel(None, 3) for topic in ("a", "b", "large")}
    (made,) = [each async for each in create_topics(cast(Cluster, target), [wanted], {})]
    assert (made.partitions, made.created) == ({"a": 3, "b": 3, "large": 6}, {"a"})
    assert target.done[:2] == ["made a b large", "grew b"]


async def test_nothing_to_make_is_no_work(target: Target) -> None:
    """With no topics to create, nothing happens."""
    assert [each async for each in create_topics(cast(Cluster, target), [], {})] == []
    assert target.done == []


async def test_settings_come_from_the_source_only_where_they_follow(target: Target) -> None:
    """Settings are copied from the source only for topics whose settings follow it."""
    target.serve.release()
    wanted = {"followed": TopicModel(cast(Cluster, target), 1), "alike": TopicModel(None, 1)}
    assert [set(each.partitions) async for each in create_topics(cast(Cluster, target), [wanted], {})] == [
        {"followed", "alike"}
    ]
    assert target.settings == {"followed": {"cleanup.policy": "compact"}, "alike": {}}


def test_a_topic_gets_the_partitions_of_a_source_only_where_they_follow() -> None:
    """A topic gets the source's number of partitions only if its form follows that source.

    Any other source may have any number of partitions.
    """
    holder, other = (
        cast(
            SourceLink,
            SimpleNamespace(link=name, cluster=name + "'s", logs=SimpleNamespace(topics=dict.fromkeys("tu", count))),
        )
        for name, count in (("holder", 3), ("other", 50))
    )
    t, u = TopicPartition("t"), TopicPartition("u")

    def shapes(link: Link, topic: str) -> bool:
        return (str(link), topic) == ("holder", "t")

    assert topic_models([t, u], {t: [other, holder], u: [other, holder]}, shapes) == {
        "t": TopicModel(cast(Cluster, "holder's"), 3),
        "u": TopicModel(None, 1),
    }


def listing(*, gone: Iterable[str] = (), is_whole: bool = False, **topics: int) -> TopicChanges:
    return TopicChanges(
        {name: TopicInfo(name, name.encode(), dict.fromkeys(range(count), 1), 1) for name, count in topics.items()},
        {*gone},
        is_whole,
    )


def test_a_topic_that_is_deleted_before_anybody_has_looked_is_missed_at_the_second_look() -> None:
    """A topic that is deleted before any listing has had it is found missing by the second listing.

    It was created and deleted between two listings: the target's answers are the same.
    """
    here = TargetTopics()
    assert here.apply_listing(listing(old=1, is_whole=True)) == ({"old"}, set())
    here.create({"new": 1}, {"new"})
    assert here.apply_listing(None) == (set(), set())
    assert here == {"old": 1, "new": 1}, "it need not be shown yet"
    assert here.apply_listing(None) == (set(), {"new"})
    assert here == {"old": 1}


def test_a_topic_that_was_created_stays_once_it_was_listed() -> None:
    """A topic that a listing has had is only gone when a later one says so."""
    here = TargetTopics()
    here.create({"new": 1}, {"new"})
    assert here.apply_listing(listing(new=1)) == (set(), set())
    for _ in range(3):
        assert here.apply_listing(None) == (set(), set())
    assert here.apply_listing(listing(gone=["new"])) == (set(), {"new"})


def test_what_others_make_and_delete_is_seen_at_once() -> None:
    """Topics that other clients create, make larger and delete are noticed at once."""
    here = TargetTopics()
    here.apply_listing(listing(a=1, b=1, is_whole=True))
    assert here.apply_listing(listing(b=3, c=1, gone=["a"])) == ({"c"}, {"a"})
    assert here == {"b": 3, "c": 1}


def test_a_first_listing_shows_what_is_gone_since_the_one_of_another_connection() -> None:
    """After a new connection, topics that the first listing does not have are gone."""
    here = TargetTopics()
    here.apply_listing(listing(a=1, b=1, is_whole=True))
    assert here.apply_listing(listing(b=1, is_whole=True)) == (set(), {"a"})
