"""Where reading begins and ends: the options' words and times into offsets, by asking the brokers."""

from __future__ import annotations

from collections.abc import Collection

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.errors import BrokerError
from fairlead.kafka.protocol.types import TopicPartition
from shore.source.offsets import Positions, parse_partition_id
from shore.source.options import EARLIEST, LATEST, Edge


async def resolve(cluster: Cluster, edge: Edge, ends: Positions) -> Positions:
    """An edge's offset in each log of ``ends``, and in the logs that it names by an offset.

    Raises:
        BrokerError: a log cannot be asked. Leaving it out would make it a new log later, read from its beginning.
        ConnectionLost: no broker can be reached.
    """
    if edge.timestamp_ms is not None:
        found = _all(await cluster.offsets_at(_logs(ends), edge.timestamp_ms), ends)
        return {log: end if found[log] == LATEST else found[log] for log, end in ends.items()}
    chosen = {log: edge.by_log.get(log, edge.usual) for log in (*ends, *edge.by_log)}
    earliest = [log for log, offset in chosen.items() if offset == EARLIEST and log in ends]
    starts = await begins(cluster, earliest)
    return {
        log: offset if offset >= 0 else starts[log] if offset == EARLIEST else ends[log]
        for log, offset in chosen.items()
        if offset >= 0 or log in ends
    }


async def begins(cluster: Cluster, logs: Collection[str]) -> Positions:
    """The first offset that each log still has. Raises as ``resolve``."""
    return _all(await cluster.start_offsets(_logs(logs)), logs) if logs else {}


def _logs(logs: Collection[str]) -> list[TopicPartition]:
    return [TopicPartition(*parse_partition_id(log)) for log in logs]


def _all(answers: dict[TopicPartition, int | BrokerError], logs: Collection[str]) -> Positions:
    found: Positions = {}
    for log in logs:
        answer = answers[TopicPartition(*parse_partition_id(log))]
        if isinstance(answer, BrokerError):
            raise answer
        found[log] = answer
    return found
