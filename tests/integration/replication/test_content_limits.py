"""The replicator splits batches above the target's size limit if it may not raise the limit; records stay the same."""

from __future__ import annotations

import asyncio
import random

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from fairlead.kafka.admin import admin_client
from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, PRODUCER_ID, marker_record, term_batch
from fairlead.kafka.protocol.batch import parse_header
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord
from replication.batch.prepare import prepare_batches
from replication.batch.prepared import PreparedBatch
from replication.batch.rebuild import split_batch
from replication.overrides import ORDERS_TOPIC
from replication.replicator import Replicator
from tests.support.replication.consumers import producer, read_all, same
from tests.support.replication.lab import NOW_MS, Lab, remake_from_beta, states, until
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration

LIMIT = 100_000
ROOMY = {"max.message.bytes": str(8 << 20)}
TIGHT = {"max.message.bytes": str(LIMIT)}
GRANTS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
)


def limited(lab: Lab) -> Replicator:
    """Return beta's replicator as a user that can neither create the logs nor change their settings."""
    user = "replicator.beta"
    resource = (ResourceType.TOPIC, lab.stream, ResourcePatternType.PREFIXED)
    orders = (ResourceType.TOPIC, ORDERS_TOPIC, ResourcePatternType.LITERAL)
    new = [AclBinding(*resource, f"User:{user}", "*", each, AclPermissionType.ALLOW) for each in GRANTS]
    new.append(AclBinding(*orders, f"User:{user}", "*", AclOperation.READ, AclPermissionType.ALLOW))
    client = admin_client(lab.kafka("beta"))
    for future in client.create_acls(new).values():
        future.result(30)
    return Replicator(lab.one_way(), "beta", lab.kafka("beta", user), lambda name: lab.kafka(name))


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)  # noqa: S311 - content that does not compress, no secret


def send_large(lab: Lab, topic: str, codec: str, count: int, size: int = 5000) -> None:
    """Send one batch of ``count`` records that do not compress. ``flush`` does not wait for ``linger.ms``."""
    roomy = {"message.max.bytes": 8 << 20, "batch.size": 4 << 20, "linger.ms": 60_000, "compression.type": codec}
    client = producer(lab.kafka("alpha"), **roomy)
    for n in range(count):
        client.produce(topic, key=b"%d" % n, value=noise(size, n), headers={"n": b"%d" % n}, timestamp=NOW_MS + n)
    assert client.flush(PATIENCE) == 0


async def sizes(lab: Lab, site: str, topic: str) -> list[int]:
    return [len(batch) for batch in await lab.stored(site, topic)]


async def test_batches_of_ordinary_clients_are_split_and_the_next_site_copies_the_pieces(lab: Lab) -> None:
    topic = lab.log("large")
    await lab.make("alpha", topic, **ROOMY)
    await lab.make("beta", topic, **TIGHT)
    for codec in ("none", "zstd"):
        send_large(lab, topic, codec, 100)
        send_large(lab, topic, codec, 3)
    assert max(await sizes(lab, "alpha", topic)) > 4 * LIMIT
    beta = limited(lab)
    async with lab.running(beta):
        await lab.reaches("beta", topic, 206)
        assert states(beta.snapshot()) == {}
    assert max(await sizes(lab, "beta", topic)) <= LIMIT
    again = limited(lab)  # its last batch differs from the source's, but their records agree
    async with lab.running(again):
        send_large(lab, topic, "lz4", 50)
        await lab.reaches("beta", topic, 256)
        assert states(again.snapshot()) == {}
    assert await same(lab, topic) == 256
    before = (await asyncio.to_thread(read_all, lab.kafka("alpha"), topic, committed=True)).data
    await remake_from_beta(lab, topic, 256)
    assert (await asyncio.to_thread(read_all, lab.kafka("alpha"), topic, committed=True)).data == before
    assert await lab.same(topic)


async def own_batch(lab: Lab, topic: str, at: int, count: int) -> bytes:
    """Append one large batch of term 2, whose marker is at offset 0, at alpha."""
    some = [NewRecord(noise(5000, at + n), b"%d" % n, timestamp_ms=NOW_MS + n) for n in range(count)]
    batch = term_batch(some, term=2, offset=at, marker=0, codec=Codec.LZ4)
    assert (await lab.append("alpha", {topic: batch}))[topic] == at
    return batch


async def test_own_batches_are_split_too_and_gone_on_with_in_the_middle(lab: Lab) -> None:
    """The pieces keep the batch's sequences. If the replicator dies between two pieces, the log has not diverged."""
    topic = lab.log("alpha.own")
    await lab.make("alpha", topic, **ROOMY)
    await lab.make("beta", topic, **TIGHT)
    first = term_batch([marker_record(b"unique", timestamp_ms=NOW_MS)], term=2, offset=0, marker=0)
    await lab.append("alpha", {topic: first})
    await lab.append("beta", {topic: first})
    await own_batch(lab, topic, 1, 100)
    (prepared,) = prepare_batches(memoryview(bytearray((await lab.stored("alpha", topic))[1])), 1)
    assert isinstance(prepared, PreparedBatch)
    pieces = split_batch(prepared, LIMIT)
    assert isinstance(pieces, list) and len(pieces) > 3
    for piece in pieces[:2]:
        await lab.append("beta", {topic: bytes(piece.data)})
    beta = limited(lab)
    async with lab.running(beta):
        await lab.reaches("beta", topic, 101)
        await own_batch(lab, topic, 101, 60)
        await lab.reaches("beta", topic, 161)
        assert states(beta.snapshot()) == {}
    headers = [parse_header(batch) for batch in await lab.stored("beta", topic)]
    assert {(each.producer_id, each.producer_epoch) for each in headers} == {(PRODUCER_ID, 2)}
    assert all(each.base_offset == each.base_sequence for each in headers)
    assert max(each.size for each in headers) <= LIMIT
    assert await same(lab, topic) == 161


async def test_a_record_that_is_too_large_by_itself_stops_its_log_and_says_so(lab: Lab) -> None:
    topic, fine = lab.log("alpha.record"), lab.log("alpha.fine")
    await lab.make("alpha", topic, fine, **ROOMY)
    await lab.make("beta", topic, **TIGHT)
    await lab.make("beta", fine)
    send_large(lab, topic, "none", 5)
    send_large(lab, topic, "none", 1, size=LIMIT)
    send_large(lab, fine, "none", 5)
    beta = limited(lab)
    async with lab.running(beta):

        async def named() -> bool:
            return states(beta.snapshot()) == {topic: "quarantined"}

        await until(named, f"not named: {beta.snapshot()['logs']}")
        await lab.reaches("beta", fine, 5)
        await lab.reaches("beta", topic, 5)
        cause = beta.snapshot()["logs"][topic]["cause"]
    assert "offset 5" in cause and str(LIMIT) in cause
    assert await lab.end("beta", topic) == 5
    assert {parse_header(batch).producer_id for batch in await lab.stored("beta", topic)} == {FOREIGN_PRODUCER_ID}
