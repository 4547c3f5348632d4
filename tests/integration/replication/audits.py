"""Create two copies of a log with planted differences, and run the audits on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TopicPartition
from replication.audit import Audit, compare, compare_records
from tests.support.replication.lab import Lab, records
from topologies.model import Topology


async def both(lab: Lab, topology: Topology, **options: Any) -> tuple[Audit, Audit]:
    """Run the quick and the full audit of the lab's stream: replicators of other tests write to ``ends``."""
    a, b = lab.kafka("alpha"), lab.kafka("beta")
    options["streams"] = [lab.stream]
    return await compare(topology, a, b, **options), await compare_records(topology, a, b, **options)


def found(audit: Audit) -> list[tuple[str, int]]:
    """Return log and offset of every difference."""
    return sorted((each.log, each.offset) for each in audit.differences)


async def store(lab: Lab, site: str, logs: Mapping[TopicPartition, Sequence[bytes]]) -> None:
    """Append batches to partitions, in order."""
    cluster = await lab.cluster(site)
    for n in range(max(map(len, logs.values()), default=0)):
        answer = await cluster.produce({tp: batches[n] for tp, batches in logs.items() if len(batches) > n})
        assert all(result.appended_now for result in answer.values()), answer


def own(some: Sequence[NewRecord], *, term: int = 1, per: int = 10, codec: Codec = Codec.NONE) -> list[bytes]:
    """Return batches of a log of the append convention with these records."""
    return [
        term_batch(some[at : at + per], term=term, offset=at, marker=0, codec=codec) for at in range(0, len(some), per)
    ]


async def planted(lab: Lab, logs: Mapping[str, tuple[Sequence[bytes], Sequence[bytes]]]) -> dict[str, str]:
    """Create logs with these batches at alpha and beta; return their names by key."""
    topics = {key: lab.log(f"alpha.{key}") for key in logs}
    for side, site in enumerate(("alpha", "beta")):
        await lab.make(site, *topics.values())
        await store(lab, site, {TopicPartition(topics[key]): pair[side] for key, pair in logs.items()})
    return topics


def changed(at: int, **fields: Any) -> list[NewRecord]:
    """Return thirty records, one of them changed."""
    some = records(0, 30)
    was = some[at]
    now = {"value": was.value, "key": was.key, "headers": was.headers, "timestamp_ms": was.timestamp_ms, **fields}
    some[at] = NewRecord(**now)
    return some
