"""A log that was promoted or failed over here is not extended by a replicator that has not read the order yet."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import msgspec
import pytest

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import FENCE_EPOCH, FOREIGN_EPOCH, FOREIGN_PRODUCER_ID
from fairlead.kafka.protocol.types import ProducerState, TopicPartition
from replication.changes import PlanChanges
from replication.states import LogState
from replication.target import appender as target
from replication.target.appender import TargetAppender
from replication.target.mirror import LastBatch, MirrorPartition
from topologies.model import Priority

LOG = TopicPartition("orders.x")
FENCE = LastBatch(FOREIGN_PRODUCER_ID, FENCE_EPOCH, 5, 5, 1)


class Broker:
    """The broker's end and producer state of the log."""

    metadata = SimpleNamespace(topic_id=lambda _topic: b"id of orders.x")
    end = FENCE.base + 1

    async def end_offsets(self, logs: Collection[TopicPartition], **_: object) -> dict[TopicPartition, int]:
        return dict.fromkeys(logs, self.end)

    async def describe_producers(
        self, logs: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        return dict.fromkeys(logs, (ProducerState(FOREIGN_PRODUCER_ID, FENCE_EPOCH, 0, 0),))


async def test_a_fence_that_is_seen_first_stops_the_log_until_it_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the replicator sees the fence first, it stops the log until the next check.

    By then it has read the orders; the one that belongs to the fence was written before it. Without this, a suspended
    replicator would append behind the fence: a filler contradicts no record of the source.
    """
    tail, broker = FENCE, Broker()

    async def tails(*_: object, **__: object) -> dict[TopicPartition, LastBatch]:
        return {LOG: tail}

    monkeypatch.setattr(target, "read_tails", tails)
    here = TargetAppender(cast(Cluster, broker), memory=1 << 20, changes=PlanChanges(), limit_of=AsyncMock())
    replica = MirrorPartition(LOG, Priority.NORMAL)
    await here.load_ends([replica])
    assert replica.trouble is not None and replica.trouble.state is LogState.UNAVAILABLE
    assert "promoted or failed over" in replica.trouble.cause
    replica.trouble = None  # as the replicator retries after some seconds; a released log is not checked again
    await here.load_ends([replica])
    assert (replica.trouble, replica.end, replica.foreign_id) == (None, 6, FOREIGN_PRODUCER_ID + 1)
    tail, broker.end = msgspec.structs.replace(FENCE, base=9), 10
    await here.load_ends([replica])
    assert replica.trouble is not None, "each release stops it once"
    replica.trouble = None
    tail, broker.end = LastBatch(FOREIGN_PRODUCER_ID + 1, FOREIGN_EPOCH, 0, 20, 1), 21
    await here.load_ends([replica])
    assert (replica.trouble, replica.end, replica.foreign_id) == (None, 21, FOREIGN_PRODUCER_ID + 1)
