"""The append convention on a real broker: behaviour that the broker in memory only imitates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, filler_batch, is_filler, term_batch
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.batch import split, zero_base_offset
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.errors import Conflict, Fenced, Misplaced
from fairlead.kafka.protocol.record import NewRecord, encode_batch
from fairlead.kafka.protocol.types import TP, LogPosition
from tests.support.batches import foreign_batch
from tests.support.kafka.records import marker, record
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration
NewLog = Callable[..., str]


async def values(cluster: Cluster, log: TP) -> list[bytes | None]:
    return [kept.value async for kept in read_log(cluster, log)]


async def test_outcomes_of_raw_appends(cluster: Cluster, new_log: NewLog) -> None:
    """The broker tells new and repeated appends apart, and refuses a gap or conflict (45) and an old term (47)."""
    log = TP(new_log("alpha"))
    await cluster.wait_writable([log.topic])

    def batch(*texts: str, term: int = 1, offset: int, start: int = 0) -> bytes:
        return term_batch([record(text) for text in texts], term=term, offset=offset, marker=start)

    first = batch("m", offset=0)
    second = batch("a", "b", offset=1)
    assert (await cluster.produce({log: first}))[log].appended_now
    assert (await cluster.produce({log: second}))[log].base_offset == 1
    resent = (await cluster.produce({log: second}))[log]
    assert (resent.error_code, resent.base_offset) == (0, 1) and not resent.appended_now
    theirs = (await cluster.produce({log: batch("x", "y", offset=1)}))[log]
    assert (theirs.error_code, theirs.base_offset) == (0, 1) and not theirs.appended_now
    assert (await cluster.produce({log: batch("x", offset=1)}))[log].error_code == 45
    assert (await cluster.produce({log: batch("gap", offset=9)}))[log].error_code == 45
    assert (await cluster.produce({log: batch("m8", term=8, offset=3, start=3)}))[log].appended_now
    assert (await cluster.produce({log: batch("zombie", offset=3)}))[log].error_code == 47
    assert (await cluster.produce({log: second}))[log].error_code == 47
    assert await values(cluster, log) == [b"m", b"a", b"b", b"m8"]
    assert (await cluster.producer_states([log]))[log][0][:3] == (1 << 62, 8, 0)


async def test_stored_bytes_travel_unchanged(
    cluster: Cluster, kafka: Callable[..., KafkaEndpoint], new_log: NewLog
) -> None:
    name = new_log("alpha")
    log = TP(new_log("beta", name=name))
    async with await Cluster.open(kafka("beta"), client_id="copy") as target:
        for codec in Codec:
            appender = Appender(cluster, codec=codec)
            await appender.open_term(log, codec + 1, marker())
            await appender.append(log, [record(f"{codec.name} {index}") for index in range(4)])
            await appender.close()
        content = (await cluster.fetch({log: 0}))[log]
        source = bytes(content.records)
        for view in split(content.records):
            zero_base_offset(content.records, view.start)
            result = (await target.produce({log: content.records[view.start : view.stop]}))[log]
            assert result.appended_now and result.base_offset == view.header.base_offset
        copy = (await target.fetch({log: 0}))[log]
        assert bytes(copy.records) == source
        over = Appender(target)
        position = await over.position(log)
        assert position == LogPosition(25, 5, 20)
        assert (await over.append(log, [record("goes on here")], term=5)).base_offset == 25
        await over.close()


async def test_zombie_is_fenced_by_the_next_term(cluster: Cluster, new_log: NewLog) -> None:
    """A suspended writer of an earlier term is fenced off by the next term."""
    log = TP(new_log("alpha"))
    zombie, holder = Appender(cluster, linger=0.0), Appender(cluster, linger=0.0)
    await zombie.open_term(log, 1, marker())
    acknowledged: list[int] = [0]
    stopped = asyncio.Event()

    async def write() -> None:
        try:
            while True:
                acknowledged.append((await zombie.append(log, [record("z")])).base_offset)
        except Fenced:
            stopped.set()

    writing = asyncio.create_task(write())
    while len(acknowledged) < 5:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    opened = await holder.open_term(log, 2, marker())
    async with asyncio.timeout(PATIENCE):
        await stopped.wait()
        await writing
    assert opened.base_offset == acknowledged[-1] + 1, "the marker closes the term right after the last append"
    assert (await holder.append(log, [record("h")])).base_offset == opened.base_offset + 1
    with pytest.raises(Fenced):
        await zombie.append(log, [record("z")])
    await zombie.close()
    await holder.close()


async def test_two_writers_race_in_one_term(
    cluster: Cluster, kafka: Callable[..., KafkaEndpoint], new_log: NewLog
) -> None:
    log = TP(new_log("alpha"))
    one = Appender(cluster, linger=0.0)
    await one.open_term(log, 1, marker())
    async with await Cluster.open(kafka("alpha"), client_id="rival") as other:
        two = Appender(other, linger=0.0)
        await two.position(log)  # both know the same end now: of their first appends one must fail
        got: dict[int, bytes] = {}
        conflicts = 0

        async def write(appender: Appender, name: str) -> None:
            nonlocal conflicts
            for index in range(150):
                text = f"{name}{index}"
                try:
                    result = await appender.append(log, [record(text)])
                except Conflict:
                    conflicts += 1
                    continue
                assert result.base_offset not in got
                got[result.base_offset] = text.encode()

        await asyncio.gather(write(one, "one "), write(two, "two "))
        await two.close()
    await one.close()
    assert dict(enumerate((await values(cluster, log))[1:], 1)) == got
    assert len(got) + conflicts == 300 and conflicts > 0


async def test_foreign_write_is_noticed(cluster: Cluster, new_log: NewLog) -> None:
    """An append raises ``Misplaced`` if another client has written to the log."""
    log = TP(new_log("alpha"))
    appender = Appender(cluster, linger=0.0)
    await appender.open_term(log, 1, marker())
    await cluster.produce({log: encode_batch([record("kcat")], producer_id=-1, epoch=-1, sequence=-1)})
    with pytest.raises(Misplaced) as caught:
        await appender.append(log, [record("mine")])
    assert caught.value.fields["base_offset"] == 2
    await appender.close()


async def test_log_is_positioned_by_fillers_and_its_marker(cluster: Cluster, new_log: NewLog) -> None:
    """A log that starts above offset 0 is filled up to there, then gets its marker, and the fillers are deleted.

    This is how a ship without the log's history starts it; appends then continue.
    """
    log = TP(new_log("alpha"))
    m, now = 250_000, int(time.time() * 1000)
    at = 0
    while at < m:
        count = min(100_000, m - at)
        batch = filler_batch(count, term=1, offset=at, marker=0, timestamp_ms=now)
        assert (await cluster.produce({log: batch}))[log].base_offset == at
        at += count
    opening = term_batch([marker()], term=2, offset=m, marker=m)
    assert (await cluster.produce({log: opening}))[log].base_offset == m
    tail = [kept async for kept in read_log(cluster, log, m - 2)]
    assert [is_filler(kept) for kept in tail] == [True, True, False]
    assert await cluster.delete_records({log: m}) == {log: m}
    appender = Appender(cluster)
    assert await appender.adopt(log, term=2) == LogPosition(m + 1, 2, m)
    assert (await appender.append(log, [record("at sea")], term=2)).base_offset == m + 1
    await appender.close()


async def test_foreign_logs_are_replicated_under_their_own_producer(cluster: Cluster, new_log: NewLog) -> None:
    log = TP(new_log("alpha"))
    for offset in range(0, 9, 3):
        batch = foreign_batch([record(str(offset + index)) for index in range(3)], offset=offset, codec=Codec.ZSTD)
        assert (await cluster.produce({log: batch}))[log].base_offset == offset
    wrong = foreign_batch([record("gap")], offset=12)
    assert (await cluster.produce({log: wrong}))[log].error_code == 45
    state = (await cluster.producer_states([log]))[log][0]
    assert (state.producer_id, state.epoch, state.last_sequence) == (FOREIGN_PRODUCER_ID, 0, 8)


@pytest.mark.parametrize("codec", list(Codec))
async def test_another_client_reads_every_codec(
    cluster: Cluster, kafka: Callable[..., KafkaEndpoint], new_log: NewLog, codec: Codec
) -> None:
    log = TP(new_log("alpha"))
    appender = Appender(cluster, codec=codec)
    await appender.open_term(log, 1, marker())
    now = int(time.time() * 1000)
    sent = [
        NewRecord(
            None if index % 7 == 6 else b"value %d" % index * (index % 40),
            None if index % 5 == 4 else b"key",
            (("received", b"%d" % index), ("empty", None)) if index % 2 else (),
            timestamp_ms=now - index,
        )
        for index in range(400)
    ]
    await appender.append(log, sent)
    await appender.close()

    def consume() -> list[tuple[object, ...]]:
        settings = {**kafka("alpha").librdkafka(), "group.id": "codecs", "check.crcs": True}
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(log.topic, 0, 1)])
            found: list[tuple[object, ...]] = []
            deadline = time.monotonic() + PATIENCE
            while len(found) < len(sent) and time.monotonic() < deadline:
                for message in consumer.consume(500, 1.0):
                    assert message.error() is None, message.error()
                    headers = tuple((name, value) for name, value in message.headers() or ())
                    found.append((message.offset(), message.key(), message.value(), message.timestamp()[1], headers))
            return found
        finally:
            consumer.close()

    expected = [(index + 1, kept.key, kept.value, kept.timestamp_ms, kept.headers) for index, kept in enumerate(sent)]
    assert await asyncio.to_thread(consume) == expected
