"""Reading records: one log up to its end, or many logs as they grow. Markers and fillers are included."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Self

from fairlead.wire.batch import split
from fairlead.wire.cluster import Cluster
from fairlead.wire.errors import BrokerError, broker_error
from fairlead.wire.record import Record, decode_batch
from fairlead.wire.types import TP, FetchedPartition

PARTITION_BYTES = 4 << 20


def decode_fetched(content: FetchedPartition, offset: int) -> tuple[list[Record], int]:
    """The records at ``offset`` or later of one log's fetched batches, and the offset to read next.

    Records of control batches are skipped, and so are those of aborted transactions where ``content.aborted`` names
    them (a fetch with isolation 1).

    Raises:
        CorruptBatch: a batch's bytes are damaged.
    """
    records: list[Record] = []
    after = offset
    aborted = sorted(content.aborted, key=lambda pair: pair[1])
    open_aborted: set[int] = set()
    for view in split(content.records):
        header = view.header
        while aborted and aborted[0][1] <= header.last_offset:
            open_aborted.add(aborted.pop(0)[0])
        after = max(after, header.next_offset)
        if header.is_control:
            open_aborted.discard(header.producer_id)  # a transaction's end marker closes it
            continue
        if header.is_transactional and header.producer_id in open_aborted:
            continue
        found = decode_batch(content.records, view.start, view.stop)
        if header.base_offset < offset:
            found = [record for record in found if record.offset >= offset]
        records += found
    return records, after


async def read_log(
    cluster: Cluster, log: TP, start: int | None = None, end: int | None = None
) -> AsyncIterator[Record]:
    """Records of ``log`` from ``start`` (default: its first) up to ``end`` (default: its end now), in offset order.

    Includes markers and fillers; filter with ``convention.is_data``.

    Raises:
        BrokerError: the log does not exist, may not be read, or does not reach back to ``start`` (code 1).
        ConnectionLost: no broker can be reached.
    """
    position = _offset(await cluster.start_offsets([log]), log) if start is None else start
    stop = _offset(await cluster.end_offsets([log]), log) if end is None else end
    while position < stop:
        content = (await cluster.fetch({log: position}, partition_max_bytes=PARTITION_BYTES))[log]
        if content.error_code:
            raise broker_error(content.error_code, log)
        records, position = decode_fetched(content, position)
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

    Logs may be added and removed while it runs; a topic that does not exist yet is waited for. After an exception the
    iteration may go on: call ``__anext__`` again (a log that failed rests until it is added again).

    Args:
        positions: Offsets to begin at.
        isolation: 1 leaves out records of aborted transactions.
        max_wait_ms: How long one poll waits; an added log is noticed after that time at the latest.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TP, int] | None = None,
        *,
        isolation: int = 0,
        max_wait_ms: int = 500,
    ) -> None:
        self._session = cluster.fetch_session(isolation=isolation)
        self._max_wait_ms = max_wait_ms
        self._positions: dict[TP, int] = {}
        self._fetched: deque[tuple[TP, FetchedPartition]] = deque()
        for log, offset in (positions or {}).items():
            self.add(log, offset)

    @property
    def positions(self) -> Mapping[TP, int]:
        """The offset of the next record of each followed log."""
        return self._positions

    def add(self, log: TP, offset: int) -> None:
        """Follow ``log`` from ``offset`` on; moves the position of a log that is followed already."""
        self._drop_fetched(log)
        self._move(log, offset)

    def remove(self, log: TP) -> None:
        """Stop following ``log``; no more of its records come."""
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
        """The next records of some log, never an empty list.

        Raises:
            BrokerError: a log cannot be read; code 1: what was to be read next is gone, code 100: the topic is a new
                one under the old name. ``error.log`` says which.
            ConnectionLost: no broker can be reached; go on after a pause.
        """
        while True:
            while self._fetched:
                log, content = self._fetched.popleft()
                offset = self._positions[log]
                if content.error_code:
                    self._positions.pop(log, None)
                    raise broker_error(content.error_code, log)
                records, after = decode_fetched(content, offset)
                if after > offset:
                    self._move(log, after)
                if records:
                    return log, records
            self._fetched.extend((await self._session.poll(max_wait_ms=self._max_wait_ms)).items())

    async def close(self) -> None:
        """End the session."""
        await self._session.close()
