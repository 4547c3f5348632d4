"""Markers of terms as they are stored, read from their logs."""

from __future__ import annotations

from collections.abc import Mapping

from edge.batching import Batcher
from edge.patience import patiently
from fairlead.records import UNREADABLE, decoder
from fairlead.records.custody import Marker
from fairlead.wire.batch import split
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_marker
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE, broker_error
from fairlead.wire.record import decode_batch
from fairlead.wire.types import TP, FetchedPartition

_marker = decoder(Marker)


class Markers:
    """Reads the stored batches of markers; questions that come together share requests."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._batcher: Batcher[tuple[str, int], bytes] = Batcher(self._fetch)

    async def batch(self, topic: str, offset: int) -> bytes:
        """The batch that begins at ``offset``, which must be stored."""
        return await self._batcher.ask((topic, offset))

    async def find(self, topic: str, offset: int) -> bytes | None:
        """The batch that begins at ``offset``; None when the log has none there (any more)."""

        async def fetch() -> FetchedPartition:
            return (await self._cluster.fetch({TP(topic): offset}, partition_max_bytes=64 * 1024))[TP(topic)]

        answer = await patiently(fetch, "reading a marker")
        if answer.error_code == OFFSET_OUT_OF_RANGE:
            return None
        if answer.error_code:
            raise broker_error(answer.error_code, TP(topic))
        for view in split(answer.records):
            if view.header.base_offset == offset:
                return bytes(answer.records[view.start : view.stop])
        return None

    async def close(self) -> None:
        await self._batcher.close()

    async def _fetch(self, wanted: list[tuple[str, int]]) -> Mapping[tuple[str, int], bytes]:
        """The stored batches at given offsets."""
        left = {TP(topic): offset for topic, offset in wanted}
        found: dict[tuple[str, int], bytes] = {}

        async def fetch() -> dict[TP, FetchedPartition]:
            return await self._cluster.fetch(left, partition_max_bytes=64 * 1024)

        while left:
            for tp, answer in (await patiently(fetch, "reading markers")).items():
                if answer.error_code:
                    error = broker_error(answer.error_code, tp)
                    if not error.retriable:
                        raise error
                    continue
                for view in split(answer.records):
                    if view.header.base_offset == left[tp]:
                        found[tp.topic, left.pop(tp)] = bytes(answer.records[view.start : view.stop])
                        break
        return found


def decode_marker(batch: bytes) -> Marker | None:
    """The marker in a stored batch; None when it holds something else."""
    for record in decode_batch(batch):
        if is_marker(record) and record.value is not None:
            try:
                return _marker.decode(record.value)
            except UNREADABLE:
                return None
    return None
