"""Read records: one log up to its end, many logs once, or many logs as they grow; markers and fillers included."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple, Self

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.batch import BatchHeader, BatchView, Buffer, split, split_aborted
from fairlead.kafka.protocol.errors import BrokerError, CorruptBatch, UnreadableRecords, broker_error
from fairlead.kafka.protocol.record import Record, decode_batch
from fairlead.kafka.protocol.types import TP, FetchedPartition

log = logging.getLogger(__name__)

_ANOTHER_LEADER: Final = "make a broker that has {} whole its leader"
PARTITION_BYTES: Final = 4 << 20  # bytes of one log in one answer
_SWEEP_PARTITION_BYTES: Final = 1 << 20  # the same, where many logs share the answer


def decode_fetched(
    log: TP, content: FetchedPartition, offset: int, *, left_out: bool = True
) -> tuple[list[Record], int]:
    """Decode one log's fetched batches: return the records at ``offset`` or later, and the offset to read next.

    Leaves out the records of control batches and those of aborted transactions, where ``content.aborted`` names them (a
    fetch with isolation 1). Skips a batch whose records cannot be decoded, and logs an error. Ends before a batch whose
    bytes are damaged.

    Args:
        left_out: Whether the answer may lack this log's records because those of other logs filled it.

    Raises:
        CorruptBatch: the first batch's bytes are damaged, or there is none (``lacks_batch``). The error names the log.
    """
    with _naming(log):
        records, after = _decode(content, offset)
    if after == offset and not left_out and content.high_watermark > offset:
        raise lacks_batch(log, content, offset)
    return records, after


def lacks_batch(log: TP, content: FetchedPartition, offset: int) -> CorruptBatch:
    """Return the error for a log that has records at ``offset``, of which a broker returns none although its answer has
    room.

    The length of a stored batch is damaged: Kafka 4.3 then returns nothing from that batch on, without an error
    (measured). A broker that has room returns a batch whole, however long it is (KIP-74).
    """
    what = f"the broker returns no batch at offset {offset}, although the log ends at {content.high_watermark}"
    return CorruptBatch(
        f"{log}: {what}: a batch's length is damaged", hint=_ANOTHER_LEADER.format(log), log=str(log), offset=offset
    )


def is_empty(answers: Mapping[TP, FetchedPartition]) -> bool:
    """Return whether no log got a batch, so that none was left out for another."""
    return not any(len(content.records) for content in answers.values())


def batches_of(log: TP, content: FetchedPartition) -> Iterator[BatchView]:
    """Yield one log's complete fetched batches, as ``split`` does.

    Raises:
        CorruptBatch: a header is damaged. The error names the log.
    """
    with _naming(log):
        yield from split(content.records)


@contextlib.contextmanager
def _naming(log: TP) -> Iterator[None]:
    """Name the log in the error of a damaged batch: many logs are read together."""
    try:
        yield
    except CorruptBatch as error:
        hint = error.hint or _ANOTHER_LEADER.format(log)
        raise CorruptBatch(f"{log}: {error.what}", hint=hint, log=str(log), **error.fields) from error


def _decode(content: FetchedPartition, offset: int) -> tuple[list[Record], int]:
    records: list[Record] = []
    after = offset
    try:
        for view, is_aborted in split_aborted(content.records, content.aborted):
            header = view.header
            if not header.is_control and not is_aborted:
                found = readable(content.records, view)
                if header.base_offset < offset:
                    found = [record for record in found if record.offset >= offset]
                records += found
            after = max(after, header.next_offset)
    except CorruptBatch:
        if after == offset:
            raise
    return records, after


def readable(buffer: Buffer, view: BatchView) -> list[Record]:
    """Return the records of one batch; if they cannot be decoded, log an error and return none.

    One bad writer must not stop the log's readers. The batch stays in the log.

    Raises:
        CorruptBatch: the CRC does not match: another copy may be whole.
    """
    try:
        return decode_batch(buffer, view.start, view.stop)
    except UnreadableRecords as error:
        log.error("offsets %d to %d are passed over: %s", view.header.base_offset, view.header.last_offset, error)
        return []


async def read_log(
    cluster: Cluster, log: TP, start: int | None = None, end: int | None = None
) -> AsyncIterator[Record]:
    """Yield records of ``log`` in offset order, from ``start`` (default: its first) to ``end`` (default: its end now).

    Includes markers and fillers; filter with ``convention.is_data``.

    Raises:
        BrokerError: the log does not exist, may not be read, or does not reach back to ``start`` (code 1).
        CorruptBatch: a batch is damaged.
        ConnectionLost: no broker can be reached.
    """
    position = _offset(await cluster.start_offsets([log]), log) if start is None else start
    stop = _offset(await cluster.end_offsets([log]), log) if end is None else end
    while position < stop:
        content = (await cluster.fetch({log: position}, partition_max_bytes=PARTITION_BYTES))[log]
        if content.error_code:
            raise broker_error(content.error_code, log)
        records, position = decode_fetched(log, content, position, left_out=False)
        for record in records:
            if record.offset >= stop:
                return
            yield record


def _offset(answers: Mapping[TP, int | BrokerError], log: TP) -> int:
    answer = answers[log]
    if isinstance(answer, BrokerError):
        raise answer
    return answer


class Tail:
    """Follow many logs: an async iterator of (log, records) that never ends by itself.

    Logs may be added and removed while it runs; it waits for topics that do not exist yet. After an exception, call
    ``__anext__`` again to continue; a failed log is not read until it is added again.

    Args:
        positions: Offsets to begin at.
        max_wait_ms: How long one poll waits, and so the longest delay until an added log is read.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TP, int] | None = None,
        *,
        max_wait_ms: int = 500,
    ) -> None:
        self._session = cluster.fetch_session()
        self._max_wait_ms = max_wait_ms
        self._positions: dict[TP, int] = {}
        self._fetched: deque[tuple[TP, FetchedPartition]] = deque()
        for log, offset in (positions or {}).items():
            self.add(log, offset)

    @property
    def positions(self) -> Mapping[TP, int]:
        """Return the offset of the next record of each followed log."""
        return self._positions

    def add(self, log: TP, offset: int) -> None:
        """Follow ``log`` from ``offset`` on; moves the position of a log that is already followed."""
        self._drop_fetched(log)
        self._move(log, offset)

    def remove(self, log: TP) -> None:
        """Stop following ``log``; no more of its records are returned."""
        self._drop_fetched(log)
        self._positions.pop(log, None)
        self._session.forget(log)

    def _move(self, log: TP, offset: int) -> None:
        self._positions[log] = offset
        self._session.set(log, offset)

    def _drop_fetched(self, log: TP) -> None:
        if any(name == log for name, _ in self._fetched):
            self._fetched = deque(entry for entry in self._fetched if entry[0] != log)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[TP, list[Record]]:
        """Return the next records of some log, never an empty list.

        Raises:
            BrokerError: a log cannot be read; code 1: the next record was deleted, code 100: the topic was deleted and
                created again. ``error.log`` names the log.
            ConnectionLost: no broker can be reached; continue after a pause.
        """
        while True:
            while self._fetched:
                log, content = self._fetched.popleft()
                offset = self._positions[log]
                if content.error_code:
                    self._positions.pop(log, None)
                    raise broker_error(content.error_code, log)
                records, after = decode_fetched(log, content, offset)
                if after > offset:
                    self._move(log, after)
                if records:
                    return log, records
            self._fetched.extend((await self._session.poll(max_wait_ms=self._max_wait_ms)).items())

    async def close(self) -> None:
        """End the session."""
        await self._session.close()


class OffsetRange(NamedTuple):
    """The offsets that a log has: from ``start`` to before ``end``."""

    start: int
    end: int


async def extents(cluster: Cluster, logs: Collection[TP]) -> dict[TP, OffsetRange]:
    """Return the offsets that each log has now.

    Raises:
        BrokerError: the first log that does not exist or may not be read.
        ConnectionLost, RequestTimeout: no broker answers.
    """
    if not logs:
        return {}
    ends = await cluster.end_offsets(logs)
    starts = await cluster.start_offsets(logs)
    found: dict[TP, OffsetRange] = {}
    for log in logs:
        start, end = starts[log], ends[log]
        if isinstance(start, BrokerError):
            raise start
        if isinstance(end, BrokerError):
            raise end
        found[log] = OffsetRange(min(start, end), end)
    return found


async def sweep(
    cluster: Cluster, logs: Mapping[TP, OffsetRange], *, wanted: Callable[[TP, BatchHeader], bool] | None = None
) -> AsyncIterator[tuple[TP, list[Record]]]:
    """Yield the records of these extents, in offset order within each log, with logs interleaved.

    Includes markers and fillers.

    Args:
        wanted: Decides by a batch's header whether to read its records; None: read all.

    Raises:
        BrokerError: a log cannot be read; code 1: it no longer reaches back to its extent's start.
        CorruptBatch: a batch is damaged.
        ConnectionLost, RequestTimeout: no broker answers.
    """
    positions = {log: extent.start for log, extent in logs.items() if extent.start < extent.end}
    while positions:
        answers = await cluster.fetch(positions, partition_max_bytes=_SWEEP_PARTITION_BYTES)
        left_out = not is_empty(answers)
        for log, content in answers.items():
            if content.error_code:
                raise broker_error(content.error_code, log)
            records, after = decode_fetched(log, content, positions[log], left_out=left_out)
            end = logs[log].end
            if wanted is not None:
                out: list[range] = []
                with contextlib.suppress(CorruptBatch):  # behind ``records``: the next fetch begins there
                    for header in (view.header for view in split(content.records)):
                        if not wanted(log, header):
                            out.append(range(header.base_offset, header.next_offset))
                records = [record for record in records if not any(record.offset in each for each in out)]
            if after >= end:
                del positions[log]
                records = [record for record in records if record.offset < end]
            else:
                positions[log] = after
            if records:
                yield log, records
