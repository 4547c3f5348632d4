"""One pass of copying group offsets between clusters that answer in part, refuse, or change in between; both are
fakes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from fairlead.errors import RefusedError, UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication.groups import sync as group_sync
from replication.groups.client import Groups, Refusal
from replication.groups.rules import REASON, Commit, GroupLogState
from replication.groups.sync import GroupSync
from tests.support.kafka.fake_broker import until
from topologies.model import Link

LOG = TopicPartition("numbers.alpha.one")
STRANGER = TopicPartition("letters.alpha.one")


@dataclass
class Site:
    """A cluster in memory, with 100 records in each log."""

    offsets: dict[str, dict[TopicPartition, Commit]] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    errors: tuple[str, ...] = ()
    hidden: set[str] = field(default_factory=set)
    refusal: Refusal | None = None
    away: bool = False
    commits: int = 0

    def put(self, group: str, offset: int, log: TopicPartition = LOG) -> None:
        self.offsets.setdefault(group, {})[log] = Commit(offset)


class FakeClient:
    def __init__(self, endpoint: KafkaEndpoint, *, on_bytes: Callable[[int], None] | None = None) -> None:
        self.site = WORLD[endpoint.site]

    async def flush_counts(self) -> None: ...

    async def groups(self) -> Groups:
        if self.site.away:
            raise UnavailableError("away")
        return Groups(
            {group: group in self.site.active for group in self.site.offsets if group not in self.site.hidden},
            self.site.errors,
        )

    async def offsets(self, group: str) -> dict[TopicPartition, Commit]:
        if group in self.site.hidden:
            raise RefusedError(f"may not read {group}")
        return dict(self.site.offsets.get(group, {}))

    async def commit(self, group: str, commits: Mapping[TopicPartition, Commit]) -> dict[TopicPartition, Refusal]:
        if self.site.refusal is not None:
            return dict.fromkeys(commits, self.site.refusal)
        self.site.offsets.setdefault(group, {}).update(commits)
        self.site.commits += 1
        return {}


class FakeCluster:
    @classmethod
    async def open(cls, endpoint: KafkaEndpoint, **options: Any) -> FakeCluster:
        return cls()

    async def close(self) -> None: ...

    async def topics(self, names: Collection[str], *, refresh: bool) -> dict[str, Any]:
        return dict.fromkeys(names, FakeTopic())

    async def start_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, 0)

    async def end_offsets(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, 100)


class FakeTopic:
    partitions = (0,)


WORLD: dict[str, Site] = {}


@pytest.fixture
def alpha() -> Site:
    return WORLD["alpha"]


@pytest.fixture
def beta() -> Site:
    return WORLD["beta"]


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    WORLD.clear()
    WORLD.update(alpha=Site(), beta=Site())
    monkeypatch.setattr(group_sync, "GroupClient", FakeClient)
    monkeypatch.setattr(group_sync, "Cluster", FakeCluster)


def sync(*patterns: str, is_mine: Callable[[], bool] = lambda: True) -> GroupSync:
    link = Link.model_validate({"from": "alpha", "to": "beta", "streams": {"numbers": "all"}, "groups": patterns})
    ends = {site: KafkaEndpoint(site, (("localhost", 1),)) for site in WORLD}
    return GroupSync(
        link,
        lambda: ends["alpha"],
        ends["beta"],
        carries=lambda topic: topic.startswith("numbers."),
        origins={"alpha"},
        is_mine=is_mine,
    )


async def test_one_of_several_replicators_copies_the_groups(
    alpha: Site, beta: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others copy nothing. One that becomes the leader begins with a first round."""
    monkeypatch.setattr(group_sync, "LOOK_SECONDS", 0.001)
    alpha.put("a", 10)
    leads = False
    looking = sync("a", is_mine=lambda: leads)
    task = asyncio.ensure_future(looking.run())
    await until(lambda: looking.snapshot()["state"] == "elsewhere")
    assert beta.commits == 0
    leads = True
    await until(lambda: looking.snapshot()["state"] == "up")
    assert beta.offsets["a"][LOG].offset == 10
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_login_that_takes_long_holds_up_nothing_else(
    alpha: Site, beta: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client asks for a token, or which password is in force, when it is made."""
    made, ends = [], KafkaEndpoint("alpha", (("localhost", 1),))

    def make(endpoint: KafkaEndpoint, **options: Any) -> FakeClient:
        made.append(threading.current_thread() is threading.main_thread())
        return FakeClient(ends)

    monkeypatch.setattr(group_sync, "GroupClient", make)
    await sync("a").sync_once()
    assert made == [False, False]


async def test_only_selected_groups_and_carried_logs_are_copied(alpha: Site, beta: Site) -> None:
    alpha.put("a-1", 10)
    alpha.put("a-1", 10, STRANGER)
    alpha.put("a-2", 10, STRANGER)
    alpha.put("b", 10)
    looking = sync("a-*")
    await looking.sync_once()
    assert {group: set(offsets) for group, offsets in beta.offsets.items()} == {"a-1": {LOG}}
    assert set(looking.snapshot()["groups"]) == {"a-1"}


async def test_nothing_new_costs_no_commit(alpha: Site, beta: Site) -> None:
    """Without new offsets, nothing is committed."""
    alpha.put("a", 10)
    looking = sync("a")
    for _ in range(3):
        await looking.sync_once()
    assert beta.commits == 1


async def test_one_group_in_trouble_does_not_hold_up_the_others(alpha: Site, beta: Site) -> None:
    """One group in trouble does not delay the others."""
    alpha.put("a-1", 10)
    alpha.put("a-2", 20)
    beta.hidden = {"a-1"}
    looking = sync("a-*")
    await looking.sync_once()
    groups = looking.snapshot()["groups"]
    assert (groups["a-1"]["state"], groups["a-1"]["reason"]) == ("skipped", "may not read a-1")
    assert groups["a-2"]["state"] == "copied" and beta.offsets["a-2"][LOG].offset == 20
    beta.hidden = set()
    await looking.sync_once()
    assert looking.snapshot()["groups"]["a-1"]["state"] == "copied"


async def test_a_pattern_that_finds_nothing_tells_missing_rights_from_missing_groups(alpha: Site) -> None:
    """If a pattern matches no group, the report says whether access is missing or there is none."""
    alpha.hidden = {"b-"}
    looking = sync("a-*", "b-*")
    await looking.sync_once()
    snapshot = looking.snapshot()
    assert (snapshot["unmatched"], snapshot["cause"]) == (["a-*", "b-*"], "may not read b-")


async def test_a_list_in_part_makes_nothing_forgotten(alpha: Site, beta: Site) -> None:
    """An incomplete list of groups makes the sync forget nothing.

    A reset at the target must hold, although its group was not listed for a moment.
    """
    alpha.put("a", 50)
    looking = sync("a")
    await looking.sync_once()
    beta.put("a", 0)
    await looking.sync_once()
    kept = alpha.offsets.pop("a")
    alpha.errors = ("_TRANSPORT",)
    await looking.sync_once()
    assert "_TRANSPORT" in looking.snapshot()["cause"]
    alpha.offsets["a"], alpha.errors = kept, ()
    await looking.sync_once()
    assert beta.offsets["a"][LOG] == Commit(0)
    assert looking.snapshot()["groups"]["a"]["reason"] == REASON[GroupLogState.USED]


async def test_members_who_came_in_between_are_later_than_the_source(alpha: Site, beta: Site) -> None:
    """If the group becomes active at the target during the pass, the target's commits count as newer than the
    source's."""
    alpha.put("a", 50)
    beta.put("a", 10)
    beta.refusal = Refusal("UNKNOWN_MEMBER_ID", by_members=True)
    looking = sync("a")
    await looking.sync_once()
    shown = looking.snapshot()["groups"]["a"]
    assert (shown["reason"], shown["behind"]) == (REASON[GroupLogState.ACTIVE], 40)
    beta.refusal = None
    await looking.sync_once()
    assert beta.offsets["a"][LOG] == Commit(10)


async def test_another_refusal_is_named_and_tried_again(alpha: Site, beta: Site) -> None:
    """Any other refusal is reported and retried."""
    alpha.put("a", 50)
    beta.refusal = Refusal("OFFSET_METADATA_TOO_LARGE", by_members=False)
    looking = sync("a")
    await looking.sync_once()
    shown = looking.snapshot()["groups"]["a"]
    assert shown["state"] == "skipped" and "OFFSET_METADATA_TOO_LARGE: 1" in shown["reason"]
    assert shown["behind"] == 50
    beta.refusal = None
    await looking.sync_once()
    assert beta.offsets["a"][LOG].offset == 50


async def test_a_group_that_is_gone_at_the_source_stays_at_the_target(alpha: Site, beta: Site) -> None:
    """A group that was deleted at the source stays at the target."""
    alpha.put("a", 50)
    looking = sync("a")
    await looking.sync_once()
    alpha.offsets.clear()
    await looking.sync_once()
    assert beta.offsets["a"][LOG].offset == 50
    assert looking.snapshot()["groups"] == {} and looking.snapshot()["unmatched"] == ["a"]


async def test_a_cluster_that_is_away_ends_the_look(alpha: Site) -> None:
    """A cluster that does not answer ends the pass."""
    alpha.away = True
    with pytest.raises(UnavailableError):
        await sync("a").sync_once()
