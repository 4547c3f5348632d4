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
REPLICATOR_CPU = Cost(
    "CPU of a replicator for a record, 16,000 logs",
    13.3,
    "us",
    "measured",
    "docs/benchmarks/replication.md, Growth, 2026-11-21",
)
BENCHMARKED = (DATA_SHARE, BRIDGE_CPU, REPLICATOR_CPU)


def stored_bytes(record: NewRecord) -> int:
    """Return the bytes of a record in a log, without index files; it has its own batch, as a box's readings do."""
    return len(term_batch([record], term=3, offset=1_000, marker=900))


def overhead(message: Publish) -> int:
    """Return the bytes that a message takes in a log beyond its payload: batch, key, time and header."""
    at = int(message.sim_time.timestamp() * 1000)
    record = published(message.payload, key=message.key, at_ms=at, received_ms=at)
    return stored_bytes(record) - len(message.payload)


def custody_bytes(log: str, site: str, event_id: str, time: dt.datetime) -> tuple[int, int]:
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
    batch = term_batch([marker(opening)], term=3, offset=1_000, marker=1_000)
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
    return len(batch), stored_bytes(ledger(entry))
