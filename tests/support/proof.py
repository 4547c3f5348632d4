"""The proof at the end of every fault test: the target has caught up, no record is lost or doubled, and both audits
agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from fairlead.kafka.admin import admin_client
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication.audit import compare, compare_records
from tests.support.traffic import Written, verdict
from tests.support.waits import PATIENCE
from topologies.model import ENDS, Topology


async def ends(endpoint: KafkaEndpoint, logs: Mapping[str, object]) -> dict[str, int]:
    """Return the end offsets of these logs; -1 for those that do not exist."""
    async with await Cluster.open(endpoint, client_id="proof") as cluster:
        found = await cluster.end_offsets([TopicPartition(log) for log in logs])
        return {tp.topic: end if isinstance(end, int) else -1 for tp, end in found.items()}


async def grown(endpoint: KafkaEndpoint, logs: Mapping[str, object], *, patience: float = PATIENCE) -> None:
    """Wait until each of these logs has grown."""
    before, deadline = await ends(endpoint, logs), time.monotonic() + patience
    while still := [log for log, end in (await ends(endpoint, logs)).items() if end <= before[log]]:
        assert time.monotonic() < deadline, f"after {patience:g} s not every log grows at {endpoint.site}: {still}"
        await asyncio.sleep(0.05)


async def caught_up(
    written: Mapping[str, Written], source: KafkaEndpoint, target: KafkaEndpoint, *, patience: float = PATIENCE
) -> None:
    """Wait until the source's transactions have ended and the target's logs end where the source's do.

    Nobody may write any more. The source is asked each time, too: Kafka writes the markers that end transactions after
    it has answered the commit, and until then read_committed consumers get none of their records.
    """
    deadline = time.monotonic() + patience
    admin = admin_client(source)
    while True:
        stable = await asyncio.to_thread(_stable_ends, admin, written)
        there, wanted = await ends(target, written), await ends(source, written)
        if there == wanted == stable:
            return
        behind = {
            log: (end, wanted[log], stable[log]) for log, end in there.items() if not end == wanted[log] == stable[log]
        }
        assert time.monotonic() < deadline, f"after {patience:g} s the target is not where the source is: {behind}"
        await asyncio.sleep(0.1)


def _stable_ends(admin: AdminClient, logs: Mapping[str, object]) -> dict[str, int]:
    """Return the last stable offsets, up to which read_committed consumers get records; -1 for logs that do not
    exist."""
    asked = admin.list_offsets(
        {ClientPartition(log, 0): OffsetSpec.latest() for log in logs},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=PATIENCE,
    )
    found = dict.fromkeys(logs, -1)
    for partition, answer in asked.items():
        with contextlib.suppress(KafkaException):
            info: Any = answer.result()  # the type stubs leave its members out
            found[partition.topic] = info.offset
    return found


async def proven(
    topology: Topology,
    written: Mapping[str, Written],
    source: KafkaEndpoint,
    target: KafkaEndpoint,
    *,
    patience: float = PATIENCE,
) -> int:
    """Wait for the target, then check every proof; return how many acknowledged values were written.

    ``written`` must be all logs of the topology's own streams, and nobody may write to them any more.
    """
    await caught_up(written, source, target, patience=patience)
    assert await asyncio.to_thread(verdict, written, source, target) == []
    streams = topology.streams.keys() - {ENDS}  # the replicators write these logs themselves
    quick = await compare(topology, source, target, streams=streams)
    full = await compare_records(topology, source, target, streams=streams)
    assert quick.ok, quick.as_json()
    assert full.ok, full.as_json()
    assert full.compared == quick.compared == len(written), (full.as_json(), quick.as_json())
    assert (quick.behind, quick.apart, quick.only_a, quick.only_b) == (0, [], [], []), quick.as_json()
    return sum(len(each.sure) for each in written.values())
