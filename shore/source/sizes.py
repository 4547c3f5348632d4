"""How large records are, for admission by bytes: Kafka tells offsets, never bytes, so some are looked at.

Before a batch is admitted, a few records at the beginning of what is to be read are fetched from the logs with the
longest lags (``SAMPLED_LOGS`` of them: they decide how large the batch gets), and the mean of each is its estimate. All
other logs count as the mean of their stream, which is smoothed over the batches; a stream of which nothing was ever
seen counts as ``UNSEEN_BYTES``. Estimates stay between ``LEAST_BYTES`` and ``MOST_BYTES``. So a batch exceeds
``maxBytesPerTrigger`` where records grow all of a sudden behind what was looked at, and the next one is right again.
Nothing is kept but a number per stream: a restarted query measures anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import HEADER_BYTES, parse_header, split
from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.record import Record, decode_batch
from fairlead.kafka.protocol.types import TopicPartition
from shore.source.offsets import parse_partition_id, partition_id

SAMPLED_LOGS = 32
SAMPLED_BYTES = 64 << 10  # of each log, as stored
UNSEEN_BYTES = 1_000
LEAST_BYTES = 16
MOST_BYTES = 1 << 20  # of a record in a log: max.message.bytes
_STREAMS = 1_000
_WEIGHT = 0.3  # of a new measurement in a stream's mean


def size_of(record: Record) -> int:
    """Bytes of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers)


class Sizes:
    """Estimated bytes a record by log. Pure."""

    def __init__(self) -> None:
        self._streams: dict[str, float] = {}
        self._logs: dict[str, float] = {}

    def of(self, log: str) -> int:
        """The estimate for one record."""
        found = self._logs.get(log)
        if found is None:
            found = self._streams.get(_stream(log), UNSEEN_BYTES)
        return round(min(max(found, LEAST_BYTES), MOST_BYTES))

    def learn(self, measured: Mapping[str, float]) -> None:
        """Take over the mean sizes of logs that were just looked at; those of the time before are forgotten."""
        self._logs = dict(measured)
        by_stream: dict[str, list[float]] = {}
        for log, mean in measured.items():
            by_stream.setdefault(_stream(log), []).append(mean)
        for stream, means in by_stream.items():
            mean = sum(means) / len(means)
            before = self._streams.pop(stream, mean)
            self._streams[stream] = before + _WEIGHT * (mean - before)
        while len(self._streams) > _STREAMS:
            self._streams.pop(next(iter(self._streams)))  # not seen for the longest time


def most_behind(spans: Mapping[str, int]) -> list[str]:
    """The logs to look at: those with the longest lags."""
    return heapq.nsmallest(SAMPLED_LOGS, spans, key=lambda log: (-spans[log], log))


async def measure(cluster: Cluster, positions: Mapping[str, int]) -> dict[str, float]:
    """The mean size of the records at some positions; logs that gave none are left out.

    Raises:
        ConnectionLost: no broker can be reached.
    """
    wanted = {TopicPartition(*parse_partition_id(log)): position for log, position in positions.items()}
    found: dict[str, float] = {}
    answers = await cluster.fetch(
        wanted, max_wait_ms=0, partition_max_bytes=SAMPLED_BYTES, max_bytes=SAMPLED_LOGS * SAMPLED_BYTES
    )
    for log, answer in answers.items():
        mean = None if answer.error_code else mean_size(answer.records)
        if mean is not None:
            found[partition_id(*log)] = mean
    return found


def mean_size(content: memoryview) -> float | None:
    """The mean size of an offset's record in fetched batches; None where there is none.

    A last batch that is cut short counts, too, by its header: it may be the first one with data.
    """
    size = count = stop = 0
    for view in split(content):
        stop, header = view.stop, view.header
        count += header.last_offset_delta + 1
        if header.codec is Codec.NONE:
            size += header.size
        elif not header.is_control:
            size += sum(size_of(record) for record in decode_batch(content, view.start, view.stop))
    if len(content) - stop >= HEADER_BYTES:
        header = parse_header(content, stop)
        size += header.size
        count += header.last_offset_delta + 1
    return size / count if count else None


def _stream(log: str) -> str:
    return log.partition(".")[0]
