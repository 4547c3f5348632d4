"""Kept copies equal their log batch by batch, whatever happened to the log, and every copy is verified."""

from __future__ import annotations

import uuid

import pytest

from fairlead.errors import FairleadError, RefusedError
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.convention import is_filler, term_batch
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.types import TopicPartition
from replication.operations.resolve.copier import Copier, difference, identity
from replication.target.log_reader import batches
from tests.integration.replication.resolving import Desk
from tests.support.replication.consumers import producer, send
from tests.support.replication.lab import Lab, records

pytestmark = pytest.mark.integration


class Pair:
    """A log at beta and the topic for its kept copy."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.topic = lab, lab.log(name)
        self.kept = f"fairlead.kept.{self.topic}.20260301T000000Z"
        self.log, self.copy = TopicPartition(self.topic), TopicPartition(self.kept)

    async def make(self) -> None:
        await self.lab.make("beta", self.topic, self.kept)

    async def extent(self) -> OffsetRange:
        cluster = await self.lab.cluster("beta")
        start, end = (await cluster.start_offsets([self.log]))[self.log], await self.lab.end("beta", self.topic)
        assert isinstance(start, int)
        return OffsetRange(start, end)

    async def kept_now(self) -> None:
        cluster = await self.lab.cluster("beta")
        await Copier(cluster).copy(self.log, self.copy, await self.extent())
        assert await self.differs() == ""

    async def differs(self) -> str:
        return await difference(await self.lab.cluster("beta"), self.log, self.copy, await self.extent())


async def test_terms_codecs_and_strangers_are_kept_byte_for_byte(lab: Lab) -> None:
    pair = Pair(lab, "alpha.mixed")
    await pair.make()
    end = await lab.open_term("beta", pair.topic, term=1, at=0)
    for codec in Codec:
        end = await lab.write("beta", pair.topic, 10, at=end, codec=codec)
    send(producer(lab.kafka("beta")), pair.topic, 0, 3)
    send(producer(lab.kafka("beta"), **{"enable.idempotence": True}), pair.topic, 0, 3)
    end = await lab.end("beta", pair.topic)
    end = await lab.open_term("beta", pair.topic, term=3, at=end)
    await lab.write("beta", pair.topic, 10, term=3, marker=end - 1, at=end)
    await pair.kept_now()
    assert await lab.stored("beta", pair.topic) == await lab.stored("beta", pair.kept)


async def test_a_log_that_begins_inside_a_batch_and_was_written_to_by_a_stranger(lab: Lab) -> None:
    pair = Pair(lab, "alpha.touched")
    await pair.make()
    end = await lab.write("beta", pair.topic, 30, at=await lab.open_term("beta", pair.topic, term=1, at=0), per=10)
    end = await lab.open_term("beta", pair.topic, term=2, at=end)
    send(producer(lab.kafka("beta")), pair.topic, 0, 1)  # from here on offset minus sequence differs
    await lab.append("beta", {pair.topic: term_batch(records(0, 4), term=2, offset=end, marker=end - 1)})
    cluster = await lab.cluster("beta")
    await cluster.delete_records({pair.log: 15})
    await pair.kept_now()
    assert await lab.stored("beta", pair.topic) == await lab.stored("beta", pair.kept)
    assert (await cluster.start_offsets([pair.copy]))[pair.copy] == 15


async def test_transactions_are_kept_with_their_records(lab: Lab) -> None:
    pair = Pair(lab, "alpha.transactions")
    await pair.make()
    client = producer(lab.kafka("beta"), **{"transactional.id": uuid.uuid4().hex})
    client.init_transactions(30)
    client.begin_transaction()
    send(client, pair.topic, 0, 5)
    client.commit_transaction(30)
    await lab.reaches("beta", pair.topic, 6)  # the commit returns before its marker is written
    await lab.write("beta", pair.topic, 5, marker=6, at=await lab.open_term("beta", pair.topic, term=1, at=6))
    await pair.kept_now()
    here, there = await lab.read("beta", pair.topic), await lab.read("beta", pair.kept)
    assert [each for each in there if not is_filler(each)] == here
    assert len(there) == await lab.end("beta", pair.topic)  # the control record's offset is a filler


async def test_an_interrupted_copy_goes_on_at_its_end(lab: Lab) -> None:
    pair = Pair(lab, "alpha.long")
    await pair.make()
    await lab.write("beta", pair.topic, 100, at=await lab.open_term("beta", pair.topic, term=1, at=0))
    cluster = await lab.cluster("beta")
    await cluster.delete_records({pair.log: 8})

    def stop(_: TopicPartition, offset: int) -> None:
        if offset > 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await Copier(cluster, on_progress=stop).copy(pair.log, pair.copy, await pair.extent())
    assert 50 < await lab.end("beta", pair.kept) < 60
    assert "has nothing at offset" in await pair.differs()
    await pair.kept_now()
    assert await lab.stored("beta", pair.topic) == await lab.stored("beta", pair.kept)


async def test_a_copy_that_is_not_equal_is_told(lab: Lab) -> None:
    """The comparison names the first different batch; copying fails if another client has written to the kept copy."""
    pair = Pair(lab, "alpha.other")
    await pair.make()
    end = await lab.write("beta", pair.topic, 5, at=await lab.open_term("beta", pair.topic, term=1, at=0))
    await pair.kept_now()
    await lab.append("beta", {pair.topic: term_batch(records(0, 5), term=1, offset=end, marker=0)})
    await lab.append("beta", {pair.kept: term_batch(records(7, 5), term=1, offset=end, marker=0)})
    assert f"the batch at offset {end} is different" in await pair.differs()
    with pytest.raises(FairleadError, match="another client writes"):
        await lab.append("beta", {pair.kept: term_batch(records(7, 5), term=1, offset=end + 5, marker=0)})
        await lab.append("beta", {pair.topic: term_batch(records(0, 7), term=1, offset=end + 5, marker=0)})
        await Copier(await lab.cluster("beta")).copy(pair.log, pair.copy, await pair.extent())


async def test_all_partitions_are_kept_and_made_again_and_an_interrupted_run_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, topic = desk.lab, desk.lab.log("alpha.wide")
    logs = [TopicPartition(topic, number) for number in range(3)]
    for site, first in (("alpha", 0), ("beta", 500)):
        create_logs(lab.kafka(site), {topic: {}}, partitions={topic: 3})
        cluster = await lab.cluster(site)
        await cluster.wait_writable(logs)
        for log in logs:
            some = records(first + log.partition * 10, 4 + log.partition)
            await cluster.produce({log: term_batch(some, term=1, offset=0, marker=0)})
    before = [await stored(lab, "beta", log) for log in logs]
    async with desk.replicating():
        await desk.in_trouble(f"{topic}/1", "diverged")

        async def fails(*_: object) -> str:
            raise RefusedError("stopped by the test")

        with monkeypatch.context() as patch:
            patch.setattr("replication.operations.resolve.steps.difference", fails)
            with pytest.raises(RefusedError, match="stopped by the test"):
                await desk.resolve(f"{topic}/1", "--yes")
        await desk.in_trouble(f"{topic}/1", "paused")
        plan = await desk.resolve(f"{topic}/1", "--dry-run")
        assert plan["state"] == "diverged"
        await desk.resolve(f"{topic}/1", "--yes")
        for log in logs:
            assert await stored(lab, "beta", log) == await stored(lab, "alpha", log)
    (kept,) = await desk.kept(topic)
    assert [await stored(lab, "beta", TopicPartition(kept, log.partition)) for log in logs] == before


async def stored(lab: Lab, site: str, log: TopicPartition) -> list[tuple[int, int, int]]:
    """Return offsets and CRC of every batch of one partition."""
    return [identity(each) async for each in batches(await lab.cluster(site), log, 0, 1 << 62)]
