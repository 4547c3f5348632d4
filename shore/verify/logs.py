"""Compare log tables with the logs, by Spark: digests of each log over every column, then the rows that differ.

The source's batch reader reads and parses the expected rows again, up to where the job's checkpoint stands. For each
log, both sides are counted, and a 64-bit hash over all columns is summed up. A sum does not depend on order, and unlike
an exclusive or it changes when a row is there twice. Two different sets of rows have the same sum with a chance of 1 in
2^64, and their counts must also agree. That is enough against crashes, bugs and manual changes; whoever could forge it
could change the logs too. Only the logs that differ are compared row by row.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import OFFSET_OUT_OF_RANGE, BrokerError
from fairlead.kafka.protocol.types import TP
from shore.delta.lake import Lake
from shore.errors import DataLossError
from shore.jobs.checkpoint import Checkpoint, read_checkpoint
from shore.kept import Kept, is_gone, kept_of
from shore.paths import TablePaths
from shore.site import read_site
from shore.source.offsets import Positions, parse_partition_id, partition_id
from shore.source.operations import rows_of
from shore.source.options import LATEST
from shore.tables import TABLES
from shore.tables.operations import LogTable
from shore.verify.catalogue import FromLogs
from shore.verify.compare import DOUBLED, SHOWN, Difference, TableCheck, as_difference, first_rows, odd_rows
from topologies.model import Topology

CLIENT_ID: Final = "fairlead-verify"
KEY: Final = ("log", "log_offset")
TABLE: Final = "in_table"
"""The column that names the table of a row, where several tables are compared together."""
LOGS_SHOWN: Final = 5  # how many of the logs that differ are compared row by row
_ATTEMPTS: Final = 3  # retention may overtake the reading
_NAMED: Final = 100  # logs: at most so many are named in a filter, which lets Delta skip files
_LIMITS: Final = pa.schema([("log", pa.string()), ("start", pa.int64()), ("stop", pa.int64()), ("ahead", pa.int64())])


class Limits(NamedTuple):
    """The offsets of one log that are compared: from ``start`` to before ``stop``. The log no longer has any before
    ``start``. A batch may be under way between ``stop`` and ``ahead``; no row may be at ``ahead`` or beyond."""

    start: int
    stop: int
    ahead: int


class LogDigest(NamedTuple):
    """One log: its rows within the limits, the expected rows, the difference of their hash sums, and the rows before
    and beyond the limits."""

    rows: int
    expected: int
    apart: int
    before: int
    beyond: int

    @property
    def differs(self) -> bool:
        """Whether the comparable rows differ, or a row is beyond the limits."""
        return self.rows != self.expected or self.apart != 0 or self.beyond > 0


async def extents_of(
    cluster: Cluster, takes: Callable[[str], bool], known: Iterable[str]
) -> tuple[dict[str, OffsetRange], dict[str, str]]:
    """Return the offsets that the logs have now: of all logs that ``takes`` names or that are ``known``, if they exist.

    Returns:
        The extents, and the logs that could not be asked, with the reason.
    """
    topics = await cluster.topics(None, refresh=True)
    wanted = {topic for topic in topics if takes(topic)} | {parse_partition_id(log)[0] for log in known}
    logs = [TP(topic, part) for topic in sorted(wanted & set(topics)) for part in topics[topic].partitions]
    starts = await cluster.start_offsets(logs) if logs else {}
    ends = await cluster.end_offsets(logs) if logs else {}
    found: dict[str, OffsetRange] = {}
    unreadable: dict[str, str] = {}
    for log in logs:
        start, end = starts[log], ends[log]
        if isinstance(start, BrokerError) or isinstance(end, BrokerError):
            unreadable[partition_id(*log)] = next(e.name for e in (start, end) if isinstance(e, BrokerError))
        else:
            found[partition_id(*log)] = OffsetRange(min(start, end), end)
    return found, unreadable


def extents_at(
    endpoint: KafkaEndpoint, takes: Callable[[str], bool], known: Iterable[str] = ()
) -> tuple[dict[str, OffsetRange], dict[str, str]]:
    """Call ``extents_of`` at one site."""

    async def ask() -> tuple[dict[str, OffsetRange], dict[str, str]]:
        async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
            return await extents_of(cluster, takes, known)

    return asyncio.run(ask())


@dataclass(frozen=True, slots=True)
class LogScope:
    """What is compared: limits by log, the number of records not read yet, and notes on what is not compared."""

    limits: Mapping[str, Limits]
    behind: int
    notes: tuple[str, ...]


def scope_of(
    positions: Positions,
    ahead: Positions,
    takes: Mapping[str, OffsetRange],
    unreadable: Mapping[str, str],
    held: Collection[str] = (),
) -> LogScope:
    """Return the scope that follows from the job's positions and the extents of the logs. Pure.

    Args:
        positions: How far the logs are read, by the last completed batch.
        ahead: The same by the last batch that was begun.
        takes: The extents of the logs that the job reads, if they exist.
        unreadable: Logs that could not be asked.
        held: Logs of which shore's site lacks records that were read at an earlier one; these are not compared.
    """
    limits: dict[str, Limits] = {}
    vanished, shorter, waiting = [], [], []
    for log, position in positions.items():
        extent = takes.get(log)
        start = min(extent.start, position) if extent is not None else position
        if extent is not None and extent.end < position and log in held:
            waiting.append(f"{log} from {extent.end:,} to {position - 1:,}")
            limits[log] = Limits(start, max(start, extent.end), max(ahead.get(log, 0), position))
            continue
        if extent is None:
            vanished.append(log)
        elif extent.end < position:
            shorter.append(f"{log} ends at {extent.end:,} and was read up to {position:,}")
        limits[log] = Limits(start, position, max(ahead.get(log, 0), position))
    for log in ahead.keys() - limits.keys():  # a batch under way that is the first to read them
        limits[log] = Limits(0, 0, ahead[log])
    notes = []
    if vanished := [log for log in vanished if log not in unreadable]:
        notes.append(f"logs that are no more there: {_some(vanished)}")
    if unreadable:
        notes.append(f"logs that cannot be read: {_some([f'{log} ({why})' for log, why in unreadable.items()])}")
    if shorter:
        notes.append(f"logs that were truncated or made anew: {_some(shorter)}")
    if waiting:
        notes.append(f"records that this site does not have yet, and that are not compared: {_some(waiting)}")
    behind = sum(max(0, extent.end - positions.get(log, extent.start)) for log, extent in takes.items())
    return LogScope(limits, behind, tuple(notes))


def check_logs(
    entry: FromLogs, lake: Lake, topology: Topology, endpoint: KafkaEndpoint, *, small: Lake | None = None
) -> TableCheck:
    """Compare the tables of one entry of the catalogue with the logs.

    Args:
        endpoint: Kafka of the site where shore runs, for which the source is registered.
        small: The result of ``Lake.of_small_tables``, for tables that are small.

    Raises:
        CheckpointDamagedError: it is not known how far the job has read.
        ConnectionLost, RequestTimeout, BrokerError: the logs cannot be read.
        PySparkException: the tables or the logs cannot be read.
    """
    checkpoint = read_checkpoint(lake.paths, entry.job)  # read before the tables: they hold at least as much
    versions = versions_of(lake.paths, entry.tables)
    if versions is None:
        note = f"job {entry.job} has not run yet"
        return TableCheck(table=entry.name, kind="logs", same=None, notes=(note,))
    if checkpoint is None and (count := sum(lake.read(*each).count() for each in versions.items())):
        note = f"job {entry.job} has lost its checkpoint"
        return TableCheck(table=entry.name, kind="logs", same=None, rows=count, notes=(note,))
    if small is not None and lake.are_small(versions):
        lake = small
    checkpoint = checkpoint or Checkpoint(entry.job, "", None, None, (), ())  # nothing was read, the tables are empty
    if (later := read_checkpoint(lake.paths, entry.job)) is not None:  # read after them: they hold at most as much
        checkpoint = replace(checkpoint, begun=later.begun, ahead=later.ahead)
    for attempt in range(_ATTEMPTS):
        try:
            return _check(entry, lake, topology, endpoint, checkpoint, versions)
        except (BrokerError, PySparkException) as error:
            if isinstance(error, BrokerError):
                passing = error.code == OFFSET_OUT_OF_RANGE
            else:
                passing = DataLossError.__name__ in str(error)
            if not passing or attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the loop above returns or raises")


def _check(
    entry: FromLogs,
    lake: Lake,
    topology: Topology,
    endpoint: KafkaEndpoint,
    checkpoint: Checkpoint,
    versions: Mapping[str, int],
) -> TableCheck:
    takes = entry.takes(topology)
    extents, unreadable = extents_at(endpoint, takes)
    positions = own_positions(checkpoint.positions, takes)
    record = read_site(lake.paths)
    held = record.held.get(entry.job, {}) if record is not None else {}
    scope = scope_of(positions, own_positions(checkpoint.positions_ahead, takes), extents, unreadable, held)
    kept = kept_of(lake.paths, versions)
    compared = LogComparison(entry, topology, lake, endpoint.site, versions, scope.limits, extents, kept)
    digests = compared.digests()
    differing = sorted((log for log, each in digests.items() if each.differs), key=str)
    differences = compared.within(differing[:LOGS_SHOWN]).differences() if differing else ()
    gone = sum(each.before for each in digests.values())
    twice = compared.doubled_before() if gone else ()
    return TableCheck(
        table=entry.name,
        kind="logs",
        same=not differing and not twice,
        rows=sum(each.rows for each in digests.values()),
        expected=sum(each.expected for each in digests.values()),
        logs=len(scope.limits),
        behind=scope.behind,
        gone=gone,
        differing=len({*differing, *(each.key["log"] for each in twice)}),
        differences=(*differences, *twice)[:SHOWN],
        notes=scope.notes,
    )


def own_positions(positions: Positions, takes: Callable[[str], bool]) -> Positions:
    """Return the positions of the logs of one entry of the catalogue; a job may read the logs of several."""
    return {log: position for log, position in positions.items() if takes(parse_partition_id(log)[0])}


def versions_of(paths: TablePaths, tables: Iterable[str]) -> dict[str, int] | None:
    """Return the tables' newest versions; None when one of them does not exist."""
    try:
        return {name: DeltaTable(paths.table(name)).version() for name in tables}
    except TableNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class LogComparison:
    """The tables of one entry of the catalogue, at one version each, and the logs, within limits.

    Args:
        site: The site for which the source ``fairlead`` is registered.
        extents: What the logs have, at least for those with limits.
        kept: Rows that retention may have deleted are left out on both sides.
    """

    entry: FromLogs
    topology: Topology
    lake: Lake
    site: str
    versions: Mapping[str, int]
    limits: Mapping[str, Limits]
    extents: Mapping[str, OffsetRange]
    kept: Kept

    @property
    def stored(self) -> DataFrame:
        """The rows of all tables together: column ``TABLE``, and the columns that any of them has."""
        rows = (self._aligned(self.lake.read(name, self.versions[name]), F.lit(name)) for name in self.entry.tables)
        return reduce(DataFrame.unionAll, rows)

    @property
    def expected(self) -> DataFrame:
        """The rows that the logs give within the limits, with the columns of ``stored``, parsed as the job does it.

        Reading it fails with ``DataLossError`` when records are gone.
        """
        spark, entry = self.lake.spark, self.entry
        ranges = {log: each for log, each in self.limits.items() if log in self.extents and each.start < each.stop}
        if not ranges:
            return spark.createDataFrame([], _schema(entry.tables).add(TABLE, "string")).select(*self._columns)
        begin = {log: ranges[log].start if log in ranges else LATEST for log in self.extents}
        end = {log: each.stop for log, each in ranges.items()}
        reader = spark.read.format("fairlead").options(**entry.options(self.topology))
        reader = reader.option("site", self.site).option("failOnDataLoss", "true")
        reader = reader.option("startingOffsets", json.dumps(begin)).option("endingOffsets", json.dumps(end))
        rows = reader.option("tasks", str(spark.sparkContext.defaultParallelism)).load()
        if entry.operation is not None:
            return self._aligned(parsed(rows, entry.operation), F.lit(entry.tables[0]))
        good, rejected = entry.tables
        return self._aligned(rows, F.when(F.col("reason").isNull(), good).otherwise(rejected))

    def within(self, logs: Collection[str]) -> LogComparison:
        """Return the comparison of only these logs. A log without limits may have no rows."""
        return replace(self, limits={log: self.limits.get(log, Limits(0, 0, 0)) for log in logs})

    def digests(self) -> dict[str, LogDigest]:
        """Compute both sides of each log, in one action."""
        limits = F.broadcast(self._limits())
        place, inside = F.col("log_offset"), _inside()
        kinds = {each.name: each.dataType for each in self.stored.schema.fields}
        values = [_flat(F.col(name), kinds[name]) for name in self._columns]
        # Spark's hash skips nulls, so which of the values are null is hashed too.
        digest = F.xxhash64(*values, F.array(*(value.isNull() for value in values))).cast("decimal(20,0)")
        zero = F.lit(0).cast("decimal(20,0)")
        one = [
            inside.cast("long").alias("rows"),
            F.lit(0).cast("long").alias("expected"),
            F.when(inside, digest).otherwise(zero).alias("apart"),
            F.coalesce(place < F.col("start"), F.lit(False)).cast("long").alias("before"),
            (place >= F.coalesce("ahead", F.lit(0))).cast("long").alias("beyond"),
        ]
        other = [F.lit(0), F.lit(1), (-digest), F.lit(0), F.lit(0)]
        stored = self.stored.join(limits, on="log", how="left").select("log", *one)
        expected = self.expected.join(limits, on="log").where(inside).select("log", *other)
        sums = (F.sum(name).alias(name) for name in LogDigest._fields)
        found = stored.unionAll(expected).groupBy("log").agg(*sums).toArrow().to_pylist()
        return {row.pop("log"): LogDigest(**{name: int(value) for name, value in row.items()}) for row in found}

    def odd(self) -> DataFrame:
        """Return the rows that differ (``shore.verify.compare.odd_rows``), of logs that have limits. Numbers have no
        tolerance. A row in the wrong one of several tables counts as changed."""
        limits = F.broadcast(self._limits())
        stored = self.stored
        if len(self.limits) <= _NAMED:
            stored = stored.where(F.col("log").isin(list(self.limits)))
        stored = stored.join(limits, on="log").where(_inside() | (F.col("log_offset") >= F.col("ahead")))
        expected = self.expected.join(limits, on="log").where(_inside())
        return odd_rows(stored.select(*self._columns), expected.select(*self._columns), KEY, tolerance=0.0)

    def differences(self) -> tuple[Difference, ...]:
        """Return the first few of ``odd``, as they are reported."""
        return tuple(self._difference(row) for row in first_rows(self.odd()))

    def doubled_before(self) -> tuple[Difference, ...]:
        """Return the first few doubled rows whose records are gone: these cannot be compared, but must be unique."""
        rows = self.stored.join(F.broadcast(self._limits()), on="log").where("log_offset < start")
        twice = rows.groupBy(TABLE, *KEY).count().where("count > 1").orderBy(*KEY).limit(SHOWN)
        return tuple(
            Difference(table=row[TABLE], what="doubled", key={name: row[name] for name in KEY})
            for row in twice.collect()
        )

    def _difference(self, row: Mapping[str, Any]) -> Difference:
        if row["what"] == DOUBLED:
            log, offset = row["key"].values()
            place = self.stored.where((F.col("log") == log) & (F.col("log_offset") == offset)).first()
            return as_difference(place[TABLE] if place else self.entry.tables[0], row, ())
        found, expected = row["found"], row["expected"]
        names = [name for name in row["columns"] if name != TABLE]
        if found and expected and found[TABLE] != expected[TABLE]:
            # A column that only one of the two tables has is no difference, except ``reason``.
            known = [set(TABLES[side[TABLE]].plain_schema.names) for side in (found, expected)]
            names = [name for name in names if name in known[0] & known[1] or name == "reason"]
        return as_difference((found or expected)[TABLE], row, names)

    def _aligned(self, rows: DataFrame, table: Column) -> DataFrame:
        """Rows with the columns of all tables; columns that the row's own table does not have are null. Rows that
        retention may have deleted are left out."""
        there, found = set(rows.columns), [table.alias(TABLE)]
        for field in _schema(self.entry.tables).fields:
            owners = [name for name in self.entry.tables if field.name in TABLES[name].plain_schema.names]
            value = F.col(field.name) if field.name in there else F.lit(None)
            if len(owners) < len(self.entry.tables):
                value = F.when(table.isin(owners), value)
            found.append(value.cast(field.dataType).alias(field.name))
        aligned = rows.select(*found)
        for name, since in self.kept.items():
            aligned = aligned.where((F.col(TABLE) != name) | ~is_gone(name, since))
        return aligned

    @property
    def _columns(self) -> list[str]:
        return [TABLE, *_schema(self.entry.tables).names]

    def _limits(self) -> DataFrame:
        rows = [{"log": log, **each._asdict()} for log, each in self.limits.items()]
        return self.lake.spark.createDataFrame(pa.Table.from_pylist(rows, schema=_LIMITS))


def parsed(raw: DataFrame, operation: LogTable) -> DataFrame:
    """Parse the source's raw rows into the rows of one table."""

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from rows_of(operation, pa.Table.from_batches([batch])).to_batches()

    columns = raw.select("topic", "offset", "term", "timestamp", "value")
    return columns.mapInArrow(parse, _schema([operation.table.name]))


def _flat(value: Column, kind: DataType) -> Column:
    """Return a value for Spark's hash. The hash skips nulls in structs as well, where a value in another field, or an
    element without any, would not be seen: their JSON names each field."""
    if not isinstance(kind, ArrayType | StructType):
        return value
    return F.to_json(value, {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"})


def _inside() -> Column:
    place = F.col("log_offset")
    return F.coalesce((place >= F.col("start")) & (place < F.col("stop")), F.lit(False))


def _schema(tables: Iterable[str]) -> StructType:
    """The columns that any of the tables has."""
    fields = {field.name: field for name in tables for field in TABLES[name].spark_schema.fields}
    return StructType(list(fields.values()))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
