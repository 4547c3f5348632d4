"""Run every check of the catalogue, three at a time.

Most of a check of a small table is Spark's planning, which uses one core; some of it waits for logs and files. Three at
once keep two cores busy.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Literal

from pyspark.sql import SparkSession

from fairlead.errors import first_line
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.datasource import register
from shore.delta.lake import Lake
from shore.delta.table_errors import READ_ERRORS, check_tables, damaged_tables, rebuild_hint, repair_hint
from shore.feeds.readers import customers_tables, kept_tables, logs_here
from shore.jobs.query import SPARK_ERRORS, raise_cause
from shore.paths import CUSTOMERS, TablePaths
from shore.storage import open_paths
from shore.tables import TABLES
from shore.tables.graph import BY_NAME, Derived
from shore.verify.catalogue import DERIVED, FEEDS_FOLLOW_FROM, FROM_LOGS, REFERENCE, FromLogs, sources_of
from shore.verify.compare import TableCheck, Verification
from shore.verify.derived import check_derived, check_reference
from shore.verify.feeds import check_customer, check_feeds
from shore.verify.logs import check_logs
from topologies.model import Topology

Tell = Callable[[str], None]
_AT_ONCE: Final = 3


def verify(
    spark: SparkSession,
    topology: Topology,
    endpoint: KafkaEndpoint,
    folder: Path,
    tables: Collection[str] | None = None,
    *,
    tell: Tell = lambda what: None,
) -> Verification:
    """Prove that tables equal logs. Write nothing; shore may run meanwhile.

    A table that differs is reported only where the tables that it is made from are right; else those are reported, and
    it is not compared. A table that cannot be read (somebody changed or deleted its files) counts as differing; tables
    made from it are not compared, the others are.

    Args:
        spark: A session; source ``fairlead`` is registered in it for this endpoint.
        endpoint: Kafka of the site where shore runs.
        folder: The topology's state folder.
        tables: Only the checks that cover these tables; all when None.
        tell: Called with what is being compared.

    Raises:
        UnknownNameError: there is no such table.
        CheckpointDamagedError: it is not known how far a job has read.
        ConnectionLost, RequestTimeout, UnavailableError: Kafka does not answer.
    """
    check_tables(tables or (), kept_tables(topology))
    paths = open_paths(topology.shore, folder)
    began = time.monotonic()
    register(spark, endpoint)
    with _pool(spark) as pool:
        verifier = _Verifier(Lake(spark, paths), topology, endpoint, tell, pool)
        checks = tuple(verifier.checks(frozenset(tables) if tables else None))
    return Verification(tables=checks, seconds=round(time.monotonic() - began, 1))


@contextlib.contextmanager
def _pool(spark: SparkSession) -> Iterator[ThreadPoolExecutor]:
    """Yield the threads of the checks. An error, or Ctrl-C, ends the checks that run."""
    pool = ThreadPoolExecutor(_AT_ONCE, "verify")
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        spark.sparkContext.cancelAllJobs()
        raise
    finally:
        pool.shutdown()


class _Verifier:
    """The checks of one run. Each check of a table is made once."""

    def __init__(
        self, lake: Lake, topology: Topology, endpoint: KafkaEndpoint, tell: Tell, pool: ThreadPoolExecutor
    ) -> None:
        self._lake, self._topology, self._endpoint, self._tell = lake, topology, endpoint, tell
        self._small = lake.of_small_tables()
        self._paths = lake.paths
        self._pool = pool
        self._started: dict[str, Future[TableCheck]] = {}

    def checks(self, wanted: frozenset[str] | None) -> Iterator[TableCheck]:
        logs = [each for each in FROM_LOGS if wanted is None or not wanted.isdisjoint(each.tables)]
        reference = [name for name in REFERENCE if wanted is None or name in wanted]
        derived = [each for each in DERIVED if wanted is None or each.table.name in wanted]
        started = [*map(self._of_logs, logs), *map(self._reference, reference)]
        for each in derived:
            self._derived(each)
        yield from (check.result() for check in started)
        yield from map(self._judged, derived)
        readers = logs_here(self._topology)
        if readers and (wanted is None or "feeds" in wanted):
            self._tell("comparing feeds with the customers' feeds")
            wrong = partial(self._wrong, FEEDS_FOLLOW_FROM)
            feeds = partial(check_feeds, readers, self._endpoint, self._lake, wrong, small=self._small)
            yield _read(self._paths, "feeds", "logs", ("feeds",), tuple(TABLES), feeds)
        for name in customers_tables(self._topology):
            if wanted is None or not wanted.isdisjoint(("feeds", name)):
                self._tell(f"comparing {name} with the feed")
                feed = partial(check_customer, self._endpoint, self._paths, name.removeprefix(CUSTOMERS))
                yield _read(self._paths, name, "logs", (), (), feed, rebuild_hint(self._paths, name))

    def _of_logs(self, entry: FromLogs) -> Future[TableCheck]:
        check = partial(check_logs, entry, self._lake, self._topology, self._endpoint, small=self._small)
        return self._start(
            entry.name, "the logs", partial(_read, self._paths, entry.name, "logs", entry.tables, (), check)
        )

    def _reference(self, table: str) -> Future[TableCheck]:
        check = partial(check_reference, table, self._small, self._topology)
        return self._start(table, "the topology", partial(_read, self._paths, table, "derived", (table,), (), check))

    def _derived(self, derived: Derived) -> Future[TableCheck]:
        name, inputs = derived.table.name, derived.inputs
        check = partial(check_derived, derived, self._lake, self._topology, small=self._small)
        what = f"what {' and '.join(inputs)} give"
        return self._start(name, what, partial(_read, self._paths, name, "derived", (name,), inputs, check))

    def _start(self, name: str, other: str, check: Callable[[], TableCheck]) -> Future[TableCheck]:
        """Start a check, unless it was started before. ``other`` is what the table is compared with."""

        def run() -> TableCheck:
            self._tell(f"comparing {name} with {other}")
            return check()

        if name not in self._started:
            self._started[name] = self._pool.submit(run)
        return self._started[name]

    def _judged(self, derived: Derived) -> TableCheck:
        """Return a derived table's check; do not accuse the table where its inputs are wrong."""
        found = self._derived(derived).result()
        if found.differing and (wrong := self._wrong(derived.inputs)):
            return _not_accused(found, wrong)
        return found

    def _wrong(self, tables: Collection[str]) -> tuple[str, ...]:
        """Those of these tables, and of those that they follow from, that are wrong themselves."""
        return tuple(name for name in sources_of(tables) if self._is_wrong(name))

    def _is_wrong(self, table: str) -> bool:
        for entry in FROM_LOGS:
            if table in entry.tables:  # several tables may hold logs together
                check = self._of_logs(entry).result()
                told = {each.table for each in check.differences}
                return check.same is False and (not told or table in told)
        if table in REFERENCE:
            return self._reference(table).result().same is False
        derived = BY_NAME.get(table)
        return derived is not None and self._judged(derived).same is False


def _not_accused(found: TableCheck, wrong: Sequence[str]) -> TableCheck:
    """A table that differs from what wrong tables give may be right. It is compared once they are repaired."""
    note = (
        f"{found.differing:,} rows are not what the tables that it is made from give now, but {', '.join(wrong)} "
        f"{'differs' if len(wrong) == 1 else 'differ'} themselves: put that right first, then verify again"
    )
    return TableCheck(table=found.table, kind=found.kind, same=None, behind=found.behind, notes=(note,))


def _read(
    paths: TablePaths,
    name: str,
    kind: Literal["logs", "derived"],
    own: tuple[str, ...],
    inputs: tuple[str, ...],
    check: Callable[[], TableCheck],
    todo: str = "",
) -> TableCheck:
    """Run one check. ``todo`` is the advice when something unreadable is not a table of shore's own."""
    try:
        return check()
    except (*READ_ERRORS, *SPARK_ERRORS) as error:
        bad = damaged_tables(paths, dict.fromkeys((*own, *inputs)))
        notes = [
            f"table {each} cannot be read: {bad[each]}; {rebuild_hint(paths, each)}" for each in own if each in bad
        ]
        if bad and not notes:
            note = f"it is made from {', '.join(bad)}, which cannot be read"
            return TableCheck(table=name, kind=kind, same=None, notes=(note,))
        if not bad:
            raise_cause(error)
            why = first_line(error)
            todo = repair_hint(why) or todo or rebuild_hint(paths, own[0])
            notes = [f"it, or a table that it is made from, cannot be read: {why}; {todo}"]
        return TableCheck(table=name, kind=kind, same=False, unreadable=True, notes=tuple(notes))
