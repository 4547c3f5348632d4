"""The queue and the feeds of one log: an idle log keeps nothing in memory."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.prepared import Gap, PreparedBatch
from replication.changes import PlanChanges
from replication.target import appender as under_test
from replication.target.appender import TargetAppender
from replication.target.mirror import MirrorPartition, Waiting
from topologies.model import Priority

LOG = TopicPartition("metrics.tokyo.cpu")


class Silent:
    """A feed that does nothing."""

    name = "silent"

    def rewind(self, tp: TopicPartition, end: int) -> None: ...

    def on_appended(self, tp: TopicPartition, prepared: PreparedBatch) -> None: ...

    def on_damaged(self, tp: TopicPartition, cause: str) -> None: ...


def prepared(base: int) -> PreparedBatch:
    return PreparedBatch(base, base + 1, memoryview(bytearray(10)), 0, 1, 1, 0, 0)


def replica_of(*steps: PreparedBatch | Gap) -> MirrorPartition:
    replica = MirrorPartition(LOG, Priority.NORMAL)
    replica.end = replica.sent = 0
    replica.queue_steps(list(steps), Silent())
    return replica


def test_a_log_at_rest_has_no_queue() -> None:
    """An idle log has no queue."""
    replica = replica_of(prepared(0), prepared(1))
    assert len(replica.queue) == 2
    for batch in (prepared(0), prepared(1)):
        replica.mark_sent(Waiting(batch, Silent()), batch)
    assert not replica.queue
    assert replica.queue_steps([prepared(2)], Silent()) == 10
    assert replica.clear_queue() == 10
    assert not replica.queue
    assert replica.clear_queue() == 0


def test_what_is_there_already_is_dropped_and_the_queue_with_it() -> None:
    """Batches that the target has already are dropped, together with the queue."""
    replica = replica_of(prepared(0), prepared(1))
    replica.sent = 2
    assert replica.next_step() == (None, 20, None)
    assert replica.queue == ()


def test_a_hole_becomes_fillers_in_front_of_what_follows() -> None:
    """A gap becomes fillers before the batch that follows it."""
    replica = replica_of(Gap(0, 3, 1, 1, 0, 0), prepared(3))
    first, dropped, misfit = replica.next_step()
    assert first is not None
    assert (first.step.base, first.step.stop, dropped, misfit) == (0, 3, 0, None)
    assert len(replica.queue) == 2


def test_feeds_are_counted_once_and_leave() -> None:
    """A feed is counted once, and can leave."""
    one, other = Silent(), Silent()
    replica = MirrorPartition(LOG, Priority.NORMAL)
    for feed in (one, other, one):
        replica.add_feed(feed)
    assert list(replica.feeds) == [one, other]
    replica.remove_feed(one)
    replica.remove_feed(one)
    assert list(replica.feeds) == [other]


def test_very_many_small_batches_close_the_room_as_many_bytes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many small batches fill the queue just as many bytes do."""
    monkeypatch.setattr(under_test, "WAITING", 3)

    async def check() -> None:
        target = TargetAppender(cast("Any", None), memory=1 << 20, changes=PlanChanges(), limit_of=AsyncMock())
        replica = target.replica(LOG, Priority.NORMAL)
        target._account(replica.queue_steps([prepared(n) for n in range(3)], Silent()), 3)  # noqa: SLF001
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(target.wait_ready(), 0.01)
        await asyncio.wait_for(target.wait_ready(urgent=True), 1)
        target._account(replica.queue_steps([prepared(n) for n in range(3, 6)], Silent()), 3)  # noqa: SLF001
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(target.wait_ready(urgent=True), 0.01)
        target.drop(target.replicas)
        await asyncio.wait_for(target.wait_ready(), 1)
        await asyncio.wait_for(target.wait_ready(urgent=True), 1)
        assert target.queued == 0

    asyncio.run(check())


@pytest.mark.parametrize(("queued", "bulk", "urgent"), [(0.4, True, True), (0.6, False, True), (1.1, False, False)])
async def test_urgent_records_have_half_of_the_memory_for_themselves_and_no_more(
    queued: float, bulk: bool, urgent: bool
) -> None:
    """Alerts come however much waits, but a source that has very many of them does not take all memory."""
    target = TargetAppender(cast("Any", None), memory=1 << 20, changes=PlanChanges(), limit_of=AsyncMock())
    target._account(int(queued * (1 << 20)), 1)  # noqa: SLF001
    for is_urgent, is_ready in ((False, bulk), (True, urgent)):
        waiting = asyncio.ensure_future(target.wait_ready(urgent=is_urgent))
        for _ in range(5):
            await asyncio.sleep(0)
        assert waiting.done() == is_ready
        waiting.cancel()
