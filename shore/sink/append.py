"""Appending a batch to its logs: look at what is there of it, append what is missing. Runs on the driver.

Every record that the sink appends has the header ``sink``: ``<app>@<batch>#<index>``, where ``index`` counts the
records of that batch in that log. Spark begins batch n + 1 of a query only when batch n was committed, so the last
record of an app in a log tells everything: of an earlier batch, nothing of this one is there; of this batch, those from
index 0 to it are. They are found again by their content, not by their place, since the rows of a repeated batch come in
another order where a shuffle is in the query.

Each append is a compare-and-swap on the log's end as it was when the log was looked at
(``fairlead.kafka.client.appender``): a second driver that still lives, or another writer, makes it fail, and nothing is
appended twice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from fairlead.errors import UnknownNameError
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.protocol.errors import BrokerError, Conflict
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP, LogPosition
from fairlead.records import headers as names
from fairlead.records.custody import Marker
from shore.errors import ChangedBatchError, LogMovedError, NotHeldError, StaleBatchError
from shore.feeds.records import opening, slices


class Stamp(NamedTuple):
    """The header ``sink`` in its parts."""

    app: str
    batch: int
    index: int  # type: ignore[assignment]  # a field shadows tuple.index on purpose

    def encode(self) -> bytes:
        return f"{self.app}@{self.batch}#{self.index}".encode()


def stamp_of(record: Record | NewRecord) -> Stamp | None:
    """Which record of which batch this is; None when no sink wrote it."""
    found = dict(record.headers).get(names.SINK)
    if found is None:
        return None
    app, _, rest = found.decode("utf-8", "replace").rpartition("@")
    batch, hash_, index = rest.partition("#")
    return Stamp(app, int(batch), int(index)) if app and hash_ and batch.isdecimal() and index.isdecimal() else None


def record_digest(record: Record | NewRecord, *, timed: bool) -> bytes:
    """What two records have in common that stand for the same row. Without ``timed`` their times may differ."""
    parts: list[bytes | None] = [b"%d" % record.timestamp_ms if timed else None, record.key, record.value]
    for name, value in record.headers:
        if name != names.SINK:
            parts += (name.encode(), value)
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(b"-" if part is None else b"%d:" % len(part) + part)
    return found.digest()


@dataclass(slots=True)
class Found:
    """What a log has of one batch, gathered from its end backwards.

    Args:
        last: Index of the batch's last record in the log; None until one of the app's records was met.
        records: The batch's records that were met, by index.
    """

    log: str
    app: str
    batch: int
    last: int | None = None
    records: dict[int, Record] = field(default_factory=dict)
    complete: bool = False

    def collect(self, records: Iterable[Record]) -> bool:
        """Take over a piece of the log, which ends where the piece before began.

        Returns:
            Whether nothing before it can be of interest.

        Raises:
            StaleBatchError: the log has a later batch of this app.
        """
        for record in reversed(list(records)):
            stamp = stamp_of(record)
            if stamp is None or stamp.app != self.app:
                continue
            if stamp.batch > self.batch:
                raise StaleBatchError(
                    f"log {self.log} already has batch {stamp.batch} of app {self.app!r}, and now comes batch "
                    f"{self.batch}: the query has a new checkpoint, or runs twice",
                    hint="let a query with a new checkpoint have another name in option 'app'; its rows are appended "
                    "from the beginning then",
                    log=self.log,
                    batch=self.batch,
                )
            if stamp.batch == self.batch:
                self.last = stamp.index if self.last is None else self.last
                self.records[stamp.index] = record
            self.complete = stamp.batch < self.batch or stamp.index == 0
            if self.complete:
                return True
        return False


def missing_records(rows: Sequence[NewRecord], found: Found, *, timed: bool) -> list[NewRecord]:
    """The records of a batch that a log does not have yet, in the order of the rows, with their headers.

    Raises:
        ChangedBatchError: the log has records of this batch that are not among the rows.
    """
    there = Counter(record_digest(record, timed=timed) for record in found.records.values())
    count = 0 if found.last is None else found.last + 1
    left: list[NewRecord] = []
    for row in rows:
        key = record_digest(row, timed=timed)
        if there[key]:
            there[key] -= 1
        else:
            left.append(row)
    strange = there.total()
    if strange or len(found.records) < count:
        raise ChangedBatchError(
            f"log {found.log} has {count} records of batch {found.batch} of app {found.app!r}, of which "
            f"{strange + count - len(found.records)} are not among the batch's rows: the query gave other rows when "
            "the batch was repeated",
            hint="leave out of the rows what differs from try to try (the present time, random numbers); then start "
            "with a new checkpoint and another name in option 'app'",
            log=found.log,
            batch=found.batch,
        )
    return [
        NewRecord(
            row.value,
            row.key,
            (*row.headers, (names.SINK, Stamp(found.app, found.batch, index).encode())),
            timestamp_ms=row.timestamp_ms,
        )
        for index, row in enumerate(left, start=count)
    ]


FIRST_LOOK = 1_000  # offsets; each look further back is four times as far
LONGEST_LOOK = 64_000
_AT_ONCE = 16  # logs looked at side by side

Appended = Callable[[str, int], None]
"""Called after each append with the log and the number of records; for tests that break off there."""


async def append_batch(
    cluster: Cluster,
    rows: Mapping[str, Sequence[NewRecord]],
    *,
    app: str,
    batch: int,
    timed: bool,
    create: bool = False,
    appended: Appended = lambda log, count: None,
) -> int:
    """Append to each log what it does not have yet of a batch.

    Args:
        rows: The whole batch by log, also when it is repeated.
        timed: Whether the rows' times are the query's own; otherwise they may differ when the batch is repeated.
        create: Make logs that are not there.

    Returns:
        How many records were appended now.

    Raises:
        UnknownNameError: a log is not there. NotHeldError: a log is held by another site.
        StaleBatchError, ChangedBatchError: see ``shore.sink.append``. LogMovedError: somebody else appended meanwhile.
        BrokerError: the user may not, for example.
    """
    await _ensure_logs(cluster, list(rows), create=create)
    starts = await cluster.start_offsets([TP(log) for log in rows]) if rows else {}
    appender = Appender(cluster)
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(log: str) -> int:
        async with gate:
            position = await appender.ensure_open(TP(log), opening(log, cluster.endpoint.site))
            await _check_held(cluster, log, position)
            found = Found(log, app, batch)
            await _look_back(cluster, found, starts[TP(log)], position.end)
            left = missing_records(rows[log], found, timed=timed)
            await _append(appender, log, position, left, appended)
            return len(left)

    try:
        # All end before one's error is raised: nothing goes on in the background of a failed batch.
        counts = await asyncio.gather(*(one(log) for log in rows), return_exceptions=True)
    finally:
        await appender.close()
    for count in counts:
        if isinstance(count, BaseException):
            raise count
    return sum(count for count in counts if isinstance(count, int))


async def _ensure_logs(cluster: Cluster, logs: Collection[str], *, create: bool) -> None:
    known = await cluster.topics(logs, refresh=True)
    absent = sorted(set(logs) - set(known))
    if absent and not create:
        raise UnknownNameError("log", absent[0], await cluster.topics(None))
    if absent:
        await asyncio.to_thread(create_logs, cluster.endpoint, {log: {} for log in absent})
        await cluster.wait_writable(absent)
    for log, info in known.items():
        if len(info.partitions) != 1:
            raise NotHeldError(
                f"topic {log} has {len(info.partitions)} partitions; a log of Fairlead has one",
                hint="write it by another sink",
                log=log,
            )


async def _check_held(cluster: Cluster, log: str, position: LogPosition) -> None:
    """The marker of the log's term names its holder."""
    site = cluster.endpoint.site
    if not position.term:
        raise NotHeldError(
            f"the last records of log {log} were written by an ordinary client, outside of any term",
            hint="let the sink write logs that nobody else writes",
            log=log,
        )
    try:
        found = [record async for record in read_log(cluster, TP(log), position.marker, position.marker + 1)]
        holder = msgspec.json.decode(found[0].value or b"", type=Marker).to_site if found else site
    except (BrokerError, msgspec.DecodeError):
        return  # gone by retention, or not written by a bridge: then Kafka's own permissions decide
    if holder != site:
        raise NotHeldError(
            f"log {log} is held by site {holder or '(none)'} in term {position.term}, and the sink writes at {site}",
            hint="only the holder may append to a log; 'fairlead custody show' tells who that is",
            log=log,
            holder=holder,
        )


async def _look_back(cluster: Cluster, found: Found, start: int | BrokerError, end: int) -> None:
    log = TP(found.log)
    if isinstance(start, BrokerError):
        raise start
    span = FIRST_LOOK
    while end > start:
        begin = max(start, end - span)
        if found.collect([record async for record in read_log(cluster, log, begin, end)]):
            return
        end, span = begin, min(4 * span, LONGEST_LOOK)


async def _append(
    appender: Appender, log: str, position: LogPosition, records: Sequence[NewRecord], appended: Appended
) -> None:
    end = position.end
    for part in slices(records):
        now = await appender.position(TP(log))
        if now is None or now.end != end:
            raise _moved(log, end)
        try:
            done = await appender.append(TP(log), part, term=position.term)
        except Conflict as error:
            raise _moved(log, end) from error
        end = done.base_offset + done.count
        appended(log, done.count)


def _moved(log: str, end: int) -> LogMovedError:
    return LogMovedError(
        f"log {log} does not end at {end} any more, where the sink was about to append: somebody else writes it",
        hint="let one query at a time write a log; started again, this one goes on where it was",
        log=log,
        end=end,
    )
