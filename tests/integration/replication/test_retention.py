"""Retention on a real broker deletes old records, keeps the newest batch, and does not disturb appends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import marker_record
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TopicPartition
from replication.plan.maintenance import delete_expired

pytestmark = pytest.mark.integration

HOUR = 3_600_000
LONG_AGO = 1_000_000_000_000  # ms, in 2001: older than any retention by the wall clock


async def test_old_records_are_deleted_but_never_the_last(
    kafka: Callable[..., KafkaEndpoint], new_log: Callable[..., str]
) -> None:
    aged, still = TopicPartition(new_log("alpha")), TopicPartition(new_log("alpha"))
    async with await Cluster.open(kafka("alpha"), client_id="test") as cluster:
        appender = Appender(cluster)
        for log, hours in ((aged, (0, 1, 2, 30, 31)), (still, (0, 1))):
            await appender.open_term(log, 1, marker_record(b"{}", timestamp_ms=LONG_AGO))
            for hour in hours:
                await appender.append(log, [NewRecord(value=b"x", timestamp_ms=LONG_AGO + hour * HOUR)])
        kept = {aged: 24 * HOUR, still: 24 * HOUR}
        assert await delete_expired(cluster, kept) == {aged: 4}  # marker and hours 0 to 2 are deleted
        assert await delete_expired(cluster, kept) == {}
        assert await delete_expired(cluster, {aged: 1, still: 1}) == {aged: 5, still: 2}  # the last record always stays
        for log in (aged, still):
            await appender.append(log, [NewRecord(value=b"y", timestamp_ms=LONG_AGO)])
        await appender.close()
