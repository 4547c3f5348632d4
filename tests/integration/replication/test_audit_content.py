"""Audits of logs that the replicator cannot copy byte for byte: compaction, transactions, LogAppendTime."""

from __future__ import annotations

import uuid

import pytest

from fairlead.kafka.protocol.types import TopicPartition
from tests.integration.replication.audits import both, found
from tests.support.replication.cleaner import settle
from tests.support.replication.consumers import producer, send
from tests.support.replication.lab import NOW_MS, Lab

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("cleaners")]

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
    "segment.ms": "200",
}


async def test_faithful_copies_are_equal_however_they_were_made(lab: Lab) -> None:
    compacted, transactions, stamped, short = (
        lab.log(f"alpha.{key}") for key in ("compacted", "transactions", "stamped", "short")
    )
    await lab.make("alpha", compacted, **COMPACTED)
    await lab.make("alpha", stamped, **{"message.timestamp.type": "LogAppendTime"})
    await lab.make("alpha", transactions, short)
    client = producer(lab.kafka("alpha"), **{"compression.type": "lz4", "linger.ms": 20})
    send(client, compacted, 0, 200, key=lambda n: str(n % 7) if n % 10 else str(n))
    send(client, compacted, 10_000, 1)  # its time starts a new segment: the cleaner compacts only closed ones
    for first in range(0, 60, 10):
        send(client, stamped, first, 10)
        send(client, short, first, 10)
    await (await lab.cluster("alpha")).delete_records({TopicPartition(short): 25})
    transactional = producer(lab.kafka("alpha"), **{"transactional.id": uuid.uuid4().hex})
    transactional.init_transactions(30)
    for n in range(6):
        transactional.begin_transaction()
        send(transactional, transactions, n * 10, 10)
        if n % 2:
            transactional.abort_transaction(30)
        else:
            transactional.commit_transaction(30)
    await settle(lab, "alpha", compacted)
    async with lab.running(lab.replicator(lab.one_way(), "beta")):
        for topic in (compacted, transactions, stamped, short):
            await lab.reaches("beta", topic, await lab.end("alpha", topic))
    quick, full = await both(lab, lab.one_way())
    for result in (quick, full):
        assert result.ok, result.as_json()
        assert result.compared == 4
        assert result.behind == 0
    assert quick.rebuilt >= 3  # ranges of each log except the short one
    data = len([record for record in await lab.read("alpha", compacted) if record.offset < 201])
    assert full.records == data + 30 + 60 + 35


async def test_each_site_compacts_its_own_copy_and_loses_nothing(lab: Lab) -> None:
    """The audits accept that only beta's cleaner has run, and find a record that only beta lacks."""
    topic, lossy = lab.log("alpha.kept"), lab.log("alpha.lossy")
    await lab.make("alpha", topic, lossy, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"})
    await lab.make("beta", topic, lossy, **COMPACTED)
    for name in (topic, lossy):
        for site in ("alpha", "beta"):
            client = producer(lab.kafka(site), **{"linger.ms": 20})
            send(client, name, 0, 100, key=lambda n: str(n % 9))
            if (name, site) == (lossy, "beta"):  # beta lacks alpha's record of one key
                client.produce(name, key=b"8", value=b"something later", timestamp=NOW_MS)
            else:
                client.produce(name, key=b"only here", value=b"and nowhere else", timestamp=NOW_MS)
            send(client, name, 10_000, 1)
    for name in (topic, lossy):
        await settle(lab, "beta", name)
    assert len(await lab.read("beta", topic)) < len(await lab.read("alpha", topic)) == 102
    for result in await both(lab, lab.one_way()):
        assert found(result) == [(lossy, 100)], result.as_json()
        assert result.compacted == 1
        difference = result.differences[0]
        assert difference.a is not None and difference.b is not None
        assert (difference.a["key"], difference.b["key"]) == ("only here", "8")
