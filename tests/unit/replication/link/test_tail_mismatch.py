"""Detect that a source has lost records and continued with others, whenever it is checked.

This concerns logs of ordinary clients, whose appender does not follow from the log's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import FENCE_EPOCH, FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.batch import CONTROL, TRANSACTIONAL, parse_header
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import FetchedPartition, ProducerState, TopicPartition
from replication.batch.header_rewrite import rewrite_header
from replication.batch.prepare import prepare_batches
from replication.batch.prepared import Gap, PreparedBatch, RejectedBatch
from replication.batch.rebuild import fence, fillers
from replication.link.fetch_state import tail_mismatch
from replication.link.fetcher import Fetcher
from replication.link.link_logs import LinkLogs
from replication.states import LogState
from replication.target import appender as examiner
from replication.target.appender import TargetAppender
from replication.target.log_reader import read_tails
from replication.target.mirror import LastBatch, MirrorPartition
from tests.support.batches import foreign_batch
from tests.support.replication.broker import NOT_LEADER, Broker, running
from tests.support.replication.scripted import NOTHING, FakeLinkLogs, Source
from tests.support.replication.source_logs import NOW, Made, SourceLog, body
from tests.support.replication.source_logs import stored as kept
from topologies.model import Priority

LOG = TopicPartition("orders.europe")


def stored(offset: int, value: bytes, epoch: int = 0) -> bytes:
    """Return one record as an ordinary log stores it, written by the leader of this epoch."""
    made = bytearray(foreign_batch([NewRecord(value, timestamp_ms=1000 + offset)], offset=offset))
    struct.pack_into(">q", made, 0, offset)
    struct.pack_into(">i", made, 12, epoch)
    return bytes(made)


def answer(records: bytes, end: int) -> FetchedPartition:
    return FetchedPartition(0, end, end, 0, (), memoryview(bytearray(records)))


def fetcher_of(source: Source, appender: TargetAppender) -> Fetcher:
    return Fetcher(cast(LinkLogs, FakeLinkLogs("a->b")), Priority.NORMAL, cast(Cluster, source), appender)


async def follow(broker: Broker, *answers: FetchedPartition, end: int) -> MirrorPartition:
    """Let a fetcher process these answers for a log that the target may partly have already."""
    source = Source(*answers, end=end, log=LOG)
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.NORMAL)
        await appender.load_ends([replica])
        if replica.trouble is not None:  # a fence was seen for the first time
            replica.trouble = None
            await appender.load_ends([replica])
        fetcher = fetcher_of(source, appender)
        fetcher.follow(replica)
        task = asyncio.create_task(fetcher.run())
        await asyncio.wait_for(source.exhausted.wait(), 5)
        for _ in range(300):
            await asyncio.sleep(0)
        assert not appender.is_busy(LOG)
        task.cancel()
    return replica


def history(first: int, stop: int, word: bytes, epoch: int = 0) -> bytes:
    return b"".join(stored(n, word + b" %d" % n, epoch) for n in range(first, stop))


def fenced(stop: int) -> tuple[Broker, bytes]:
    """Return a target that was promoted or failed over at ``stop``, and the fence as it is stored there."""
    broker = Broker(random.Random(1))  # noqa: S311
    for n in range(stop):
        made = bytearray(stored(n, b"old %d" % n))
        rewrite_header(memoryview(made), FOREIGN_PRODUCER_ID, 0, n)
        broker.log(*LOG).append(bytes(made))
    broker.log(*LOG).append(bytes(fence(FOREIGN_PRODUCER_ID, 2000)))
    broker.states[LOG] = (ProducerState(FOREIGN_PRODUCER_ID, FENCE_EPOCH, 0, 2000),)
    return broker, broker.log(*LOG).at(stop)


async def test_a_source_that_went_on_after_a_failover_has_another_record_than_the_fence() -> None:
    """After a failover is taken back, the record that the source has in the fence's place is not passed over."""
    broker, _ = fenced(10)
    replica = await follow(broker, answer(history(10, 13, b"old"), 13), end=13)
    assert replica.trouble is not None
    assert replica.trouble.state is LogState.DIVERGED
    assert "offset 10" in replica.trouble.cause
    assert broker.log(*LOG).end == 11


async def test_a_source_that_has_the_fence_too_goes_on() -> None:
    """After a promotion is taken back, both sites have the fence."""
    broker, stored_fence = fenced(10)
    replica = await follow(broker, answer(stored_fence + history(11, 13, b"old"), 13), end=13)
    assert replica.trouble is None
    assert broker.log(*LOG).end == 13


async def test_a_source_that_was_shorter_and_went_on_with_other_records() -> None:
    """A source that was shorter and continued with other records is reported."""
    broker = Broker(random.Random(1))  # noqa: S311
    for n in range(10):
        broker.log(*LOG).append(stored(n, b"old %d" % n))
    replica = await follow(
        broker,
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),  # it ends at 4
        answer(history(4, 12, b"new"), 12),
        answer(history(9, 12, b"new"), 12),  # fetched again from 9 on
        end=4,
    )
    assert replica.trouble is not None
    assert replica.trouble.state is LogState.DIVERGED
    assert broker.log(*LOG).end == 10


async def test_a_source_that_was_shorter_and_has_caught_up_goes_on() -> None:
    """A source that was shorter and has caught up is followed."""
    broker = Broker(random.Random(1))  # noqa: S311
    for n in range(10):
        broker.log(*LOG).append(stored(n, b"old %d" % n))
    replica = await follow(
        broker,
        FetchedPartition(OFFSET_OUT_OF_RANGE, -1, -1, -1, (), NOTHING),
        answer(history(4, 8, b"old"), 8),  # still shorter
        answer(history(8, 12, b"old"), 12),
        answer(history(9, 12, b"old"), 12),
        end=4,
    )
    assert replica.trouble is None
    assert broker.log(*LOG).end == 12


async def test_a_new_leader_that_lost_records_and_has_others() -> None:
    """A new leader that lost records and has others is reported.

    In an unclean election the new leader ends at 4, and by the next poll it has grown past the target's end.
    """
    broker = Broker(random.Random(1))  # noqa: S311
    replica = await follow(
        broker,
        answer(history(0, 10, b"old"), 10),
        answer(history(10, 12, b"new", epoch=1), 12),
        answer(history(9, 12, b"new", epoch=1), 12),
        end=12,
    )
    assert replica.trouble is not None
    assert replica.trouble.state is LogState.DIVERGED
    assert broker.log(*LOG).end == 10


async def test_a_new_leader_with_the_same_records_goes_on() -> None:
    """A new leader with the same records is followed."""
    broker = Broker(random.Random(1))  # noqa: S311
    replica = await follow(
        broker,
        answer(history(0, 10, b"old"), 10),
        answer(history(10, 12, b"old", epoch=1), 12),
        answer(history(9, 10, b"old") + history(10, 12, b"old", epoch=1), 12),
        end=12,
    )
    assert replica.trouble is None
    assert broker.log(*LOG).end == 12


def transactions(words: str, *, aborted: str = "", epoch: int = 0) -> SourceLog:
    """Return a log with a transaction of two records for each letter, and the marks of two that end together."""
    log = SourceLog()
    for word in words:
        records = [Made(log.end + n, NOW, body(b"k", word.encode() * (n + 1))) for n in range(2)]
        log.batches.append(kept(log.end, log.end + 1, records, producer=5, epoch=0, sequence=7, flags=TRANSACTIONAL))
        if word in aborted:
            log.aborted.append((5, log.end, log.end + 2))
        for at in (log.end + 2, log.end + 3):
            mark = [Made(at, NOW, body(b"\0\0\0\1", b"\0\0\0\0\0\0"))]
            log.batches.append(kept(at, at, mark, producer=5 + at % 2, epoch=0, flags=TRANSACTIONAL | CONTROL))
        log.end += 4
    log.batches = [each[:12] + struct.pack(">i", epoch) + each[16:] for each in log.batches]
    return log


class Transactional(Source):
    """A source that answers each fetch from its log."""

    def __init__(self, history: SourceLog) -> None:
        super().__init__(end=history.end, log=LOG)
        self.history = history

    async def poll(self, **_: Any) -> dict[TopicPartition, FetchedPartition]:
        while (at := self.followed.get(LOG, self.end)) >= self.end:
            self.exhausted.set()
            await asyncio.sleep(0)
        records, aborted = self.history.answer(at, 9)
        return {LOG: FetchedPartition(0, self.end, self.end, 0, tuple(aborted), records)}


def copied(log: SourceLog) -> Broker:
    """Return a target with a copy of a log."""
    broker = Broker(random.Random(1))  # noqa: S311
    records, aborted = log.answer(0, 99)
    for step in prepare_batches(records, 0, aborted):
        assert not isinstance(step, RejectedBatch)
        for made in fillers(step) if isinstance(step, Gap) else [step]:
            broker.log(*LOG).append(bytes(made.data))
    assert broker.log(*LOG).end == log.end
    return broker


async def copied_or_stopped(replica: MirrorPartition, source: Source) -> None:
    async with asyncio.timeout(10):
        while replica.trouble is None and replica.end < source.end:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def following(source: Source, broker: Broker) -> AsyncIterator[MirrorPartition]:
    """Copy a log from a source to a target meanwhile; yield the copy."""
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.NORMAL)
        await appender.load_ends([replica])
        fetcher = fetcher_of(source, appender)
        fetcher.follow(replica)
        task = asyncio.create_task(fetcher.run())
        yield replica
        task.cancel()


@pytest.mark.parametrize(
    ("now", "aborted", "state"),
    [
        ("abcd", "", None),
        ("abcd", "c", None),
        ("abxd", "", LogState.DIVERGED),
        ("abxd", "x", LogState.DIVERGED),
    ],
)
async def test_transactions_are_told_apart_by_their_records(now: str, aborted: str, state: LogState | None) -> None:
    """A log of transactions ends with marks, which are the same whatever is before them."""
    broker, source = copied(transactions("abc", aborted=aborted)), Transactional(transactions(now, aborted=aborted))
    async with following(source, broker) as replica:
        await copied_or_stopped(replica, source)
    assert (replica.trouble and replica.trouble.state) == state
    assert broker.log(*LOG).end == (source.end if state is None else 12)


@pytest.mark.parametrize(("now", "state"), [("abcd", None), ("axcd", LogState.DIVERGED)])
async def test_a_new_leader_with_other_transactions_is_told_by_their_records(now: str, state: LogState | None) -> None:
    broker, source = Broker(random.Random(1)), Transactional(transactions("ab"))  # noqa: S311
    async with following(source, broker) as replica:
        await copied_or_stopped(replica, source)
        source.history, source.end = transactions(now, epoch=1), 16
        await copied_or_stopped(replica, source)
    assert (replica.trouble and replica.trouble.state) == state
    assert broker.log(*LOG).end == (16 if state is None else 8)


@pytest.mark.parametrize(
    ("there", "state"),
    [("abcd", None), ("abxd", LogState.DIVERGED), ("", LogState.DIVERGED)],
    ids=["the same", "another transaction", "no transactions"],
)
async def test_a_target_that_ends_with_a_mark_of_its_own_is_compared_before_it(
    there: str, state: LogState | None
) -> None:
    """Clients have written here, as after a failover that is taken back. In place of the mark the source has a filler,
    which agrees with everything, or a record, which does not."""
    broker, log = Broker(random.Random(1)), transactions("abc")  # noqa: S311
    broker.log(*LOG).batches, broker.log(*LOG).end = log.batches, log.end
    batches = copied(transactions(there)).log(*LOG).batches if there else [stored(n, b"%d" % n) for n in range(16)]
    source = Transactional(SourceLog(batches, end=16))
    async with following(source, broker) as replica:
        await copied_or_stopped(replica, source)
    assert (replica.trouble and replica.trouble.state) == state
    assert broker.log(*LOG).end == (16 if state is None else 12)


def test_a_term_of_more_than_2_to_the_31_records_goes_on() -> None:
    """A term of more than 2^31 records is followed without a false alarm."""
    replica = MirrorPartition(TopicPartition("containers.BIGU1000016"), Priority.NORMAL)
    replica.set_end(2**31, LastBatch(PRODUCER_ID, 1, 0, 2**31 - 1, 7), 0)  # its sequence is 2^31 - 1: its marker is 0
    prepared = PreparedBatch(
        2**31, 2**31 + 1, memoryview(b""), 8, PRODUCER_ID, 1, 2**31, 0
    )  # sequence 0 again, which looks like 2^31
    assert replica.follow_problem(prepared) is None


def test_ordinary_logs_have_no_terms() -> None:
    """Logs of ordinary clients have no terms."""
    replica = MirrorPartition(LOG, Priority.NORMAL)
    replica.set_end(5, LastBatch(17, 3, 99, 4, 7), 0)  # written here by an ordinary client before the link was reversed
    assert replica.follow_problem(PreparedBatch(5, 6, memoryview(b""), 8, FOREIGN_PRODUCER_ID, 0, 0, 0)) is None
    assert replica.follow_problem(PreparedBatch(5, 6, memoryview(b""), 8, PRODUCER_ID, 1, 5, 0)) is not None


async def test_a_copy_with_another_id_of_the_range_is_proven_by_its_checksum() -> None:
    """A copy written under another reserved producer id is proven equal by its checksum.

    After a link was reversed and reversed back, the replicator writes here under the next id of the reserved range. The
    last batch is compared as if it had the usual id, so no record has to be read for the proof.
    """
    source = history(0, 1, b"value")
    here = bytearray(source)
    rewrite_header(memoryview(here), FOREIGN_PRODUCER_ID + 1, 0, 0)
    broker = Broker(random.Random(1))  # noqa: S311
    broker.log(*LOG).append(bytes(here))
    tail = (await read_tails(cast(Cluster, broker), {LOG: 1}))[LOG]
    assert parse_header(here).crc != parse_header(source).crc
    assert isinstance(tail, LastBatch) and tail.producer_id == FOREIGN_PRODUCER_ID + 1
    assert tail_mismatch(tail, 1, memoryview(bytearray(source))) is None
    assert tail_mismatch(tail, 1, memoryview(bytearray(history(0, 1, b"other")))) is not None


@pytest.mark.parametrize("code", [NOT_LEADER, -1])
async def test_a_target_that_cannot_tell_now_proves_nothing(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that cannot be read at the moment proves nothing, whether its broker calls that an error that passes.

    Its last batch has other bounds than the source's, and cannot be read now.
    """
    broker = Broker(random.Random(1))  # noqa: S311
    broker.log(*LOG).append(stored(0, b"old"))
    real, asked = broker.fetch, 0

    async def fetch(positions: Mapping[TopicPartition, int], **more: Any) -> dict[TopicPartition, FetchedPartition]:
        nonlocal asked
        asked += 1
        if asked == 1:  # the check under test
            return await real(positions, **more)
        return {tp: FetchedPartition(code, -1, -1, -1, (), NOTHING) for tp in positions}

    monkeypatch.setattr(broker, "fetch", fetch)
    two = bytearray(foreign_batch([NewRecord(b"new", timestamp_ms=n) for n in (1, 2)], offset=0))
    source = Source(answer(bytes(two), 2), end=2, log=LOG)
    async with following(source, broker) as replica:
        await asyncio.wait_for(source.exhausted.wait(), 5)
    assert broker.log(*LOG).end == 1
    assert replica.trouble is not None and replica.trouble.state is LogState.UNAVAILABLE


@pytest.mark.parametrize("code", [NOT_LEADER, 0])
async def test_a_doubt_that_cannot_be_examined_now_stays(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mismatch that cannot be examined now remains open.

    A batch of another writer is in the place of ours; it must be read to decide whether it contradicts, however long
    that takes.
    """
    broker = Broker(random.Random(1))  # noqa: S311
    monkeypatch.setattr(examiner, "BACKOFF", (0.0,))
    real, failing = broker.fetch, code != 0

    async def fetch(positions: Mapping[TopicPartition, int], **more: Any) -> dict[TopicPartition, FetchedPartition]:
        nonlocal failing
        if "max_bytes" not in more and failing:  # a single batch is fetched the first time
            failing = False
            return {tp: FetchedPartition(code, -1, -1, -1, (), NOTHING) for tp in positions}
        return await real(positions, **more)

    monkeypatch.setattr(broker, "fetch", fetch)
    async with running(broker) as appender:
        replica = appender.replica(LOG, Priority.NORMAL)
        await appender.load_ends([replica])
        fetcher = fetcher_of(Source(answer(history(0, 1, b"ours"), 1), end=1, log=LOG), appender)
        broker.log(*LOG).append(stored(0, b"theirs"))
        replica.set_end(0, None, replica.generation)
        replica.checked = 0
        fetcher.follow(replica)
        task = asyncio.create_task(fetcher.run())
        for _ in range(400):
            await asyncio.sleep(0)
        task.cancel()
    assert replica.trouble is not None
    assert replica.trouble.state in (LogState.DIVERGED, LogState.MISPLACED)
    assert not failing
