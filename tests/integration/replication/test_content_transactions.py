"""Transactions: committed records arrive, aborted ones never do, open transactions hold the copy back."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from confluent_kafka import Producer

from fairlead.kafka.protocol.types import TopicPartition
from tests.support.replication.consumers import assert_same_for_consumers, producer, read_all, send
from tests.support.replication.lab import Lab, remake_from_beta, states

pytestmark = pytest.mark.integration


def transactional(lab: Lab, codec: str = "none") -> Producer:
    long = {"transaction.timeout.ms": 600_000}  # on a busy machine too, only the test ends its transactions
    client = producer(lab.kafka("alpha"), **{"transactional.id": uuid.uuid4().hex, "compression.type": codec, **long})
    client.init_transactions(30)
    return client


async def same(lab: Lab, topic: str) -> list[bytes | None]:
    found = await asyncio.to_thread(assert_same_for_consumers, lab.kafka("alpha"), lab.kafka("beta"), topic)
    return [each.value for each in found]


async def last_stable(lab: Lab, topic: str) -> int:
    tp = TopicPartition(topic)
    answer = await (await lab.cluster("alpha")).fetch({tp: 0}, max_wait_ms=0, isolation=1)
    return answer[tp].last_stable_offset


async def test_transactions_in_one_another(lab: Lab) -> None:
    """Two interleaved transactions and a plain client are copied right, for all outcomes, codecs and restarts."""
    topic = lab.log("alpha.woven")
    await lab.make("alpha", topic)
    plain = producer(lab.kafka("alpha"), **{"compression.type": "gzip"})
    one, two = transactional(lab, "lz4"), transactional(lab, "zstd")
    n = 0
    for commit_one, commit_two in ((True, True), (False, True), (True, False), (False, False), (True, True)):
        one.begin_transaction()
        two.begin_transaction()
        for client in (one, plain, two, one, two, plain):
            send(client, topic, n, 4)
            n += 4
        for client, commit in ((one, commit_one), (two, commit_two)):
            client.commit_transaction(30) if commit else client.abort_transaction(30)
            send(plain, topic, n, 1)
            n += 1
        async with lab.running(lab.replicator(lab.one_way(), "beta")):
            await lab.reaches("beta", topic, await lab.end("alpha", topic))
    values = await same(lab, topic)
    assert len(values) == 5 * (8 + 2) + 6 * 8  # plain records, and six committed transactions


async def test_an_open_transaction_is_waited_for(lab: Lab) -> None:
    topic = lab.log("alpha.open")
    await lab.make("alpha", topic)
    client, plain = transactional(lab), producer(lab.kafka("alpha"))
    send(plain, topic, 0, 5)
    client.begin_transaction()
    send(client, topic, 5, 5)
    send(plain, topic, 10, 5)
    assert (await lab.end("alpha", topic), await last_stable(lab, topic)) == (15, 5)
    first = lab.replicator(lab.one_way(), "beta")
    async with lab.running(first):
        await lab.reaches("beta", topic, 5)
        send(plain, topic, 15, 5)
        assert states(first.snapshot()) == {}
    assert await lab.end("beta", topic) == 5
    assert len(await same(lab, topic)) == 5
    async with lab.running(lab.replicator(lab.one_way(), "beta")):
        client.abort_transaction(30)
        await lab.reaches("beta", topic, await lab.end("alpha", topic))
    assert await same(lab, topic) == [b"value %d" % n for n in (*range(5), *range(10, 20))]


async def test_nothing_but_aborted_records(lab: Lab) -> None:
    """The replica of a log with only aborted transactions reaches the same end and shows consumers no record."""
    topic = lab.log("alpha.void")
    await lab.make("alpha", topic)
    client = transactional(lab)
    for n in range(3):
        client.begin_transaction()
        send(client, topic, n, 3)
        client.abort_transaction(30)
    async with lab.running(lab.replicator(lab.one_way(), "beta")):
        await lab.reaches("beta", topic, 12)
    assert await same(lab, topic) == []


async def test_a_replica_goes_on_as_the_origin_of_the_next_one(lab: Lab) -> None:
    """A third site that copies from the replica gets the same offsets and the same visible records."""
    topic = lab.log("hops")
    await lab.make("alpha", topic)
    client = transactional(lab)
    for n in range(4):
        client.begin_transaction()
        send(client, topic, n * 3, 3)
        client.abort_transaction(30) if n % 2 else client.commit_transaction(30)
    end = 4 * (3 + 1)
    await lab.reaches("alpha", topic, end)  # the last call returns before its marker is written
    async with lab.running(lab.replicator(lab.one_way(), "beta")):
        await lab.reaches("beta", topic, end)
    before = (await asyncio.to_thread(read_all, lab.kafka("alpha"), topic, committed=True)).data
    await remake_from_beta(lab, topic, end)
    assert (await asyncio.to_thread(read_all, lab.kafka("alpha"), topic, committed=True)).data == before
    assert await lab.same(topic)
