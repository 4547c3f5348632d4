"""Topics are made part by part; while one is waited for, the next is made already."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.errors import UnavailableError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication.link.source_link import SourceLink
from replication.plan import topics as making
from replication.plan.topics import TopicModel, create_topics, merge_listing, topic_models
from topologies.model import Link


class Target:
    """A cluster that serves a topic when it is told to; what happens is in ``done``."""

    endpoint = KafkaEndpoint("ship", (("127.0.0.1", 1),))

    def __init__(self) -> None:
        self.done: list[str] = []
        self.serve = asyncio.Semaphore(0)
        self.fail = ""
        self.asked: list[str] = []  # topics that told what a new one would be like by itself
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

    async def wait_writable(self, logs: Collection[TopicPartition]) -> None:
        await self.serve.acquire()
        self.done.append("served " + " ".join(tp.topic for tp in logs))

    def create(
        self, _endpoint: KafkaEndpoint, topics: Mapping[str, Any], *, implied: Mapping[str, str], **_: Any
    ) -> None:
        if self.fail in topics:
            raise UnavailableError("away")
        self.implied |= dict.fromkeys(topics, implied)
        self.settings |= topics
        self.done.append("made " + " ".join(topics))


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    made = Target()
    monkeypatch.setattr(making, "create_logs", made.create)
    yield made


def parts(target: Target, *names: str) -> list[dict[str, TopicModel]]:
    return [{name: TopicModel(cast(Cluster, target), 1)} for name in names]


async def test_the_next_part_is_made_while_one_is_waited_for(target: Target) -> None:
    async with contextlib.aclosing(create_topics(cast(Cluster, target), parts(target, "a", "b", "c"), {})) as made:
        first = asyncio.ensure_future(anext(made))
        async with asyncio.timeout(10):
            while target.done != ["made a", "made b"]:  # noqa: ASYNC110 - a thread does it
                await asyncio.sleep(0.001)
        target.serve.release()
        assert set(await first) == {"a"}
        target.serve.release()
        assert set(await anext(made)) == {"b"}
        target.serve.release()
        assert [set(each) async for each in made] == [{"c"}]
    assert [each for each in target.done if each.startswith("served")] == ["served a", "served b", "served c"]


async def test_what_is_here_is_not_made(target: Target) -> None:
    target.serve.release()
    found = [set(each) async for each in create_topics(cast(Cluster, target), parts(target, "a"), {"a": 1})]
    assert (found, target.done) == ([{"a"}], ["served a"])


async def test_a_topic_that_is_here_tells_which_settings_go_without_saying(target: Target) -> None:
    target.serve.release()
    target.serve.release()
    async for _ in create_topics(cast(Cluster, target), parts(target, "a", "b"), {"old": 1}):
        pass
    assert (target.asked, target.implied["b"]) == (["old", "old"], {"retention.ms": "-1"})


async def test_at_an_empty_target_the_first_topics_have_all_settings(target: Target) -> None:
    target.serve.release()
    target.serve.release()
    async for _ in create_topics(cast(Cluster, target), parts(target, "a", "b"), {}):
        pass
    assert (target.asked, target.implied) == (["a"], {"a": {}, "b": {"retention.ms": "-1"}})


async def test_a_part_that_fails_ends_it_after_those_before(target: Target) -> None:
    target.fail = "b"
    target.serve.release()
    made = create_topics(cast(Cluster, target), parts(target, "a", "b", "c"), {})
    assert set(await anext(made)) == {"a"}
    with pytest.raises(UnavailableError):
        await anext(made)
    assert target.done == ["made a", "served a"]


async def test_nothing_to_make_is_no_work(target: Target) -> None:
    assert [each async for each in create_topics(cast(Cluster, target), [], {})] == []
    assert target.done == []


async def test_settings_come_from_the_source_only_where_they_follow(target: Target) -> None:
    target.serve.release()
    wanted = {"followed": TopicModel(cast(Cluster, target), 1), "alike": TopicModel(None, 1)}
    assert [set(each) async for each in create_topics(cast(Cluster, target), [wanted], {})] == [{"followed", "alike"}]
    assert target.settings == {"followed": {"cleanup.policy": "compact"}, "alike": {}}


def test_a_topic_gets_the_partitions_of_a_source_only_where_they_follow() -> None:
    """A source that is not asked about the topic's form may have as many as it likes."""
    holder, other = (
        cast(SourceLink, SimpleNamespace(link=name, cluster=name + "'s", topics=dict.fromkeys("tu", count)))
        for name, count in (("holder", 3), ("other", 50))
    )
    t, u = TopicPartition("t"), TopicPartition("u")

    def shapes(link: Link, topic: str) -> bool:
        return (str(link), topic) == ("holder", "t")

    assert topic_models([t, u], {t: [other, holder], u: [other, holder]}, shapes) == {
        "t": TopicModel(cast(Cluster, "holder's"), 3),
        "u": TopicModel(None, 1),
    }


def test_a_topic_that_is_deleted_before_anybody_has_looked_is_missed_at_the_second_look() -> None:
    """It was made and deleted between two looks: the target's answers are the same."""
    first = merge_listing({}, {}, {"old": 1})
    assert first == {"old": 1}
    made = first | {"new": 1}
    second = merge_listing(made, first, {"old": 1})
    assert second == made, "it need not be shown yet"
    assert merge_listing(second, second, {"old": 1}) == {"old": 1}


def test_what_others_make_and_delete_is_seen_at_once() -> None:
    assert merge_listing({"a": 1, "b": 1}, {"a": 1, "b": 1}, {"b": 3, "c": 1}) == {"b": 3, "c": 1}
