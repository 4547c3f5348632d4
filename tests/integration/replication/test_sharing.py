"""Replicators that share a site's logs: each record is fetched once, and others replace one that is gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local.sites import LocalSites
from replication.replicator import Replicator
from replication.sharing import rules
from replication.sharing.rules import divide
from replication.states import MemberState
from tests.support.proof import grown, proven
from tests.support.replication.lab import Lab, states, until
from tests.support.traffic import Traffic
from tests.support.victims import Victim

pytestmark = pytest.mark.integration
LOGS = 24


def member(lab: Lab, group: str | None = None, **options: Any) -> Replicator:
    return lab.replicator(lab.one_way(), "beta", group=group or lab.stream, **options)


async def shared_by(count: int, *replicators: Replicator, logs: int = LOGS) -> None:
    """Wait until all of these know a group of so many members, and follow its logs together."""

    async def so() -> bool:
        shown = [each.snapshot()["group"] for each in replicators]
        return (
            all(len(each["members"]) == count for each in shown)
            and sum(follows(each) for each in replicators) == logs
            and all(shown[0]["members"] == each["members"] for each in shown)
        )

    await until(so, f"{[each.snapshot()['group'] for each in replicators]} are not {count} members")


def follows(replicator: Replicator) -> int:
    (link,) = replicator.snapshot()["links"]
    return int(link["followed"])


def fetched(replicators: Sequence[Replicator]) -> int:
    return sum(link["fetched_bytes"] for each in replicators for link in each.snapshot()["links"])


async def made(lab: Lab, count: int = LOGS) -> list[str]:
    """Create logs at alpha, each with the marker of its first term."""
    logs = [lab.log(f"alpha.{number}") for number in range(count)]
    await lab.make("alpha", *logs)
    for log in logs:
        await lab.open_term("alpha", log, term=1, at=0)
    return logs


async def write(lab: Lab, logs: Sequence[str], count: int, at: int) -> int:
    for log in logs:
        await lab.write("alpha", log, count, at=at)
    return at + count


async def arrived(lab: Lab, logs: Sequence[str], end: int) -> None:
    for log in logs:
        await lab.reaches("beta", log, end)


async def identical(lab: Lab, logs: Sequence[str]) -> None:
    for log in logs:
        assert await lab.same(log), f"{log} differs"


async def stored_bytes(lab: Lab, logs: Sequence[str]) -> int:
    found = [await lab.stored("alpha", log) for log in logs]
    return sum(len(batch) for stored in found for batch in stored)


async def test_two_members_fetch_every_record_once(lab: Lab) -> None:
    logs = await made(lab)
    one, two = member(lab), member(lab)
    async with lab.running(one, two):
        await shared_by(2, one, two)
        assert follows(one) and follows(two) and follows(one) + follows(two) == LOGS
        await arrived(lab, logs, 1)  # the markers, which a member may have fetched before it was one of two
        before = fetched([one, two])
        at = await stored_bytes(lab, logs)
        end = await write(lab, logs, 40, at=1)
        await arrived(lab, logs, end)
        assert fetched([one, two]) - before == await stored_bytes(lab, logs) - at
        await identical(lab, logs)
        shown = [each.snapshot() for each in (one, two)]
        assert [states(each) for each in shown] == [{}, {}]
        assert shown[0]["group"]["members"] == shown[1]["group"]["members"]
        assert shown[0]["group"]["me"] != shown[1]["group"]["me"]
        assert sum(each["leader"] for each in shown[0]["group"]["members"].values()) == 1
        division = divide(frozenset(shown[0]["group"]["members"]))
        owners = [division.owner(TopicPartition(log)) for log in logs]
        assert follows(one) == owners.count(shown[0]["group"]["me"])


async def test_a_member_that_stops_hands_its_logs_over_at_once(lab: Lab) -> None:
    logs = await made(lab)
    one, two = member(lab), member(lab)
    async with lab.running(one):
        async with lab.running(two):
            await shared_by(2, one, two)
        await shared_by(1, one)
        end = await write(lab, logs, 5, at=1)
        await arrived(lab, logs, end)
        await identical(lab, logs)


@contextlib.asynccontextmanager
async def pair(lab: Lab, sites: LocalSites, folder: Path, *settings: str) -> AsyncIterator[tuple[Victim, Victim]]:
    """Run two members in processes of their own, with the status files ``0`` and ``1``."""
    arguments = (str(sites.folder), lab.stream, f"group={lab.stream}", *settings)
    first, second = (Victim(*arguments, f"status={folder / name}") for name in "01")
    async with first, second:
        await first.start()
        await second.start()
        yield first, second


def status(folder: Path, name: str) -> Mapping[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        found: Mapping[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
        return found
    return {"group": {"members": {}, "state": "", "me": None}, "logs": {}}


async def knows(folder: Path, name: str, members: int) -> None:
    async def so() -> bool:
        return len(status(folder, name)["group"]["members"]) == members

    await until(so, f"{name} does not know {members} members: {status(folder, name)['group']}")


@contextlib.asynccontextmanager
async def traffic(lab: Lab) -> AsyncIterator[Traffic]:
    own = [lab.log(f"alpha.own-{n}") for n in range(12)]
    plain, transactional = lab.log("alpha.plain"), lab.log("alpha.transactional")
    await lab.make("alpha", *own, plain, transactional)
    async with Traffic(
        lab.kafka("alpha"), own=own, idempotent=[plain], transactional=[transactional], seed=3, pause=0.05
    ) as writers:
        yield writers


async def proof(lab: Lab, writers: Traffic) -> None:
    await writers.stop()
    assert await proven(lab.one_way(), writers.written, lab.kafka("alpha"), lab.kafka("beta")) > 0


async def test_the_others_replace_a_member_that_is_killed(lab: Lab, sites: LocalSites, tmp_path: Path) -> None:
    async with pair(lab, sites, tmp_path) as (one, _), traffic(lab) as writers:
        await knows(tmp_path, "0", 2)
        await knows(tmp_path, "1", 2)
        await grown(lab.kafka("beta"), writers.written)
        await one.end(signal.SIGKILL)
        await grown(lab.kafka("beta"), writers.written)
        await knows(tmp_path, "1", 1)
        await one.start()
        await knows(tmp_path, "1", 2)
        await grown(lab.kafka("beta"), writers.written)
        await proof(lab, writers)
        assert status(tmp_path, "1")["logs"] == {}


@pytest.mark.long
async def test_a_member_that_hangs_is_replaced_and_does_no_harm_afterwards(
    lab: Lab, sites: LocalSites, tmp_path: Path
) -> None:
    async with pair(lab, sites, tmp_path) as (one, _), traffic(lab) as writers:
        await knows(tmp_path, "0", 2)
        await knows(tmp_path, "1", 2)
        await grown(lab.kafka("beta"), writers.written)
        for _ in range(2):
            before = status(tmp_path, "0")["group"]["me"]
            os.kill(one.pid, signal.SIGSTOP)
            await knows(tmp_path, "1", 1)
            await grown(lab.kafka("beta"), writers.written)
            os.kill(one.pid, signal.SIGCONT)  # with fetched batches, and appends in flight, of logs that it has lost

            async def back(before: str = before) -> bool:
                me = status(tmp_path, "0")["group"]["me"]
                return me not in (None, before) and me in status(tmp_path, "1")["group"]["members"]

            await until(back, "it has not joined again")
            await grown(lab.kafka("beta"), writers.written)
        await proof(lab, writers)
        assert status(tmp_path, "0")["logs"] == status(tmp_path, "1")["logs"] == {}


@pytest.mark.long
async def test_wall_clocks_that_jump_change_nothing(lab: Lab, sites: LocalSites, tmp_path: Path) -> None:
    async with pair(lab, sites, tmp_path, "clock=7200"), traffic(lab) as writers:
        await knows(tmp_path, "0", 2)
        await knows(tmp_path, "1", 2)
        before = [status(tmp_path, name)["group"]["me"] for name in "01"]
        for _ in range(10):
            await grown(lab.kafka("beta"), writers.written)
        await proof(lab, writers)
        assert [status(tmp_path, name)["group"]["me"] for name in "01"] == before


async def test_two_groups_at_one_site_are_named_and_store_nothing_twice(lab: Lab) -> None:
    logs = await made(lab)
    one = member(lab)
    other = member(lab, group=f"{lab.stream}-b")
    async with lab.running(one):
        await shared_by(1, one)
        async with lab.running(other):
            await shared_by(1, other)

            async def named() -> bool:  # beside groups of earlier tests whose members were killed a moment ago
                groups, copies, _ = other.snapshot()["group"]["warning"].partition(" copies to this site as well")
                return bool(copies) and lab.stream in groups.removeprefix("the group ").split(", ")

            await until(named, f"the other group is not named: {other.snapshot()['group']}")
            await arrived(lab, logs, await write(lab, logs, 20, at=1))
            await identical(lab, logs)
            assert [states(each.snapshot()) for each in (one, other)] == [{}, {}]


async def test_a_member_of_a_release_with_another_protocol_follows_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = await made(lab)
    one, newer = member(lab), member(lab)
    async with lab.running(one):
        await shared_by(1, one)
        monkeypatch.setattr(rules, "PROTOCOL", "fairlead-2")
        async with lab.running(newer):

            async def refused() -> bool:
                return bool(newer.snapshot()["group"]["state"] == MemberState.INCOMPATIBLE)

            await until(refused, f"it is not refused: {newer.snapshot()['group']}")
            await arrived(lab, logs, await write(lab, logs, 20, at=1))
            assert (follows(newer), follows(one)) == (0, LOGS)
            await identical(lab, logs)


async def test_members_with_different_links_are_named(lab: Lab) -> None:
    await made(lab)
    one = member(lab)
    link = {"from": "alpha", "to": "beta", "rate": "10 Mbit/s", "streams": {lab.stream: "all"}}
    two = lab.replicator(lab.topology(links=[link]), "beta", group=lab.stream)
    async with lab.running(one, two):
        await shared_by(2, one, two)
        for each in (one, two):
            assert "different links to this site" in each.snapshot()["group"]["warning"]


async def test_a_member_without_rights_follows_nothing(lab: Lab) -> None:
    stranger = Replicator(
        lab.one_way(), "beta", lab.kafka("beta", user="bridge"), lambda name: lab.kafka(name), group=lab.stream
    )
    async with lab.running(stranger):

        async def refused() -> bool:
            return bool(stranger.snapshot()["group"]["state"] == MemberState.REFUSED)

        await until(refused, f"it is not refused: {stranger.snapshot()['group']}")
        assert "fairlead acl apply" in stranger.snapshot()["group"]["cause"]
        assert follows(stranger) == 0
