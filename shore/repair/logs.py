"""Find missing, doubled or changed rows of log tables by comparing with the logs, and repair them from the logs.

Rows without a record are left alone, and so are logs that end before the offset that was read: they were truncated or
recreated, and their rows are all that is left of their records. Rows past the retention of their table stay deleted.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TP
from shore.delta.commit import conform, exchange_rows
from shore.delta.diff import CHANGED, EXTRA, MISSING
from shore.delta.lake import Lake, computed
from shore.delta.lease import check_lease
from shore.kept import kept_of
from shore.source.offsets import Positions, parse_partition_id
from shore.tables import TABLES
from shore.verify.catalogue import FromLogs
from shore.verify.compare import DOUBLED
from shore.verify.logs import CLIENT_ID, KEY, TABLE, Limits, LogComparison, extents_at, own_positions, versions_of
from topologies.model import Topology

_WRONG = (CHANGED, DOUBLED)
_FOUND_IN = "found_in"


class _FaultKind(NamedTuple):
    """What is wrong with rows, the table that they belong to, and the table that has them; None where it is unknown."""

    what: str
    table: str | None
    found_in: str | None


@dataclass(frozen=True, slots=True)
class LogRepair:
    """What is wrong with the tables of one entry of the catalogue.

    Args:
        counts: Rows that must be repaired, or that have no record.
        rows: The correct rows, with the column ``what``. None: there are none.
        shorter: Logs that end before the offset that was read; they were not compared.
    """

    entry: FromLogs
    counts: Mapping[_FaultKind, int] = field(default_factory=dict)
    rows: DataFrame | None = None
    shorter: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        return self._count(MISSING)

    @property
    def wrong(self) -> int:
        """Doubled and changed rows."""
        return self._count(*_WRONG)

    @property
    def extra(self) -> int:
        """Rows without a record; they are not repaired."""
        return self._count(EXTRA)

    def _count(self, *what: str) -> int:
        return sum(count for kind, count in self.counts.items() if kind.what in what)


def find_odd_rows(
    entry: FromLogs,
    lake: Lake,
    topology: Topology,
    endpoint: KafkaEndpoint,
    positions: Positions,
    *,
    since: dt.datetime | None = None,
    until: dt.datetime | None = None,
) -> LogRepair:
    """Compare the tables of one entry of the catalogue with the logs up to ``positions``.

    Args:
        endpoint: Kafka of the site where shore runs, for which the source is registered.
        since: Only records of this time or later: the record's time in Kafka, or the device time in ``readings``. Rows
            without a record have none and are left out.
        until: Only records before this time.

    Raises:
        ConnectionLost, RequestTimeout, BrokerError, PySparkException: the logs cannot be read.
    """
    takes = entry.takes(topology)
    own = own_positions(positions, takes)
    versions = versions_of(lake.paths, entry.tables)
    if versions is None or not own:
        return LogRepair(entry)
    extents, _ = extents_at(endpoint, takes, own)
    shorter = tuple(sorted(log for log in own if log in extents and extents[log].end < own[log]))
    there = {log: extents[log] for log in own if log in extents and log not in shorter}
    firsts = asyncio.run(_first_offsets(endpoint, there, since)) if since is not None else {}
    limits = {}
    for log, extent in there.items():
        start = min(max(extent.start, firsts.get(log, 0)), own[log])
        limits[log] = Limits(start, own[log], own[log])
    kept = kept_of(lake.paths, versions)
    compared = LogComparison(entry, topology, lake, endpoint.site, versions, limits, extents, kept)
    digests = compared.digests()
    differing = [log for log, each in digests.items() if log in limits and (each.rows != each.expected or each.apart)]
    if not differing:
        return LogRepair(entry, shorter=shorter)
    rows = _as_they_must_be(compared.within(differing))
    if since is not None or until is not None:
        time = F.coalesce(*(name for name in ("record_date_time", "device_date_time") if name in rows.columns))
        rows = rows.where(time >= F.lit(since)) if since is not None else rows
        rows = rows.where(time < F.lit(until)) if until is not None else rows
    rows = computed(rows)
    found = rows.groupBy("what", TABLE, _FOUND_IN).count().collect()
    counts = {_FaultKind(row["what"], row[TABLE], row[_FOUND_IN]): row["count"] for row in found}
    return LogRepair(entry, counts, rows, shorter)


def _as_they_must_be(compared: LogComparison) -> DataFrame:
    """The rows that differ, one per record, as the log gives them (null where it gives none), with the columns ``what``
    and ``_FOUND_IN``: the table that has the row, null if the row is there more than once."""
    odd = compared.odd().select("what", "key.*", F.col(f"found.{TABLE}").alias(_FOUND_IN))
    doubled = F.max(F.col("what") == DOUBLED)
    keys = odd.groupBy(*KEY).agg(
        F.when(doubled, DOUBLED).otherwise(F.first("what")).alias("what"),
        F.when(~doubled, F.first(_FOUND_IN)).alias(_FOUND_IN),
    )
    return keys.join(compared.expected, on=list(KEY), how="left")


def repair_logs(plan: LogRepair, lake: Lake) -> int:
    """Repair the rows of a plan. Return how many were written.

    One commit per table replaces changed and doubled rows by the log's, another appends missing ones: readers that
    follow the table read only the latter. After an interruption in between, the next run finds the rest.
    """
    if plan.rows is None:
        return 0
    wrong = plan.rows.where(F.col("what").isin(*_WRONG))
    for name in plan.entry.tables:
        table, location = TABLES[name], lake.paths.table(name)
        own = F.col(TABLE) == name
        if any(kind.what == DOUBLED or name in kind[1:] for kind in plan.counts if kind.what in _WRONG):
            exchange_rows(lake, table, wrong, wrong.where(own))
        if any(kind.what == MISSING and kind.table == name for kind in plan.counts):
            missing = conform(plan.rows.where(own & (F.col("what") == MISSING)), table)
            check_lease(location)
            missing.write.format("delta").mode("append").save(location)
    return plan.missing + plan.wrong


async def _first_offsets(
    endpoint: KafkaEndpoint, extents: Mapping[str, OffsetRange], since: dt.datetime
) -> dict[str, int]:
    """The first record of each log at this time or later by Kafka's time index; all records before it are older."""
    logs = {TP(*parse_partition_id(log)): log for log in extents}
    async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
        since_ms = max(0, int(since.timestamp() * 1000))
        answers = await cluster.offsets_at(dict.fromkeys(logs, since_ms)) if logs else {}
    found = {logs[tp]: answer for tp, answer in answers.items() if isinstance(answer, int)}
    return {log: offset if offset >= 0 else extents[log].end for log, offset in found.items()}
