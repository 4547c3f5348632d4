"""The driver of a member's state machine, with a coordinator that answers from memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.coding import Question
from fairlead.kafka.protocol.errors import AuthenticationFailed, ConnectionLost, RequestTimeout, WireError
from fairlead.kafka.protocol.group_codec import Coordinator, Joined, ListedGroups, Synced
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.kafka.protocol.versions import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from replication.sharing import member as module
from replication.sharing import rules
from replication.sharing.member import ROLE, GroupMember
from replication.sharing.rules import UNKNOWN_MEMBER, MemberInfo, Roster, WorkShare
from replication.states import MemberState
from tests.support.kafka.fake_broker import until
from topologies.model import Topology

TOPOLOGY = Topology.model_validate(
    {
        "name": "two",
        "sites": {"a": {"kind": "datacentre"}, "b": {"kind": "datacentre"}},
        "streams": {"s": {}},
        "links": [{"from": "a", "to": "b", "streams": {"s": "all"}}],
    }
)
LOG = TopicPartition("s.x")
BROKER = 1


@dataclass
class Target:
    """A cluster whose broker 1 coordinates the group; ``trouble`` is raised when that broker is to be reached."""

    trouble: WireError | None = None
    heartbeat: int = 0
    others: dict[str, str] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    is_hung: bool = False

    def __post_init__(self) -> None:
        self.metadata = SimpleNamespace(brokers={BROKER: ("host", 1)})
        self.pool = self

    async def any(self, role: str) -> Target:
        return self

    async def get(self, role: str, node: int) -> Target:
        assert (role, node) == (ROLE, BROKER)
        if self.trouble is not None:
            raise self.trouble
        return self

    def drop(self, role: str, node: int) -> None: ...

    async def control(self, node: int, question: Question[Any]) -> ListedGroups:
        return ListedGroups(0, self.others)

    async def call(self, question: Question[Any], *, seconds: float) -> Any:
        self.asked.append(question.api_key)
        if self.is_hung:
            raise RequestTimeout("no answer")
        roster = Roster("m", {"m": MemberInfo("one")})
        return {
            FIND_COORDINATOR[0]: Coordinator(0, BROKER),
            JOIN_GROUP[0]: Joined(0, 1, "m", "m", {"m": b'{"name":"one"}'}),
            SYNC_GROUP[0]: Synced(0, msgspec.json.encode(roster)),
            HEARTBEAT[0]: self.heartbeat,
            LEAVE_GROUP[0]: 0,
        }[question.api_key]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "HEARTBEAT_SECONDS", 0.001)
    monkeypatch.setattr(rules, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(rules, "BACKOFF", (0.001,))


@contextlib.asynccontextmanager
async def running(target: Target) -> AsyncIterator[tuple[GroupMember, WorkShare]]:
    share = WorkShare(group=True)
    member = GroupMember("g", TOPOLOGY, "b", share, lambda: None)
    task = asyncio.ensure_future(member.run(cast(Cluster, target)))
    try:
        yield member, share
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def state(member: GroupMember) -> str:
    return str(member.snapshot({})["state"])


async def test_it_joins_stays_and_leaves() -> None:
    target = Target()
    async with running(target) as (member, share):
        await until(lambda: target.asked.count(HEARTBEAT[0]) > 3)
        assert share.owns(LOG) and share.leads
        shown = member.snapshot({"m": 9})
        assert (shown["state"], shown["me"], shown["members"]["m"]["logs"]) == ("member", "m", 9)
    assert target.asked[-1] == LEAVE_GROUP[0]


@pytest.mark.parametrize(
    ("trouble", "shown"),
    [
        (AuthenticationFailed("broker 1 refused the login"), MemberState.REFUSED),
        (ConnectionLost("broker 1 is away"), MemberState.UNAVAILABLE),
    ],
)
async def test_it_keeps_its_logs_while_the_coordinators_broker_alone_refuses_it(
    trouble: WireError, shown: MemberState
) -> None:
    target = Target()
    async with running(target) as (member, share):
        await until(lambda: share.owns(LOG))
        target.trouble = trouble
        await until(lambda: state(member) == shown)
        assert "broker 1" in member.snapshot({})["cause"]
        assert share.owns(LOG)
        target.trouble = None
        await until(lambda: state(member) == MemberState.MEMBER)
        assert member.snapshot({})["cause"] == ""
    assert target.asked.count(JOIN_GROUP[0]) == 1


async def test_a_login_that_is_refused_from_the_start_gives_no_logs() -> None:
    target = Target(trouble=AuthenticationFailed("broker 1 refused the login"))
    async with running(target) as (member, share):
        await until(lambda: state(member) == MemberState.REFUSED)
        assert not share.owns(LOG)


async def test_a_coordinator_that_hangs_is_named() -> None:
    target = Target()
    async with running(target) as (member, share):
        await until(lambda: share.owns(LOG))
        target.is_hung = True
        await until(lambda: state(member) == MemberState.UNAVAILABLE)
        assert share.owns(LOG)


async def test_one_that_was_removed_joins_again() -> None:
    target = Target()
    async with running(target) as (_, share):
        await until(lambda: share.owns(LOG))
        target.heartbeat = UNKNOWN_MEMBER
        await until(lambda: not share.owns(LOG))
        target.heartbeat = 0
        await until(lambda: share.owns(LOG))
    assert target.asked.count(JOIN_GROUP[0]) > 1


async def test_a_stop_at_the_moment_of_a_change_is_a_stop() -> None:
    """``asyncio.wait_for`` of Python 3.11 forgets that it was cancelled when what it waits for happens as well."""
    async with asyncio.timeout(20), running(Target()) as (member, share):
        await until(lambda: share.owns(LOG))
        await until(lambda: not member._look.is_set())  # noqa: SLF001
        member._look.set()  # noqa: SLF001


async def test_another_group_of_the_site_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUPS_SECONDS", 0.001)
    target = Target()
    async with running(target) as (member, _):
        await until(lambda: state(member) == MemberState.MEMBER)
        assert member.snapshot({})["warning"] == ""
        target.others = {"fairlead.replicators.g": "Stable", "fairlead.replicators.other": "Stable"}
        await until(lambda: "the group other copies" in member.snapshot({})["warning"])
        target.others = {"fairlead.replicators.g": "Stable", "fairlead.replicators.other": "Empty"}
        await until(lambda: member.snapshot({})["warning"] == "")
