"""The feeds' logs in Kafka: create, measure, read back and append to many feeds at once, over one connection.

``appending`` and ``reading`` return functions for ``DataFrame.mapInArrow``, which run in tasks on Spark's executors.
Their arguments, with Kafka's password, travel there in memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from fairlead.kafka.admin import LOG_DEFAULTS, create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange, extents, read_log, sweep
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import Conflict, ConnectionLost, RequestTimeout
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP
from shore.errors import FeedMovedError, site_unreachable
from shore.feeds.records import feed_topic, given_rows, named_by, new_record, opening, slices
from shore.tables.feeds import CUSTOMER_FEED, FEEDS

CLIENT_ID: Final = "fairlead-feeds"
GIVEN: Final = pa.schema([*FEEDS.plain_schema, *(CUSTOMER_FEED.plain_schema.field(name) for name in ("kind", "value"))])
"""Rows of table ``feeds``, with ``kind`` and ``value`` for customers with a table of their own."""

Batches = Iterator[pa.RecordBatch]


def create_feeds(endpoint: KafkaEndpoint, customers: Collection[str]) -> None:
    """Create the feeds' logs that do not exist yet, and write the opening marker to each empty one."""

    async def create() -> None:
        topics = {feed_topic(customer): customer for customer in customers}
        async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
            missing = set(topics) - set(await cluster.topics(list(topics), refresh=True))
            if missing:
                await asyncio.to_thread(create_logs, endpoint, dict.fromkeys(sorted(missing), LOG_DEFAULTS))
                await cluster.wait_writable(sorted(missing))
            appender = Appender(cluster)
            try:
                positions = await appender.positions([TP(topic) for topic in topics])
                empty = [log for log, position in positions.items() if position is None]
                markers = {log: opening(log.topic, endpoint.site, key=topics[log.topic].encode()) for log in empty}
                await _all_of(*(appender.ensure_open(log, marker) for log, marker in markers.items()))
            finally:
                await appender.close()

    run_at(endpoint, create())


def feed_extents(endpoint: KafkaEndpoint, customers: Collection[str]) -> dict[str, OffsetRange]:
    """Return the range of offsets that each feed has now, by one request for all ends and one for all starts."""

    async def ask() -> dict[str, OffsetRange]:
        async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
            found = await extents(cluster, [TP(feed_topic(customer)) for customer in customers])
        return {customer: found[TP(feed_topic(customer))] for customer in customers}

    return run_at(endpoint, ask()) if customers else {}


def appending(
    endpoint: KafkaEndpoint, ends: Mapping[str, int], with_values: Collection[str]
) -> Callable[[Batches], Batches]:
    """Return a function that appends rows of ``DUE`` to feeds and yields the resulting rows of ``GIVEN``.

    All rows of a customer must be in one task, in the order of its feed. The task may run again: it finds the records
    of an earlier attempt after the expected end of the feed, and yields the same rows.

    Args:
        ends: Where each feed ends, as far as the driver knows.
        with_values: Customers whose rows need ``kind`` and ``value``.

    The function raises:
        FeedMovedError: another process appends to a feed.
        SiteUnreachableError: Kafka does not answer.
    """

    def append(batches: Batches) -> Batches:
        with asyncio.Runner() as runner:
            feeds: _Feeds | None = None
            try:
                for batch in batches:
                    if batch.num_rows:
                        feeds = feeds or wait_for(runner, endpoint, _Feeds.open(endpoint, ends))
                        records = wait_for(runner, endpoint, feeds.append(batch.to_pylist()))
                        yield from given_rows(records, GIVEN, with_values).to_batches()
                if feeds is not None:
                    feeds.check_done()
            finally:
                if feeds is not None:
                    runner.run(feeds.close())

    return append


def reading(endpoint: KafkaEndpoint, with_values: Collection[str]) -> Callable[[Batches], Batches]:
    """Return a function that reads feeds back: it takes rows ``customer``, ``start``, ``stop`` (offsets of the feed)
    and yields rows of ``GIVEN`` for the data records between them."""

    async def piece(customers: Mapping[TP, str], found: Any) -> list[tuple[str, Record]] | None:
        try:
            log, records = await anext(found)
        except StopAsyncIteration:
            return None
        return [(customers[log], record) for record in records if is_data(record)]

    def read(batches: Batches) -> Batches:
        with asyncio.Runner() as runner:
            for batch in batches:
                rows = batch.to_pylist()
                customers = {TP(feed_topic(row["customer"])): row["customer"] for row in rows}
                wanted = {TP(feed_topic(row["customer"])): OffsetRange(row["start"], row["stop"]) for row in rows}
                cluster = wait_for(runner, endpoint, Cluster.open(endpoint, client_id=CLIENT_ID))
                try:
                    found = sweep(cluster, wanted)
                    while (records := wait_for(runner, endpoint, piece(customers, found))) is not None:
                        yield from given_rows(records, GIVEN, with_values).to_batches()
                finally:
                    runner.run(cluster.close())

    return read


@dataclass(slots=True)
class _Feed:
    """One feed in a task: its end, and the records of an earlier attempt that this attempt has not come to yet."""

    log: TP
    end: int
    appended: deque[Record] = field(default_factory=deque)


class _Feeds:
    """The feeds of one task."""

    def __init__(self, cluster: Cluster, ends: Mapping[str, int]) -> None:
        self._cluster, self._ends = cluster, ends
        self._appender = Appender(cluster)
        self._feeds: dict[str, _Feed] = {}

    @classmethod
    async def open(cls, endpoint: KafkaEndpoint, ends: Mapping[str, int]) -> _Feeds:
        return cls(await Cluster.open(endpoint, client_id=CLIENT_ID), ends)

    async def close(self) -> None:
        await self._appender.close()
        await self._cluster.close()

    async def append(self, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Record]]:
        """Append rows to their feeds, all feeds at once. Return the stored records."""
        new: dict[str, list[NewRecord]] = {}
        for row in rows:
            new.setdefault(row["customer"], []).append(new_record(row))
        await self._look_at([customer for customer in new if customer not in self._feeds])
        found = await _all_of(*(self._append(self._feeds[customer], records) for customer, records in new.items()))
        return [(customer, record) for customer, records in zip(new, found, strict=True) for record in records]

    def check_done(self) -> None:
        """Raise ``FeedMovedError`` where a feed has records after its expected end that are not from this task."""
        for feed in self._feeds.values():
            if feed.appended:
                raise moved(feed.log, feed.appended[0].offset)

    async def _look_at(self, customers: Sequence[str]) -> None:
        """Compare the ends of feeds with the expected ends, and read the records beyond."""
        logs = {customer: TP(feed_topic(customer)) for customer in customers}
        positions = await self._appender.positions(list(logs.values()))

        async def look(customer: str, log: TP) -> None:
            position, expected = positions[log], self._ends[customer]
            end = position.end if position is not None else 0
            if end < expected:
                raise moved(log, expected)
            feed = self._feeds[customer] = _Feed(log, end)
            if end > expected:
                feed.appended.extend([r async for r in read_log(self._cluster, log, expected, end) if is_data(r)])

        await _all_of(*(look(customer, log) for customer, log in logs.items()))

    async def _append(self, feed: _Feed, records: Sequence[NewRecord]) -> list[Record]:
        stored: list[Record] = []
        for record in records[: len(feed.appended)]:
            there = feed.appended.popleft()
            if (there.key, named_by(there)) != (record.key, named_by(record)):
                raise moved(feed.log, there.offset)
            stored.append(there)
        for part in slices(records[len(stored) :]):
            position = await self._appender.position(feed.log)
            if position is None or position.end != feed.end:
                raise moved(feed.log, feed.end)
            try:
                done = await self._appender.append(feed.log, part)
            except Conflict as error:
                raise moved(feed.log, feed.end) from error
            feed.end = done.base_offset + done.count
            stored += [
                Record(offset, record.timestamp_ms, record.key, record.value, record.headers)
                for offset, record in enumerate(part, start=done.base_offset)
            ]
        return stored


def moved(log: TP, end: int) -> FeedMovedError:
    """Return the error for a feed that does not end at the expected offset."""
    return FeedMovedError(
        f"log {log} does not end at {end}, where shore was about to append: another process writes this feed",
        hint="let only one 'fairlead shore run' write a topology's feeds; the next run goes on",
        log=str(log),
    )


async def _all_of(*work: Any) -> list[Any]:
    """Return all results. Raise an error only when all have ended, so that nothing goes on in the background."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found


def wait_for(runner: asyncio.Runner, endpoint: KafkaEndpoint, work: Any) -> Any:
    """Return the result of a coroutine that asks a site.

    Raises:
        SiteUnreachableError: the site does not answer.
    """
    try:
        return runner.run(work)
    except (ConnectionLost, RequestTimeout) as error:
        raise site_unreachable(endpoint, error) from error


def run_at(endpoint: KafkaEndpoint, work: Any) -> Any:
    """Call ``wait_for`` with an event loop of its own."""
    with asyncio.Runner() as runner:
        return wait_for(runner, endpoint, work)
