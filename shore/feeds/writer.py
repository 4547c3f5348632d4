"""The feed logs in Kafka, and table ``feeds``: read back what is there, append what is missing, never twice.

Runs on the driver; each call has an event loop and connections of its own, so that it can be used from the threads in
which Spark calls back.

Every commit to table ``feeds`` notes how many rows the table has of each customer. What a customer has is what this
table says, so a row that somebody took away would have its record given a second time; ``check_whole`` refuses that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads

from fairlead.kafka.admin import LOG_DEFAULTS, create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.kafka.protocol.types import TP
from shore.delta.datasets import open_dataset
from shore.delta.write import append_once, last_version
from shore.errors import FeedMovedError, SplitStateError
from shore.feeds.records import delivered, feed_topic, kept, opening, slices
from shore.paths import TablePaths


def rows_app(customer: str) -> str:
    """The name under which the table remembers how many rows it has of a customer."""
    return f"rows:{customer}"


def with_more(paths: TablePaths, customer: str, rows: int) -> dict[str, int]:
    """What the commit of so many more rows notes."""
    noted = last_version(paths.table("feeds"), rows_app(customer))
    before = noted if noted is not None else counted(paths).get(customer, 0)  # a table of an older version
    return {rows_app(customer): before + rows}


def check_whole(paths: TablePaths, customers: Collection[str]) -> None:
    """Do nothing where table ``feeds`` has of each customer the rows that were written.

    Raises:
        SplitStateError: it has not; records would be given to that customer a second time.
    """
    found = counted(paths)
    for customer in customers:
        noted = last_version(paths.table("feeds"), rows_app(customer))
        if noted is not None and found.get(customer, 0) != noted:
            raise SplitStateError(
                f"table feeds has {found.get(customer, 0):,} rows of customer {customer}, and {noted:,} were written: "
                "somebody else changed it, and going on could give records a second time",
                hint="fairlead shore rebuild feeds --yes reads it again from the feeds; then shore goes on",
                customer=customer,
            )


def counted(paths: TablePaths) -> dict[str, int]:
    """The rows of each customer in the table as it is now."""
    rows: pads.Dataset = open_dataset(paths, "feeds")
    with duckdb.connect(":memory:") as connection:
        connection.register("feeds", rows.scanner(columns=["customer"]).to_reader())
        found: pa.Table = connection.sql("select customer, count(*) as rows from feeds group by 1").to_arrow_table()
    return dict(zip(found["customer"].to_pylist(), found["rows"].to_pylist(), strict=True))


_CLIENT = "fairlead-feeds"
_ROWS_PER_COMMIT = 50_000


def create_feeds(endpoint: KafkaEndpoint, customers: Sequence[str]) -> None:
    """Make the feeds' logs that are not there yet, and open each with its marker."""

    async def make() -> None:
        async with await Cluster.open(endpoint, client_id=_CLIENT) as cluster:
            topics = [feed_topic(customer) for customer in customers]
            missing = set(topics) - set(await cluster.topics(topics, refresh=True))
            if missing:
                await asyncio.to_thread(create_logs, endpoint, dict.fromkeys(sorted(missing), LOG_DEFAULTS))
                await cluster.wait_writable(sorted(missing))
            appender = Appender(cluster)
            try:
                for customer in customers:
                    log = feed_topic(customer)
                    await appender.ensure_open(TP(log), opening(log, endpoint.site, key=customer.encode()))
            finally:
                await appender.close()

    asyncio.run(make())


def app_of(customer: str) -> str:
    """The name under which table ``feeds`` remembers how far a customer's feed has been read back."""
    return f"feed:{customer}"


def read_back(endpoint: KafkaEndpoint, paths: TablePaths, customer: str, *, table: bool = False) -> int:
    """Bring table ``feeds`` up to the end of a customer's feed; with ``table`` the customer's own table, too.

    Returns:
        The offset up to which (exclusive) the tables now know the feed.
    """
    rows, noted = partial(delivered, customer), partial(with_more, paths, customer)
    targets = [_Target(paths.table("feeds"), app_of(customer), rows, noted)]
    if table:
        targets.append(_Target(paths.customer(customer), app_of(customer), kept))

    def store(records: Sequence[Record], end: int) -> None:
        for target in targets:
            target.append(records, end)

    async def catch_up() -> int:
        known = min(target.known for target in targets)
        async with await Cluster.open(endpoint, client_id=_CLIENT) as cluster:
            pending: list[Record] = []
            async for record in read_log(cluster, TP(feed_topic(customer)), known):
                known = record.offset + 1
                if is_data(record):
                    pending.append(record)
                if len(pending) >= _ROWS_PER_COMMIT:
                    store(pending, known)
                    pending = []
            if pending:
                store(pending, known)
        return known

    return asyncio.run(catch_up())


class _Target:
    """A table that is filled from a feed; ``known`` is where it ends."""

    def __init__(
        self,
        location: str,
        app: str,
        rows: Callable[[Sequence[Record]], pa.Table],
        noted: Callable[[int], Mapping[str, int]] = lambda _rows: {},
    ) -> None:
        done = last_version(location, app)
        self.location, self.app, self.rows, self._noted = location, app, rows, noted
        self.known = 0 if done is None else done + 1

    def append(self, records: Sequence[Record], end: int) -> None:
        """Append what the table does not have of these records, which end before offset ``end``."""
        new = [record for record in records if record.offset >= self.known]
        if new:
            rows = self.rows(new)
            append_once(self.location, rows, app=self.app, version=end - 1, noted=self._noted(rows.num_rows))


def append(endpoint: KafkaEndpoint, customer: str, records: Sequence[NewRecord], *, expected_end: int) -> None:
    """Append records to a customer's feed, whose end must be ``expected_end``.

    Raises:
        FeedMovedError: the feed ends elsewhere: somebody else appended since it was read back.
    """

    async def write() -> None:
        log = TP(feed_topic(customer))
        async with await Cluster.open(endpoint, client_id=_CLIENT) as cluster:
            appender = Appender(cluster)
            try:
                end = expected_end
                for part in slices(records):
                    position = await appender.position(log)
                    if position is None or position.end != end:
                        raise FeedMovedError(
                            f"log {log} ends at {position.end if position else 0} and not at {end}, where shore was "
                            "about to append: another process writes this feed",
                            hint="let only one 'fairlead shore run' write a topology's feeds; the next run goes on",
                            log=str(log),
                        )
                    appended = await appender.append(log, part)
                    end = appended.base_offset + appended.count
            finally:
                await appender.close()

    asyncio.run(write())
