"""Topics are made part by part; while one is waited for, the next is made already."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

import pytest

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import UnavailableError
from fairlead.wire.cluster import Cluster
from fairlead.wire.types import TopicPartition
from replication import making
from replication.making import Model, make


class Target:
    """A cluster that serves a topic when it is told to; what happens is in ``done``."""

    endpoint = KafkaEndpoint("ship", (("127.0.0.1", 1),))

    def __init__(self) -> None:
        self.done: list[str] = []
        self.serve = asyncio.Semaphore(0)
        self.fail = ""
        self.asked: list[str] = []  # topics that told what a new one would be like by itself
        self.implied: dict[str, Mapping[str, str]] = {}

    async def topic_settings(self, topics: list[str], _names: Collection[str]) -> dict[str, dict[str, str]]:
        return {topic: {} for topic in topics}

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
        self.done.append("made " + " ".join(topics))


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    made = Target()
    monkeypatch.setattr(making, "create_logs", made.create)
    yield made


def parts(target: Target, *names: str) -> list[dict[str, Model]]:
    return [{name: Model(cast(Cluster, target), 1)} for name in names]


async def test_the_next_part_is_made_while_one_is_waited_for(target: Target) -> None:
    async with contextlib.aclosing(make(cast(Cluster, target), parts(target, "a", "b", "c"), {})) as made:
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
    found = [set(each) async for each in make(cast(Cluster, target), parts(target, "a"), {"a": 1})]
    assert (found, target.done) == ([{"a"}], ["served a"])


async def test_a_topic_that_is_here_tells_which_settings_go_without_saying(target: Target) -> None:
    target.serve.release()
    target.serve.release()
    async for _ in make(cast(Cluster, target), parts(target, "a", "b"), {"old": 1}):
        pass
    assert (target.asked, target.implied["b"]) == (["old", "old"], {"retention.ms": "-1"})


async def test_at_an_empty_target_the_first_topics_have_all_settings(target: Target) -> None:
    target.serve.release()
    target.serve.release()
    async for _ in make(cast(Cluster, target), parts(target, "a", "b"), {}):
        pass
    assert (target.asked, target.implied) == (["a"], {"a": {}, "b": {"retention.ms": "-1"}})


async def test_a_part_that_fails_ends_it_after_those_before(target: Target) -> None:
    target.fail = "b"
    target.serve.release()
    made = make(cast(Cluster, target), parts(target, "a", "b", "c"), {})
    assert set(await anext(made)) == {"a"}
    with pytest.raises(UnavailableError):
        await anext(made)
    assert target.done == ["made a", "served a"]


async def test_nothing_to_make_is_no_work(target: Target) -> None:
    assert [each async for each in make(cast(Cluster, target), [], {})] == []
    assert target.done == []
