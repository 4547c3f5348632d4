"""Logs of ordinary clients are copied with the same offsets and records, whatever happened to the source's log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from fairlead.kafka.admin import admin_client
from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, is_filler
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.record import Record
from fairlead.kafka.protocol.types import TopicPartition
from tests.integration.replication.conftest import Lab, states, until
from tests.integration.replication.consumers import producer, send

pytestmark = pytest.mark.integration


def data(records: list[Record]) -> list[Record]:
    return [record for record in records if not is_filler(record)]


async def test_plain_and_idempotent_clients_in_every_codec(lab: Lab) -> None:
    topic = lab.log("alpha.plain")
    await lab.make("alpha", topic)
    beta = lab.replicator(lab.one_way(), "beta")
    total = 0
    async with lab.running(beta):
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            for idempotent in (True, False):
                client = producer(lab.kafka("alpha"), **{"compression.type": codec, "enable.idempotence": idempotent})
                send(client, topic, total, 50)
                total += 50
        await lab.reaches("beta", topic, total)
        assert await lab.read("alpha", topic) == await lab.read("beta", topic)
        assert {parse_header(batch).producer_id for batch in await lab.stored("beta", topic)} == {FOREIGN_PRODUCER_ID}
    again = lab.replicator(lab.one_way(), "beta")
    async with lab.running(again):
        send(producer(lab.kafka("alpha")), topic, total, 10)
        await lab.reaches("beta", topic, total + 10)
        assert await lab.read("alpha", topic) == await lab.read("beta", topic)
        assert states(again.snapshot()) == {}


async def test_transactions_committed_and_aborted(lab: Lab) -> None:
    topic = lab.log("alpha.transactions")
    await lab.make("alpha", topic)
    client = producer(lab.kafka("alpha"), **{"transactional.id": uuid.uuid4().hex})
    client.init_transactions(30)
    committed: list[str] = []
    for round_ in range(6):
        client.begin_transaction()
        send(client, topic, round_ * 10, 10)
        if round_ % 2:
            client.abort_transaction(30)
        else:
            client.commit_transaction(30)
            committed += [f"value {n}" for n in range(round_ * 10, round_ * 10 + 10)]
    end = await lab.end("alpha", topic)
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, end)
        assert states(beta.snapshot()) == {}
    seen = data(await lab.read("beta", topic))
    assert [record.value for record in seen] == [value.encode() for value in committed]
    here = {record.offset: record for record in await lab.read("alpha", topic)}
    assert all(here[record.offset] == record for record in seen)


@pytest.fixture
def eager_cleaner(kafka: Callable[..., KafkaEndpoint]) -> Iterator[None]:
    """Make alpha's broker look for logs to compact several times a second instead of every 15 s."""

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=operation)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        client = admin_client(kafka("alpha"))
        for future in client.incremental_alter_configs([resource]).values():
            future.result(30)

    alter(AlterConfigOpType.SET)
    yield
    alter(AlterConfigOpType.DELETE)


@pytest.mark.usefixtures("eager_cleaner")
async def test_holes_of_compaction_are_filled(lab: Lab) -> None:
    topic = lab.log("alpha.compacted")
    settings = {"min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100", "segment.ms": "200"}
    await lab.make("alpha", topic, **{"cleanup.policy": "compact", **settings})
    client = producer(lab.kafka("alpha"), **{"compression.type": "lz4", "linger.ms": 50})
    send(client, topic, 0, 300, key=lambda n: str(n % 7) if n % 10 else str(n))
    send(client, topic, 10_000, 1)  # its time starts a new segment: the cleaner compacts only closed ones
    at_alpha = await lab.read("alpha", topic)

    async def compacted() -> bool:  # completely: slow sends fill several segments, which may be compacted in turn
        nonlocal at_alpha
        at_alpha = await lab.read("alpha", topic)
        keys = [record.key for record in at_alpha if record.offset < 300]
        return len(keys) == len(set(keys))

    await until(compacted, "the broker does not compact")
    assert any(parse_header(batch).has_holes for batch in await lab.stored("alpha", topic))
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, 301)
        assert states(beta.snapshot()) == {}
    assert data(await lab.read("beta", topic)) == at_alpha


async def test_a_shortened_log_begins_where_the_source_begins(lab: Lab) -> None:
    topic = lab.log("alpha.short")
    await lab.make("alpha", topic)
    client = producer(lab.kafka("alpha"))
    for first in range(0, 100, 10):
        send(client, topic, first, 10)
    tp = TopicPartition(topic)
    await (await lab.cluster("alpha")).delete_records({tp: 45})
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, 100)
        assert states(beta.snapshot()) == {}
    here = [record for record in await lab.read("alpha", topic) if record.offset >= 45]
    there = [record for record in data(await lab.read("beta", topic)) if record.offset >= 45]
    assert here == there


async def test_records_deleted_before_they_were_copied_are_a_named_loss(lab: Lab) -> None:
    topic, fine = lab.log("alpha.lost"), lab.log("alpha.fine")
    await lab.make("alpha", topic, fine)
    client = producer(lab.kafka("alpha"))
    send(client, topic, 0, 10)
    async with lab.running(lab.replicator(lab.one_way(), "beta")):
        await lab.reaches("beta", topic, 10)
    send(client, topic, 10, 10)
    send(client, topic, 20, 10)
    send(client, fine, 0, 10)
    await (await lab.cluster("alpha")).delete_records({TopicPartition(topic): 20})
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", fine, 10)

        async def named() -> bool:
            return states(beta.snapshot()).get(topic) == "behind-retention"

        await until(named, f"not named: {beta.snapshot()['logs']}")
    assert await lab.end("beta", topic) == 10


async def test_a_replica_that_another_client_writes_to_is_stopped(lab: Lab) -> None:
    topic = lab.log("alpha.touched")
    await lab.make("alpha", topic)
    await lab.write("alpha", topic, 5, at=await lab.open_term("alpha", topic, term=1, at=0))
    beta = lab.replicator(lab.one_way(), "beta")
    async with lab.running(beta):
        await lab.reaches("beta", topic, 6)
        send(producer(lab.kafka("beta")), topic, 0, 1)
        await lab.write("alpha", topic, 5, at=6)

        async def stopped() -> bool:
            return states(beta.snapshot()).get(topic) in ("misplaced", "diverged")

        await until(stopped, f"not stopped: {beta.snapshot()['logs']}")
