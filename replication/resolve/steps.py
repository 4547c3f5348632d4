"""The steps that plans are made of: what is done, and to what. Pure data, walked by ``explain`` and ``execute``."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.wire.types import TopicPartition
from replication.orders import Order
from replication.resolve.facts import Committed, Extent


@dataclass(frozen=True, slots=True)
class PauseLog:
    """Order the replicator to leave the topic alone, that is these logs. ``wait``: until it has acted on it."""

    order: Order
    logs: tuple[str, ...]
    wait: bool


@dataclass(frozen=True, slots=True)
class KeepCopy:
    """Copy these offsets of each partition to the same offsets of another topic of the same site."""

    topic: str
    kept: str
    extents: tuple[tuple[int, Extent], ...]  # (partition, offsets)


@dataclass(frozen=True, slots=True)
class KeepBatch:
    """Store the bytes of the source's batch as the value of one record in a topic of this site."""

    log: TopicPartition
    site: str
    link: str
    extent: Extent
    kept: str


@dataclass(frozen=True, slots=True)
class Verify:
    """Compare both, batch by batch, and see that nothing was appended since: else nothing is deleted."""

    topic: str
    kept: str
    extents: tuple[tuple[int, Extent], ...]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Delete the replica, all partitions."""

    topic: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Make the topic anew with what its sources no longer have: these offsets of the kept copy, byte for byte."""

    topic: str
    kept: str
    partitions: int
    extents: tuple[tuple[int, Extent], ...]


@dataclass(frozen=True, slots=True)
class WriteOrder:
    """Append an order to the site's ``fairlead.orders``."""

    order: Order


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Wait until the replicator says that the log is mirrored, and the log reaches these ends."""

    log: str
    ends: tuple[tuple[int, int], ...]  # (partition, offset)


@dataclass(frozen=True, slots=True)
class RestoreGroups:
    """Commit again what Kafka forgot with the topic, never beyond the log's end; groups that are active are told of."""

    topic: str
    committed: tuple[Committed, ...]


Step = PauseLog | KeepCopy | KeepBatch | Verify | DeleteTopic | GiveBack | WriteOrder | WaitFor | RestoreGroups
