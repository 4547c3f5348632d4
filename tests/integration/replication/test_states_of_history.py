"""Source and replica have different histories: each such state is reported, and a command resolves it and keeps both
versions."""

from __future__ import annotations

import uuid

import pytest

from fairlead.kafka.admin import delete_logs
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.record import encode_batch
from fairlead.kafka.protocol.types import TopicPartition
from replication.groups.client import GroupClient
from replication.operations.resolve.steps import Committed, groups_of, restore_groups
from tests.integration.replication.resolving import Desk, data
from tests.support.replication.consumers import producer, send
from tests.support.replication.lab import Lab, records, until
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration


async def copied(desk: Desk, topic: str, count: int = 20) -> int:
    """Create a log at alpha and copy it to beta; return its end."""
    lab = desk.lab
    await lab.make("alpha", topic)
    end = await lab.write("alpha", topic, count, at=await lab.open_term("alpha", topic, term=1, at=0))
    async with desk.replicating():
        await lab.reaches("beta", topic, end)
    return end


async def make_again(lab: Lab, topic: str) -> None:
    """Delete a topic at alpha and create it again, empty."""
    delete_logs(lab.kafka("alpha"), [topic])

    async def gone() -> bool:  # the broker serves the old one for a moment
        return await lab.end("alpha", topic) == -1

    await until(gone, f"{topic} is not deleted")
    await lab.make("alpha", topic)


async def test_diverged_is_refilled_and_the_other_history_kept(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.diverged")
    for site, first in (("alpha", 0), ("beta", 100)):
        await lab.make(site, topic)
        await lab.append(site, {topic: term_batch(records(first, 5), term=1, offset=0, marker=0)})
    end = await lab.write("alpha", topic, 10, at=5)
    before = await lab.stored("beta", topic)
    groups = (Committed(f"{lab.stream}.readers", 0, 3, "what a consumer notes beside"),)
    client = GroupClient(lab.kafka("beta"))
    assert await restore_groups(client, topic, groups) == []
    async with desk.replicating():
        shown = await desk.in_state(topic, "diverged")
        assert f"{topic} diverged: {shown['cause']}" in caplog.text
        plan = await desk.resolve(topic, "--dry-run")
        assert [step["step"] for step in plan["steps"]] == [
            "PauseLog",
            "KeepCopy",
            "Verify",
            "DeleteTopic",
            "WriteOrder",
            "WriteOrder",
            "WaitFor",
            "RestoreGroups",
        ]
        assert await lab.stored("beta", topic) == before, "showing a plan must change nothing"
        assert await desk.kept(topic) == []
        await desk.resolve(topic, "--yes")
        await desk.mirrored(topic, end)
        assert await lab.same(topic)
        (kept,) = await desk.kept(topic)
        assert await lab.stored("beta", kept) == before
        assert await groups_of(client, topic, (0,)) == groups
        end = await lab.write("alpha", topic, 5, at=end)
        await desk.mirrored(topic, end)
        assert await lab.same(topic)


async def test_misplaced_is_refilled_with_the_replicator_stopped(desk: Desk) -> None:
    """The command deletes a replica to which a client has written; the next replicator copies the log again."""
    lab, topic = desk.lab, desk.lab.log("alpha.touched")
    end = await copied(desk, topic)
    async with desk.replicating():
        end = await lab.write("alpha", topic, 5, at=end)
        await desk.mirrored(topic, end)
        send(producer(lab.kafka("beta")), topic, 0, 1)
        end = await lab.write("alpha", topic, 5, at=end)
        await desk.in_state(topic, "misplaced")
    before = await lab.stored("beta", topic)
    body = await desk.resolve(topic, "--yes")
    assert body["state"] == "misplaced"
    assert "no replicator of beta is running here" in body["notes"][-1]
    assert await lab.end("beta", topic) == -1
    (kept,) = await desk.kept(topic)
    assert await lab.stored("beta", kept) == before
    async with desk.replicating():
        await desk.mirrored(topic, end)
        assert await lab.same(topic)


async def test_history_that_only_this_site_has_is_given_back(desk: Desk) -> None:
    """A refilled replica still has the old records that the source has deleted."""
    lab, topic = desk.lab, desk.lab.log("alpha.old")
    end = await copied(desk, topic, 40)
    await (await lab.cluster("alpha")).delete_records({TopicPartition(topic): 18})
    async with desk.replicating():
        end = await lab.write("alpha", topic, 5, at=end)
        await desk.mirrored(topic, end)
        old = await lab.stored("beta", topic)
        send(producer(lab.kafka("beta")), topic, 0, 1)
        end = await lab.write("alpha", topic, 10, at=end)
        await desk.in_state(topic, "misplaced")
        before = await lab.stored("beta", topic)
        await desk.resolve(topic, "--yes")
        await desk.mirrored(topic, end)
        here = await lab.stored("beta", topic)
        assert here[: len(old)] == old
        assert here[len(old) :] == (await lab.stored("alpha", topic))[-2:]
    (kept,) = await desk.kept(topic)
    assert await lab.stored("beta", kept) == before


@pytest.mark.parametrize("kept", [4, 19], ids=["much", "one record"])
async def test_source_truncated_keeps_what_the_source_lost(desk: Desk, kept: int) -> None:
    """Also if the source ends where the copy's last record begins: Kafka answers a fetch there, with nothing."""
    lab, topic = desk.lab, desk.lab.log("alpha.truncated")
    await copied(desk, topic, 20)
    await make_again(lab, topic)
    end = await lab.write("alpha", topic, kept, at=await lab.open_term("alpha", topic, term=1, at=0))
    before = await lab.stored("beta", topic)
    async with desk.replicating():
        await desk.in_state(topic, "source-truncated")
        body = await desk.resolve(topic, "--yes")
        assert any(f"the source ends at {end}" in note for note in body["notes"])
        await desk.mirrored(topic, end)
        assert await lab.same(topic)
        (version,) = await desk.kept(topic)
        assert await lab.stored("beta", version) == before


async def test_source_recreated_while_running(desk: Desk) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.recreated")
    end = await copied(desk, topic)
    async with desk.replicating():
        await desk.mirrored(topic, await lab.write("alpha", topic, 5, at=end))
        before = await lab.stored("beta", topic)
        await make_again(lab, topic)
        end = await lab.write("alpha", topic, 30, at=await lab.open_term("alpha", topic, term=1, at=0), per=3)
        await desk.in_state(topic, "source-recreated")
        await desk.resolve(topic, "--yes")
        await desk.mirrored(topic, end)
        assert await lab.same(topic)
        (kept,) = await desk.kept(topic)
        assert await lab.stored("beta", kept) == before


async def test_source_recreated_while_stopped_and_longer_is_diverged(desk: Desk) -> None:
    """A source topic recreated while the replicator is stopped counts as diverged, because no topic id is stored."""
    lab, topic = desk.lab, desk.lab.log("alpha.recreated")
    await copied(desk, topic)
    await make_again(lab, topic)
    await lab.open_term("alpha", topic, term=1, at=0)
    await lab.append("alpha", {topic: term_batch(records(900, 31), term=1, offset=1, marker=0)})
    async with desk.replicating():
        await desk.in_state(topic, "diverged")


async def test_a_recreated_log_of_ordinary_clients_is_told_by_its_records(desk: Desk) -> None:
    """If the batches have other sizes, their checksums cannot be compared; comparing records finds the difference."""
    lab, topic = desk.lab, desk.lab.log("alpha.plain")
    await lab.make("alpha", topic)
    send(producer(lab.kafka("alpha"), **{"batch.num.messages": 1}), topic, 0, 20)
    async with desk.replicating():
        await lab.reaches("beta", topic, 20)
    await make_again(lab, topic)
    await lab.append("alpha", {topic: encode_batch(records(900, 30), producer_id=-1, epoch=-1, sequence=-1)})
    async with desk.replicating():
        await desk.in_state(topic, "diverged")
        assert await lab.end("beta", topic) == 20
        await desk.resolve(topic, "--yes")
        await desk.mirrored(topic, 30)
        assert await lab.read("beta", topic) == await lab.read("alpha", topic)


async def test_a_recreated_log_of_transactions_is_told_by_their_records(desk: Desk) -> None:
    """Both histories end with the mark of a transaction, which is the same."""
    lab, topic = desk.lab, desk.lab.log("alpha.transactions")

    async def commit(first: int, count: int) -> None:
        client = producer(lab.kafka("alpha"), **{"transactional.id": uuid.uuid4().hex})
        client.init_transactions(PATIENCE)
        client.begin_transaction()
        send(client, topic, first, count)
        client.commit_transaction(PATIENCE)
        await lab.reaches("alpha", topic, count + 1)  # the call returns before its marker is written

    await lab.make("alpha", topic)
    await commit(0, 5)
    async with desk.replicating():
        await lab.reaches("beta", topic, 6)
    await make_again(lab, topic)
    await commit(900, 5)
    async with desk.replicating():
        await desk.in_state(topic, "diverged")
        assert await lab.end("beta", topic) == 6


async def test_behind_retention_is_skipped_and_marked(desk: Desk) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.lost")
    end = await copied(desk, topic)
    await lab.write("alpha", topic, 20, at=end)
    await (await lab.cluster("alpha")).delete_records({TopicPartition(topic): end + 10})
    before = await lab.read("beta", topic)
    async with desk.replicating():
        await desk.in_state(topic, "behind-retention")
        plan = await desk.resolve(topic, "--dry-run")
        assert plan["choice"] == "skip"
        assert f"offsets {end}..{end + 9} are lost" in plan["notes"][0]
        assert await lab.end("beta", topic) == end, "only resolving goes on beyond the loss"
        await desk.resolve(topic, "--yes")
        await desk.mirrored(topic, end + 20)
        assert data(await lab.read("beta", topic)) == data(before) + data(await lab.read("alpha", topic))
        again = await lab.write("alpha", topic, 5, at=end + 20)
        await desk.mirrored(topic, again)
    assert await desk.kept(topic) == []


async def test_behind_retention_is_refilled(desk: Desk) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.lost")
    end = await copied(desk, topic)
    await lab.write("alpha", topic, 20, at=end)
    await (await lab.cluster("alpha")).delete_records({TopicPartition(topic): end + 10})
    before = await lab.stored("beta", topic)
    async with desk.replicating():
        await desk.in_trouble(topic, "behind-retention")
    await desk.resolve(topic, "--refill", "--yes")
    async with desk.replicating():
        await desk.mirrored(topic, end + 20)
        assert data(await lab.read("beta", topic)) == data(await lab.read("alpha", topic))
    (kept,) = await desk.kept(topic)
    assert await lab.stored("beta", kept) == before
