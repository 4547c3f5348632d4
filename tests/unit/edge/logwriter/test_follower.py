"""Follow logs up to their ends: every record is read once, whatever a fetch brings and whichever fetch fails."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, cast
from unittest.mock import Mock

import pytest

from edge.logwriter import follower as under_test
from edge.logwriter.follower import LogFollower
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.batch import HEADER
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, BrokerError, ConnectionLost, CorruptBatch, broker_error
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP, FetchedPartition
from fairlead.waiting import in_background
from tests.support.kafka.fake_broker import LIST_OFFSETS, FakeCluster, until
from tests.support.kafka.fake_log import damage, put

LOG = TP("custody.tokyo")
PER_BATCH = 3


class Source:
    """A log of batches; each fetch brings one batch, and ``lose`` fetches fail."""

    def __init__(self, batches: int, *, start: int = 0) -> None:
        self.start = start
        self.end = batches * PER_BATCH
        self.lose = 0
        self.error = 0
        self.batches = [self._batch(at) for at in range(0, self.end, PER_BATCH)]

    @staticmethod
    def _batch(at: int) -> bytes:
        batch = bytearray(term_batch([NewRecord(b"v", timestamp_ms=1)] * PER_BATCH, term=1, offset=at, marker=0))
        HEADER.pack_into(batch, 0, at, *HEADER.unpack_from(batch)[1:])
        return bytes(batch)

    async def topics(self, names: Collection[str], *, refresh: bool = False) -> dict[str, object]:
        return dict.fromkeys(names)

    async def start_offsets(self, logs: Collection[TP]) -> dict[TP, int]:
        return dict.fromkeys(logs, self.start)

    async def end_offsets(self, logs: Collection[TP]) -> dict[TP, int | BrokerError]:
        return dict.fromkeys(logs, self.end)

    async def fetch(self, positions: Mapping[TP, int], **_: Any) -> dict[TP, FetchedPartition]:
        if self.lose:
            self.lose -= 1
            raise ConnectionLost("away")
        error = self.error or (OFFSET_OUT_OF_RANGE if positions[LOG] < self.start else 0)
        content = b"" if error else self.batches[positions[LOG] // PER_BATCH]
        return {LOG: cast(FetchedPartition, _Part(error, memoryview(content)))}


class _Part:
    aborted = ()

    def __init__(self, error_code: int, records: memoryview) -> None:
        self.error_code = error_code
        self.records = records


def following(source: Source) -> tuple[LogFollower, list[tuple[int, bool]]]:
    taken: list[tuple[int, bool]] = []
    follower = LogFollower(
        cast(Cluster, source), [LOG.topic], lambda _, record, at_start: taken.append((record.offset, at_start))
    )
    return follower, taken


async def test_every_record_is_taken_once() -> None:
    """Every record is read once."""
    follower, taken = following(Source(4))
    await follower.catch_up()
    await follower.catch_up()
    assert taken == [(offset, True) for offset in range(4 * PER_BATCH)]


async def test_after_an_error_it_goes_on_from_there() -> None:
    """After an error the follower continues where it was."""
    source = Source(4)
    follower, taken = following(source)
    source.lose = 2
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            await follower.catch_up()
    await follower.catch_up()
    assert [offset for offset, _ in taken] == list(range(4 * PER_BATCH))


async def test_what_comes_after_the_end_is_no_news_from_the_start() -> None:
    """Records that arrive after the start are not part of the initial reading."""
    source = Source(2)
    source.end -= 1  # the log grew by a record since its end was asked for
    follower, taken = following(source)
    await follower.catch_up()
    assert [offset for offset, _ in taken] == list(range(source.end))


async def test_a_log_that_begins_in_the_middle_of_a_batch_is_read_from_there() -> None:
    """A log whose first offset is in the middle of a batch is read from that offset."""
    follower, taken = following(Source(2, start=1))
    await follower.catch_up()
    assert [offset for offset, _ in taken] == list(range(1, 2 * PER_BATCH))
    assert follower.starts == {LOG.topic: 1}


async def test_what_a_broker_refuses_is_raised() -> None:
    """An error that the broker returns is raised."""
    source = Source(1)
    source.error = 29
    follower, taken = following(source)
    with pytest.raises(type(broker_error(29, LOG))):
        await follower.catch_up()
    assert taken == []


@pytest.mark.parametrize("start", [2 * PER_BATCH, 4 * PER_BATCH], ids=["some records are left", "none is left"])
async def test_a_log_is_read_although_retention_deletes_records_meanwhile(
    monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """The records that retention deletes between two fetches are passed over, and the log counts as shortened."""
    source = Source(4)
    follower, taken = following(source)
    real = source.fetch

    async def fetch(positions: Mapping[TP, int], **given: Any) -> dict[TP, FetchedPartition]:
        if positions[LOG] == PER_BATCH:
            source.start = start
        return await real(positions, **given)

    monkeypatch.setattr(source, "fetch", fetch)
    await follower.catch_up()
    assert [offset for offset, _ in taken] == [*range(PER_BATCH), *range(start, 4 * PER_BATCH)]
    assert follower.starts == {LOG.topic: start}


async def test_records_that_were_deleted_while_the_broker_was_away_stop_no_reader() -> None:
    """Retention deletes records while a reading that failed waits."""
    source = Source(4)
    follower, taken = following(source)
    source.lose = 1
    with pytest.raises(ConnectionLost):
        await follower.catch_up()
    source.start = PER_BATCH
    await follower.catch_up()
    assert [offset for offset, _ in taken] == list(range(PER_BATCH, 4 * PER_BATCH))


async def test_the_error_of_a_damaged_batch_names_its_log() -> None:
    """A reader that needs the whole log, such as a bridge its own ledger, ends with this error."""
    source = Source(2)
    source.batches[1] = source.batches[1][:-1] + bytes([source.batches[1][-1] ^ 1])
    follower, taken = following(source)
    with pytest.raises(CorruptBatch, match=r"^custody\.tokyo: the CRC of the batch at offset 3"):
        await follower.catch_up()
    assert len(taken) == PER_BATCH


@pytest.mark.parametrize("at", [-1, 8], ids=["a record", "the length"])
async def test_a_damaged_batch_holds_up_its_own_log_until_it_is_whole(
    at: int, fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is before the batch is read, and what is behind it is not passed on before it; the ends are not reached."""
    monkeypatch.setattr(under_test, "_LOOK_FOR_LOGS", 0.01)
    for name in ("custody.star", LOG.topic, "custody.sydney"):
        for value in (b"0", b"1", b"2"):
            put(fake.logs.get(name) or fake.log(name), NewRecord(value, timestamp_ms=1))
    damage(fake.logs[LOG.topic], 1, at=at)
    taken: dict[str, list[tuple[bytes | None, bool]]] = {}
    unread: set[str] = set()
    follower = LogFollower(
        cluster,
        [*fake.logs],
        lambda topic, record, at_start: taken.setdefault(topic, []).append((record.value, at_start)),
        unread,
    )
    await follower.catch_up()
    await follower.catch_up()  # as after an error
    assert unread == {LOG.topic}
    async with in_background(follower.follow()) as following, in_background(follower.read_to_ends()) as reading:
        put(fake.logs["custody.star"], NewRecord(b"3", timestamp_ms=1))
        fake.change()
        await until(lambda: following.done() or len(taken["custody.star"]) == 4)
        assert not reading.done()
        damage(fake.logs["custody.sydney"])  # it is read already
        damage(fake.logs[LOG.topic], 1, at=at)
        await until(lambda: following.done() or (len(taken[LOG.topic]) == 3 and not unread))
        async with asyncio.timeout(5):
            await reading
    every = [(b"0", True), (b"1", True), (b"2", True)]
    assert taken.pop(LOG.topic) == [(b"0", True), (b"1", False), (b"2", False)]
    assert taken == {"custody.star": [*every, (b"3", False)], "custody.sydney": every}
    assert caplog.text.count("custody.tokyo is not read beyond offset 1") == 1


async def test_a_damaged_log_that_no_broker_serves_is_not_taken_for_whole(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alarm stays while the log is not read, as when its disk has failed."""
    monkeypatch.setattr(under_test, "_LOOK_FOR_LOGS", 0.01)
    for value in (b"0", b"1"):
        put(fake.logs.get(LOG.topic) or fake.log(LOG.topic), NewRecord(value, timestamp_ms=1))
    damage(fake.logs[LOG.topic])
    taken: list[bytes | None] = []
    unread: set[str] = set()
    follower = LogFollower(cluster, [LOG.topic], lambda _topic, record, _at_start: taken.append(record.value), unread)
    await follower.catch_up()
    fake.logs[LOG.topic].leader = -1
    reads = Mock(wraps=follower._read_damaged)  # noqa: SLF001
    monkeypatch.setattr(follower, "_read_damaged", reads)
    async with in_background(follower.follow()) as following:
        await until(lambda: following.done() or reads.call_count == 3)
        assert unread == {LOG.topic}
        damage(fake.logs[LOG.topic])
        fake.logs[LOG.topic].leader = 0
        await until(lambda: following.done() or not unread)
        assert taken == [b"0", b"1"]


async def test_what_is_here_already_is_known_when_the_ends_are_reached(fake: FakeCluster, cluster: Cluster) -> None:
    """Records that are already here are read when the ends are reached, also of a log that was created after the
    start."""
    known, new = fake.log("custody.tokyo"), "custody.star"
    put(known, NewRecord(b"0", timestamp_ms=1))
    taken: list[tuple[str, bytes | None]] = []
    follower = LogFollower(
        cluster, [LOG.topic, new], lambda topic, record, _at_start: taken.append((topic, record.value))
    )
    await follower.catch_up()
    async with in_background(follower.follow()):
        await follower.read_to_ends()
        put(known, NewRecord(b"1", timestamp_ms=1), NewRecord(b"2", timestamp_ms=1))
        put(fake.log(new), NewRecord(b"3", timestamp_ms=1))
        await asyncio.gather(*(follower.read_to_ends() for _ in range(3)))
        assert sorted(taken) == [(new, b"3"), *((LOG.topic, value) for value in (b"0", b"1", b"2"))]


async def test_a_log_that_is_gone_is_not_waited_for(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that was deleted is not waited for."""
    monkeypatch.setattr(under_test, "_LOOK_AT_ENDS", 0.05)
    put(fake.log(LOG.topic), NewRecord(b"0", timestamp_ms=1))
    follower = LogFollower(cluster, [LOG.topic], lambda *_: None)
    async with in_background(follower.read_to_ends()) as reading:  # no log is followed yet
        await until_seen(fake, LIST_OFFSETS)
        assert not reading.done()
        del fake.logs[LOG.topic]
        async with in_background(follower.follow()), asyncio.timeout(5):
            await reading


async def test_a_log_that_is_deleted_and_created_again_is_read_from_its_start(
    fake: FakeCluster, cluster: Cluster
) -> None:
    """A log that was deleted and created again is followed from its start, as after ``link resolve --refill``."""
    for value in (b"0", b"1"):
        put(fake.logs.get(LOG.topic) or fake.log(LOG.topic), NewRecord(value, timestamp_ms=1))
    taken: list[bytes | None] = []
    follower = LogFollower(cluster, [LOG.topic], lambda _topic, record, _at_start: taken.append(record.value))
    await follower.catch_up()
    async with in_background(follower.follow()):
        await follower.read_to_ends()
        del fake.logs[LOG.topic]
        put(fake.log(LOG.topic), NewRecord(b"0", timestamp_ms=1))
        async with asyncio.timeout(20):
            await until(lambda: len(taken) == 3)
            put(fake.logs[LOG.topic], NewRecord(b"2", timestamp_ms=1))
            fake.change()
            await follower.read_to_ends()
        assert taken == [b"0", b"1", b"0", b"2"]


async def test_a_log_whose_start_cannot_be_read_when_it_is_created_again_is_followed(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is created again is followed although the broker cannot say at first where it begins."""

    async def fail(_logs: Collection[TP]) -> dict[TP, int | BrokerError]:
        monkeypatch.undo()
        return {LOG: broker_error(7, LOG)}

    put(fake.log(LOG.topic), NewRecord(b"0", timestamp_ms=1))
    taken: list[bytes | None] = []
    follower = LogFollower(cluster, [LOG.topic], lambda _topic, record, _at_start: taken.append(record.value))
    await follower.catch_up()
    async with in_background(follower.follow()):
        await follower.read_to_ends()
        monkeypatch.setattr(cluster, "start_offsets", fail)
        del fake.logs[LOG.topic]
        put(fake.log(LOG.topic), NewRecord(b"1", timestamp_ms=1))
        await until(lambda: len(taken) == 2)
        assert taken == [b"0", b"1"]


async def test_an_error_while_it_looks_for_new_logs_ends_it(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a log that is created later would never be followed, and nobody would know."""

    async def fail(*_: object, **__: object) -> dict[str, object]:
        raise broker_error(29, LOG)

    put(fake.log(LOG.topic), NewRecord(b"0", timestamp_ms=1))
    follower = LogFollower(cluster, [LOG.topic, "custody.star"], lambda *_: None)
    await follower.catch_up()
    monkeypatch.setattr(cluster, "topics", fail)
    async with asyncio.timeout(5):
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await follower.follow()


async def until_seen(fake: FakeCluster, api_key: int) -> None:
    async with asyncio.timeout(5):
        while not fake.seen(api_key):  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0.001)
