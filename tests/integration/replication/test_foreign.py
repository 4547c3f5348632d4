"""Logs of ordinary clients are copied with the same offsets and records, whatever happened to the source's log."""

from __future__ import annotations

import pytest

from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, is_filler
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.types import TopicPartition
from tests.support.replication.consumers import producer, send
from tests.support.replication.lab import Lab, states

pytestmark = pytest.mark.integration


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
    there = [record for record in await lab.read("beta", topic) if record.offset >= 45 and not is_filler(record)]
    assert here == there
