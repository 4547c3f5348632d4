"""Appending a batch to its logs: look at what is there of it, append what is missing. Runs on the driver.

Each append is a compare-and-swap on the log's end as it was when the log was looked at
(``fairlead.kafka.client.appender``): a second driver that still lives, or another writer, makes it fail, and nothing is
appended twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from fairlead.errors import UnknownNameError
from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.protocol.errors import BrokerError, Conflict
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP, LogPosition
from fairlead.records.custody import Marker
from shore.feeds.records import opening, slices
from shore.sink.errors import LogMovedError, NotHeldError
from shore.sink.resume import Found, missing

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
        StaleBatchError, ChangedBatchError: see ``shore.sink.resume``. LogMovedError: somebody else appended meanwhile.
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
            left = missing(rows[log], found, timed=timed)
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
        if found.look([record async for record in read_log(cluster, log, begin, end)]):
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
