"""Counting at the end of a voyage: readings in the logs, and what each customer read, against the truth.

Reads through ``fairlead.wire`` as the super user of a local cluster. Pure counting is apart from reading, so that it
can be tested without brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from fairlead.names import parse_log
from fairlead.records import decoder
from fairlead.records.reading import Reading
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_data
from fairlead.wire.record import Record
from fairlead.wire.sweep import extents, sweep
from fairlead.wire.types import TP
from simulators.steps import ReadingId
from topologies.model import InsertPoint, Topology


class LogCount(NamedTuple):
    """Published readings against stored ones: what is missing, and what is there more often than once."""

    in_logs: int
    lost: int
    repeated: int


_reading = decoder(Reading)


def reading_id(payload: bytes) -> ReadingId:
    """The identity of a stored reading. Raises msgspec's errors for anything that is no reading."""
    reading = _reading.decode(payload)
    return ReadingId(
        reading.equipment_reference, reading.device.device_id, reading.device.boot_id, reading.device.sequence
    )


def count(published: Collection[ReadingId], stored: Counter[ReadingId]) -> LogCount:
    """Compare what was published with what is stored; ``in_logs`` counts each published reading once."""
    found = sum(1 for one in published if one in stored)
    return LogCount(
        in_logs=found,
        lost=len(published) - found,
        repeated=sum(times - 1 for times in stored.values()),
    )


async def records_of(cluster: Cluster, logs: Iterable[str]) -> dict[str, list[Record]]:
    """Every data record (no markers, no fillers) of these logs, in offset order, up to their ends now; raises as
    ``fairlead.wire.sweep``."""
    out: dict[str, list[Record]] = {log: [] for log in logs}
    async for tp, records in sweep(cluster, await extents(cluster, [TP(log) for log in out])):
        out[tp.topic] += filter(is_data, records)
    return out


async def container_logs(cluster: Cluster, topology: Topology) -> list[str]:
    """All logs of streams whose insert point moves with the container, as this cluster has them."""
    names = []
    for topic in await cluster.topics():
        log = parse_log(topic)
        stream = topology.streams.get(log.stream) if log else None
        if stream is not None and stream.insert_point is InsertPoint.MOVES:
            names.append(topic)
    return sorted(names)


def ids_of(records: Iterable[Record]) -> Counter[ReadingId]:
    """How often each reading is stored; records that are no readings are ignored (they are counted by other lines)."""
    found: Counter[ReadingId] = Counter()
    for record in records:
        try:
            found[reading_id(record.value or b"")] += 1
        except msgspec.DecodeError:
            continue
    return found
