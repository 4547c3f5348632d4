"""Reading what two sites have stored of many logs, many of them per Fetch, and comparing it batch by batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from fairlead.errors import UnavailableError
from fairlead.wire.batch import HEADER_BYTES, split
from fairlead.wire.cluster import Cluster
from fairlead.wire.convention import is_filler
from fairlead.wire.errors import OFFSET_OUT_OF_RANGE, broker_error
from fairlead.wire.record import decode_batch
from fairlead.wire.types import FetchedPartition, TopicPartition
from replication.audit.batches import Batch, Batches, Strict
from replication.audit.pace import Pace
from replication.audit.ranges import Common
from replication.content import canonical_crc

AHEAD: Final = 200  # batches of one log that may wait for the other side
ANSWER_BYTES: Final = 16 << 20
LOG_BYTES: Final = 1 << 20
PATIENCE: Final = 30.0  # seconds without anything new
COMMITTED: Final = 1  # isolation: the answer tells which transactions were aborted


class Stored:
    """The stored batches of two sites.

    Args:
        on_equal: Told now and then up to which offset a log has been found the same.
    """

    def __init__(
        self,
        clusters: tuple[Cluster, Cluster],
        paces: tuple[Pace, Pace],
        *,
        on_equal: Callable[[Common, int], None] = lambda _log, _to: None,
    ) -> None:
        self._clusters = clusters
        self._paces = paces
        self._on_equal = on_equal

    async def compare(self, logs: Sequence[Common]) -> tuple[dict[Common, Batches], list[Common]]:
        """Compare logs batch by batch. The second part of the answer: those that were shortened meanwhile.

        Raises:
            FairleadError: a site cannot be read.
        """
        found = {log.tp: Batches(log.start, log.stop) for log in logs}
        moved: set[TopicPartition] = set()
        open_ = {tp: each for tp, each in found.items() if not each.finished}
        orders: tuple[list[TopicPartition], list[TopicPartition]] = (list(open_), list(open_))
        heard = noted = time.monotonic()
        idle = False
        while open_:
            news = await asyncio.gather(*(self._more(side, orders[side], open_, moved, idle) for side in (0, 1)))
            for tp in moved:
                open_.pop(tp, None)
            for tp in [tp for tp, each in open_.items() if each.finished]:
                del open_[tp]
            if time.monotonic() - noted > 1:
                noted = time.monotonic()
                for log in logs:
                    if log.tp in open_ and open_[log.tp].compared_to > log.start:
                        self._on_equal(log, open_[log.tp].compared_to)
            idle = not any(news)
            heard = heard if idle else time.monotonic()
            if time.monotonic() - heard > PATIENCE:
                raise UnavailableError(
                    f"nothing new came for {PATIENCE:g} s; {len(open_)} logs are left: {next(iter(open_))}..",
                    hint="see whether both sites run, then go on with --resume",
                )
        return {log: found[log.tp] for log in logs if log.tp not in moved}, [log for log in logs if log.tp in moved]

    async def faithful(self, pair: Strict, tp: TopicPartition) -> bool:
        """Whether one of the two batches holds fillers, which each replicator makes for itself."""
        for cluster, batch in zip(self._clusters, pair, strict=True):
            answer = (await cluster.fetch({tp: batch.base}, max_wait_ms=0))[tp]
            for start, stop, header in split(answer.records):
                if header.base_offset == batch.base:
                    if any(is_filler(record) for record in decode_batch(answer.records, start, stop)):
                        return True
                    break
        return False

    async def _more(
        self,
        side: int,
        order: list[TopicPartition],
        open_: Mapping[TopicPartition, Batches],
        moved: set[TopicPartition],
        idle: bool,
    ) -> bool:
        """One Fetch from one side; True when it brought something."""
        order[:] = [tp for tp in order if tp in open_ and open_[tp].told(side) < open_[tp].stop]
        asked = {tp: open_[tp].told(side) for tp in order if open_[tp].ahead(side) < AHEAD}
        if not asked:
            return False
        pace = self._paces[side]
        await asyncio.sleep(pace.wait())
        answer = await self._clusters[side].fetch(
            asked,
            max_wait_ms=100 if idle else 0,
            max_bytes=pace.allowance(ANSWER_BYTES),
            partition_max_bytes=pace.allowance(max(LOG_BYTES, ANSWER_BYTES // len(asked))),
            isolation=COMMITTED,
        )
        served: set[TopicPartition] = set()
        nothing = idle and not any(len(part.records) for part in answer.values())  # so no log was left out for size
        for tp, part in answer.items():
            pace.charge(len(part.records))
            if part.error_code == OFFSET_OUT_OF_RANGE:
                moved.add(tp)
            elif part.error_code:
                raise broker_error(part.error_code, tp)
            elif _collect(open_[tp], side, part):
                served.add(tp)
            elif nothing and part.last_stable_offset >= open_[tp].stop:
                open_[tp].reach(side, open_[tp].stop)  # compaction has left nothing there, to the very end
                open_[tp].compare()
        # Those that got their share go to the end: the broker fills an answer in the order of the request.
        order.sort(key=served.__contains__)
        return bool(served)


def _collect(into: Batches, side: int, part: FetchedPartition) -> bool:
    """Take over whole batches; True when there were any. Changes them in place."""
    if len(part.records) < HEADER_BYTES:
        return False
    aborted = sorted(part.aborted, key=lambda each: each[1])
    dead: set[int] = set()
    before = into.told(side)
    for start, stop, header in split(part.records):
        while aborted and aborted[0][1] < header.next_offset:
            dead.add(aborted.pop(0)[0])
        if header.is_control:
            dead.discard(header.producer_id)
        void = header.is_transactional and header.producer_id in dead
        crc = 0 if void or header.is_control else canonical_crc(part.records[start:stop], header)
        into.add(side, Batch.of(header, crc, aborted=void))
    into.compare()
    return into.told(side) > before
