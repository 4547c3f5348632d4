"""What a refill does with consumer groups that go on meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication.groups.client import Groups, Refusal
from replication.groups.rules import Commit
from replication.operations.links.access import ClusterAccess
from replication.operations.resolve import steps
from replication.operations.resolve.steps import Committed, DeleteTopic, ResolveRun, RestoreGroups

TOPIC = "orders.a"


class Site:
    """A site with groups, whose log has two partitions that end at 100; it stands in for its clients, too."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], int] = {}

    async def topics(self, names: Collection[str], *, refresh: bool = False) -> dict[str, Any]:
        return {name: SimpleNamespace(partitions={0: 1, 1: 1}) for name in names}

    async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, 100)

    async def groups(self) -> Groups:
        return Groups({group: False for group, _ in self.offsets}, ())

    async def read(self, group: str) -> dict[TopicPartition, Commit]:
        return {TopicPartition(TOPIC, n): Commit(at) for (name, n), at in self.offsets.items() if name == group}

    async def commit(self, group: str, commits: Mapping[TopicPartition, Commit]) -> dict[TopicPartition, Refusal]:
        self.offsets |= {(group, tp.partition): commit.offset for tp, commit in commits.items()}
        return {}


async def test_groups_that_go_on_during_a_refill_are_not_moved_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group may commit while the log is copied aside, and again before its offsets are restored."""
    site = Site()
    client = SimpleNamespace(groups=site.groups, offsets=site.read, commit=site.commit)
    monkeypatch.setattr(steps, "GroupClient", lambda _: client)
    monkeypatch.setattr(steps, "delete_logs", lambda *_: site.offsets.clear())
    run = ResolveRun(
        KafkaEndpoint("beta", (("localhost", 1),)),
        cast(Cluster, site),
        lambda _: pytest.fail("no other site is asked"),
        cast(ClusterAccess, None),
    )
    shown = (Committed("readers", 0, 7), Committed("readers", 1, 7))
    site.offsets = {("readers", 0): 20, ("readers", 1): 30, ("others", 0): 300}
    await DeleteTopic(TOPIC).carry_out(run)
    site.offsets = {("readers", 0): 25, ("others", 0): 3}
    await RestoreGroups(TOPIC, shown).carry_out(run)
    assert site.offsets == {("readers", 0): 25, ("readers", 1): 30, ("others", 0): 100}
