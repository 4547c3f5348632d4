"""The cost of one record in bytes and CPU, and the origin of each number. Uses the product's encoders; sends nothing.

The origin ``measured here`` is computed in this run from the bytes of the model's messages, ``measured`` is a
benchmark's figure at the place named, ``assumed`` is neither.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

from edge.logwriter.records import ledger, marker, published
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import NewRecord
from fairlead.records.custody import CustodyEntry, Marker
from simulators.steps import Publish

Origin = Literal["measured here", "measured", "assumed"]


@dataclass(frozen=True, slots=True)
class Cost:
    """A number with its unit, its origin, and where that is."""

    name: str
    value: float
    unit: str
    origin: Origin
    where: str


DATA_SHARE = Cost(
    "share of a line that is record batches, small batches",
    0.806,
    "",
    "measured",
    "benchmarks/thin_link.py, satellite_small_batches, data_share, 2026-11-21",
)
BRIDGE_CPU = Cost(
    "CPU of a bridge for a reading, 2,000 logs",
    77.3,
    "us",
    "measured",
    "benchmarks.edge, bridge.fairlead.cpu_us_per_reading, 2026-11-21",
)
CABLE_SHARE = Cost(
    "share of the bytes between brokers that is record batches, no thin line",
    0.947,
    "",
    "measured",
    "docs/benchmarks/sizing.json, 1,000 logs, stored_bytes : wire_bytes, 2026-11-28",
)
REPLICATOR_CPU = Cost(
    "CPU of a replicator for a record alone in its batch",
    22.6,
    "us",
    "measured",
    "docs/benchmarks/sizing.json, from 1,000 to 5,000 logs, 2026-11-28",
)
DIGEST_BOX = Cost(
    "a box in a digest, of 2,000 boxes",
    8.0,
    "B",
    "measured",
    "docs/benchmarks/edge.md, Digests of a large ship, 2026-11-27",
)
BENCHMARKED = (DATA_SHARE, CABLE_SHARE, BRIDGE_CPU, REPLICATOR_CPU, DIGEST_BOX)
REPLICATOR_START = Cost(
    "CPU of a replicator until it copies",
    0.45,
    "s",
    "measured",
    "docs/benchmarks/sizing.json, from 5,000 to 1,000 logs and on to none, 2026-11-28",
)
REPLICATOR_BASE = Cost(
    "memory of a replicator without logs",
    72.0,
    "MB",
    "measured",
    "docs/benchmarks/replication.json, growth, 1,000 logs, less those and their batches, 2026-11-21",
)
REPLICATOR_LOG = Cost(
    "memory of a replicator for a log",
    3_660.0,
    "B",
    "measured",
    "docs/benchmarks/sizing.json, simulation of 100,000 logs, 2026-11-28",
)
REPLICATOR_IDLE = Cost(
    "CPU of a replicator that stands by, for a log and second",
    0.17,
    "us",
    "measured",
    "docs/benchmarks/sizing.json, simulation of 100,000 logs, 2026-11-28",
)
LOG_ON_DISK = Cost(
    "a log's files on the disk beyond its records",
    21_430.0,
    "B",
    "measured",
    "docs/benchmarks/sizing.json, 5,000 logs, (disk_bytes - stored_bytes) : logs, 2026-11-28",
)
LOGS_PER_BROKER = Cost(
    "logs that a broker opens, with 20,000 open files and 65,530 memory maps",
    18_400,
    "logs",
    "measured",
    "docs/benchmarks/custody.md, 20,000 boxes, 2026-11-22",
)


def stored_bytes(record: NewRecord, codec: Codec = Codec.NONE) -> int:
    """Return the bytes of a record in a log, without index files; it has its own batch, as a box's readings do."""
    return len(term_batch([record], term=3, offset=1_000, marker=900, codec=codec))


def message_bytes(message: Publish, codec: Codec = Codec.NONE) -> int:
    """Return the bytes that a message takes in a log, with batch, key, time and header. A ship's bridge compresses
    with zstd, others do not (``edge.bridge``)."""
    at = int(message.sim_time.timestamp() * 1000)
    return stored_bytes(published(message.payload, key=message.key, at_ms=at, received_ms=at), codec)


def overhead(message: Publish) -> int:
    """Return the bytes that a message takes in a log beyond its payload, uncompressed."""
    return message_bytes(message) - len(message.payload)


def custody_bytes(log: str, site: str, event_id: str, time: dt.datetime, codec: Codec = Codec.NONE) -> tuple[int, int]:
    """Return the bytes of the marker in a container's log, and of the ledger's entry, that one move makes."""
    opening = Marker(
        log=log,
        term=3,
        from_site=site,
        to_site=site,
        event="LOAD",
        event_id=event_id,
        event_date_time=time,
        nonce="0" * 32,
    )
    batch = term_batch([marker(opening)], term=3, offset=1_000, marker=1_000, codec=codec)
    entry = CustodyEntry(
        log=log,
        term=3,
        marker_offset=1_000,
        from_site=site,
        to_site=site,
        event="LOAD",
        event_id=event_id,
        event_date_time=time,
        granted_date_time=time,
        granted_by=site,
        marker_batch=batch,
    )
    return len(batch), stored_bytes(ledger(entry), codec)
