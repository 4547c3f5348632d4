"""What the target really has: log ends, the batch at an offset. The guard before a first append, and the judge after
a doubtful one (design, section 5).

The tail batch is always read, not only where the broker has forgotten its producer state: end and tail then describe
the same moment, whatever others append meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from fairlead.wire.batch import HEADER_BYTES, Header, parse_header
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import marker_offset
from fairlead.wire.errors import BrokerError, broker_error
from fairlead.wire.types import TopicPartition
from replication.content import Item
from replication.foreign_id import is_ordinary
from replication.replica import Tail
from replication.stamp import canonical_crc

ANSWER_BYTES: Final = 8 << 20
BATCH_BYTES: Final = 2 << 20
AT_ONCE: Final = 2000


@dataclass(frozen=True, slots=True)
class Stored:
    """The header of one batch as stored, as far as it decides anything."""

    base: int
    stop: int
    crc: int
    producer_id: int
    term: int
    marker: int

    @property
    def tail(self) -> Tail:
        return Tail(self.producer_id, self.term, self.marker, self.base, self.crc)

    def differs(self, item: Item) -> bool:
        """Whether this is another batch than the one that was to be appended."""
        return (self.base, self.crc) != (item.base, item.crc)

    def beside(self, item: Item) -> str:
        """Both batches for a person."""
        return (
            f"two different batches at offset {item.base}: the source's has offsets {item.base}..{item.stop - 1}, term "
            f"{item.term}, CRC {item.crc:08x}; the target's {self.base}..{self.stop - 1}, term {self.term}, "
            f"CRC {self.crc:08x}"
        )


async def read_ends(cluster: Cluster, logs: Collection[TopicPartition]) -> dict[TopicPartition, int | BrokerError]:
    """Log ends at the target."""
    return await cluster.end_offsets(logs) if logs else {}


async def read_tails(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Tail]:
    """Who wrote the last batch below each end; logs without any batch are left out."""
    stored = await stored_at(cluster, {tp: end - 1 for tp, end in ends.items() if end > 0})
    return {tp: each.tail for tp, each in stored.items()}


async def stored_at(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Stored]:
    """The batches that contain these offsets; logs that have none there (deleted, not yet readable) are left out.

    Raises:
        WireError: the cluster cannot be reached, or answers with an error that may pass.
    """
    out: dict[TopicPartition, Stored] = {}
    left = dict(offsets)
    while left:
        some = dict(list(left.items())[:AT_ONCE])
        answers = await cluster.fetch(some, max_wait_ms=0, max_bytes=ANSWER_BYTES, partition_max_bytes=BATCH_BYTES)
        answered = {tp: part for tp, part in answers.items() if part.error_code or len(part.records) >= HEADER_BYTES}
        for tp, part in answered.items():
            if part.error_code:
                error = broker_error(part.error_code, tp)
                if error.retriable:
                    raise error
                continue
            header = parse_header(part.records)
            out[tp] = Stored(
                header.base_offset,
                header.next_offset,
                _crc(part.records, header),
                header.producer_id,
                header.producer_epoch,
                marker_offset(header),
            )
        # A broker answers at least one log per request, the others as far as its answer has room. Nothing at all
        # means that none of them has such an offset.
        for tp in answered or some:
            left.pop(tp, None)
    return out


def _crc(records: memoryview, header: Header) -> int:
    """The batch's own, or for one that an ordinary client wrote here the one that its replicas have."""
    if not is_ordinary(header.producer_id) or len(records) < header.size:
        return header.crc
    return canonical_crc(memoryview(bytearray(records[: header.size])), header)
