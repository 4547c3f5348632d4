"""Carries out the actions of the custody protocol on Kafka. ``edge.custody.protocol`` makes every decision."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from edge.custody.drain import run_procedure
from edge.custody.protocol import (
    Action,
    AdoptTerm,
    AppendEntry,
    AppendEvent,
    AppendMarker,
    CopyStrays,
    CreateLog,
    CustodyProtocol,
    FindStaleTail,
    FindStrays,
    ForgetLog,
    GiveUpLog,
    KeepTail,
    KeptTail,
    PrepareLog,
    ReadLedgers,
    ReadMarker,
    ReadPosition,
    RememberLogs,
    Steps,
    StoredMarker,
    StoreStrays,
)
from edge.custody.receiver import Receiver
from edge.errors import LogNotCreatedError
from edge.logwriter import records
from edge.logwriter.retry import FIRST_DELAY, retry_transient
from edge.logwriter.tail_reader import Batcher
from edge.logwriter.writer import LogEntry
from edge.site_kafka import SiteKafka
from edge.strays.store import fits
from edge.writer_registry import WriterRegistry, ledger_key
from fairlead.custody.superseded import stale_copies
from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import batches_of
from fairlead.kafka.convention import is_marker, time_ms
from fairlead.kafka.protocol.errors import (
    OFFSET_OUT_OF_RANGE,
    BrokerError,
    CorruptBatch,
    UnreadableRecords,
    WireError,
    broker_error,
)
from fairlead.kafka.protocol.record import NewRecord, Record, decode_batch
from fairlead.kafka.protocol.types import TP, FetchedPartition, LogPosition
from fairlead.records import UNREADABLE, decoder, headers
from fairlead.records.custody import Marker

log = logging.getLogger(__name__)

T = TypeVar("T")

_LEDGERS: Final = "ledgers"  # the only key: all callers share one read of all ledgers
_SOON: Final = 2.0  # seconds for which a log that is not served may hold up the other markers
_CREATE_FIRST, _CREATE_LATEST = 1.0, 30.0  # seconds between attempts to create a log

_marker = decoder(Marker)


@dataclass(frozen=True, slots=True)
class Uncreated:
    """A log that could not be created.

    Args:
        since_ms: Wall time of the first failure.
        error: The newest failure.
        again_at: When to try again (monotonic clock, seconds).
        delay: Seconds between the last attempt and the next.
    """

    since_ms: int
    error: FairleadError
    again_at: float
    delay: float


class TermWriter:
    """Runs the protocol's procedures for one site. Procedures that append must run as a barrier of their log's writer.

    Args:
        receiver: Reads the ledgers to their ends for ``ReadLedgers``.
    """

    def __init__(
        self,
        protocol: CustodyProtocol,
        kafka: SiteKafka,
        writers: WriterRegistry,
        receiver: Receiver,
    ) -> None:
        self.protocol = protocol
        self._kafka = kafka
        self._writers = writers
        self._receiver = receiver
        self._markers = Markers(kafka.cluster)
        self._creating: Batcher[str, FairleadError | None] = Batcher(self._create_many, moment=0.05)
        self.uncreated: dict[str, Uncreated] = {}  # logs whose last attempt at creation failed
        self._reading: Batcher[str, None] = Batcher(self._read_all)
        self._renewing: Batcher[TP, LogPosition | FairleadError | None] = Batcher(kafka.appender.renew_all)

    async def close(self) -> None:
        await self._reading.close()
        await self._renewing.close()
        await self._creating.close()
        await self._markers.close()

    async def run(self, steps: Steps[T], *, append_event: Callable[[], Awaitable[object]] | None = None) -> T:
        """Run a procedure: carry out each of its actions, send it the outcome or the error, and return its result.

        Args:
            append_event: Carries out ``AppendEvent``, for procedures that have this action.
        """
        return await run_procedure(steps, partial(self._carry_out, append_event=append_event))

    async def _carry_out(self, action: Action, *, append_event: Callable[[], Awaitable[object]] | None) -> Any:
        match action:
            case CreateLog(log):
                return await self._make_log(log)
            case ReadLedgers():
                return await self._reading.ask(_LEDGERS)
            case ReadPosition(log, anew):
                return await (self._position_anew(log) if anew else self._kafka.appender.position(TP(log)))
            case AdoptTerm(log, term):
                return await self._kafka.appender.adopt(TP(log), term=term)
            case AppendMarker(marker, expected_end, hold):
                record = records.marker(marker)
                appended = await self._kafka.appender.open_term(
                    TP(marker.log), marker.term, record, expected_end=expected_end, hold=hold
                )
                return appended.base_offset
            case ReadMarker(log, offset, stored=True):
                batch = await self._markers.batch(log, offset)
                return StoredMarker(decode_marker(batch), batch)
            case ReadMarker(log, offset):
                found = await self._markers.find(log, offset)
                return StoredMarker(decode_marker(found), found) if found is not None else None
            case AppendEntry(entry):
                return await self._writers.ledger.append(records.ledger(entry), ledger_key(entry))
            case AppendEvent(event):
                if append_event is None:
                    raise TypeError(f"nothing appends event {event.event_id}")
                return await append_event()
            case PrepareLog(log):
                return await self._writers.box(log).prepare()
            case ForgetLog(log, empty):
                return self._writers.box(log).opened() if empty else self._writers.box(log).unload()
            case GiveUpLog(log, error):
                return self._writers.box(log).lose(error)
            case FindStaleTail(log):
                stale = (await stale_copies(self._kafka.cluster, self.protocol.view, [log])).get(log)
                if isinstance(stale, CorruptBatch):
                    raise stale
                return stale
            case KeepTail(log, start, end):
                return await self._keep_tail(log, start, end)
            case StoreStrays() | RememberLogs() | CopyStrays() | FindStrays():
                raise TypeError(f"{type(action).__name__} is an action of draining, see edge.custody.drain")

    async def _position_anew(self, log: str) -> LogPosition | None:
        """Look at the end of a log; looks at the same time share requests."""
        found = await self._renewing.ask(TP(log))
        if isinstance(found, FairleadError):
            raise found
        return found

    async def _keep_tail(self, topic: str, start: int, end: int) -> KeptTail:
        kept, strays = 0, self._writers.strays
        async for record in self._kafka.tails.records(topic, start, end):
            identity = records.identity_of(record)
            if identity is not None and not fits(record.value or b"", record):
                log.error("%s@%d is not kept as a stray: no bridge writes so large a reading", topic, record.offset)
            elif identity is not None:
                strays.keep_reading(topic, LogEntry(_as_it_came(record), identity))
                kept += 1
        await strays.writer.flush()
        return KeptTail(kept, strays.log, strays.index.end)

    async def _read_all(self, asked: list[str]) -> Mapping[str, None]:
        await retry_transient(
            self._receiver.read_to_ends, f"{self.protocol.site}: reading the ledgers before a log is opened"
        )
        return dict.fromkeys(asked)

    async def _make_log(self, log: str) -> None:
        """Create a log. After a failure, the pause before the next attempt doubles, from 1 to 30 seconds.

        Raises:
            LogNotCreatedError: creation failed, or the pause after the last failure has not ended.
        """
        before = self.uncreated.get(log)
        if before is None or before.again_at <= time.monotonic():
            trouble = await self._creating.ask(log)
            if trouble is None:
                self.uncreated.pop(log, None)
                return
            delay = _CREATE_FIRST if before is None else min(2 * before.delay, _CREATE_LATEST)
            since_ms = before.since_ms if before is not None else time.time_ns() // 1_000_000
            before = self.uncreated[log] = Uncreated(since_ms, trouble, time.monotonic() + delay, delay)
        raise LogNotCreatedError(
            f"{self.protocol.site} cannot open {log}: {before.error.what}",
            hint=before.error.hint or "see the brokers' log files; the bridge retries until it succeeds",
            log=log,
        )

    async def _create_many(self, topics: list[str]) -> Mapping[str, FairleadError | None]:
        failures = await self._kafka.create(topics)
        return {topic: failures.get(topic) for topic in topics}


def _as_it_came(record: Record) -> NewRecord:
    """Return a reading's record without the headers that belong to its place in this copy: LATE and ORIGIN."""
    kept = tuple(each for each in record.headers if each[0] not in (headers.LATE, headers.ORIGIN))
    return NewRecord(record.value, record.key, kept, timestamp_ms=time_ms(record))


# -- stored markers

_Batch: TypeAlias = bytes | BrokerError | CorruptBatch | None
"""A stored batch, the error of its log, or None where no batch begins at the offset."""


class Markers:
    """Reads the stored batches of markers. Calls at the same time share requests.

    Reads a log that its broker does not serve apart from the others, so that they do not wait for it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._finder: Batcher[tuple[str, int], _Batch] = Batcher(partial(self._find, seconds=_SOON))
        self._unserved: Batcher[tuple[str, int], _Batch] = Batcher(self._find)

    async def batch(self, topic: str, offset: int) -> bytes:
        """Return the batch that begins at ``offset``, which must be stored; wait until it can be read."""
        finder = self._finder
        while not isinstance(found := await finder.ask((topic, offset)), bytes):
            if found is None:
                await asyncio.sleep(FIRST_DELAY)
            elif found.retriable:
                finder = self._unserved
            else:
                raise found
        return found

    async def find(self, topic: str, offset: int) -> bytes | None:
        """Return the batch that begins at ``offset``; None when no batch begins there (any more)."""
        found = await self._finder.ask((topic, offset))
        if isinstance(found, BrokerError) and found.retriable:
            found = await self._unserved.ask((topic, offset))
        if isinstance(found, BrokerError) and found.code == OFFSET_OUT_OF_RANGE:
            return None
        if isinstance(found, WireError):
            raise found
        return found

    async def close(self) -> None:
        await self._finder.close()
        await self._unserved.close()

    async def _find(
        self, wanted: list[tuple[str, int]], seconds: float | None = None
    ) -> Mapping[tuple[str, int], _Batch]:
        """Fetch the batches that begin at these offsets; None for those that do not exist, an error for its log."""
        once = dict(wanted)
        left = dict(once)
        found: dict[tuple[str, int], _Batch] = dict.fromkeys(wanted)

        async def fetch() -> dict[TP, FetchedPartition]:
            positions = {TP(topic): offset for topic, offset in left.items()}
            return await self._cluster.fetch(positions, max_wait_ms=0, partition_max_bytes=64 * 1024, seconds=seconds)

        while left:
            answers = await retry_transient(fetch, "reading markers")
            answered = {tp.topic for tp, part in answers.items() if part.error_code or len(part.records)}
            for topic in answered & left.keys():
                part, offset = answers[TP(topic)], left.pop(topic)
                if part.error_code:
                    found[topic, offset] = broker_error(part.error_code, TP(topic))
                try:
                    for view in batches_of(TP(topic), part):
                        if view.header.base_offset == offset:
                            found[topic, offset] = bytes(part.records[view.start : view.stop])
                            break
                except CorruptBatch as error:
                    found[topic, offset] = error
            if not answered:
                break  # a full answer leaves out logs, but never the first one: no other log has such a record
        twice = [pair for pair in wanted if once[pair[0]] != pair[1]]  # other offsets of the same logs
        return {**found, **await self._find(twice, seconds)} if twice else found


def decode_marker(batch: bytes) -> Marker | None:
    """Return the marker in a stored batch; None when the batch holds something else."""
    try:
        for record in decode_batch(batch):
            if is_marker(record) and record.value is not None:
                return _marker.decode(record.value)
    except (*UNREADABLE, UnreadableRecords):
        return None
    return None
