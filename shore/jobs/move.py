"""Move shore to another site: go on there from the same checkpoints and tables.

Offsets are the same at every site, so a checkpoint is valid everywhere. Two things may be behind at the new site:

- Logs of which it lacks records that shore has read, and logs that were seized below the offset that shore has read.
  They are held (``shore.site``) until ``settle_held`` finds that they have the same records as the tables.
- The customers' feeds. ``shore.sink.takeover`` completes them and opens a new term before the job for feeds begins.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
import threading
import time
from collections.abc import Mapping
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from fairlead.custody.ledger import read_ledgers
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import read_log
from fairlead.kafka.convention import is_data
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import BrokerError, ConnectionLost, RequestTimeout
from fairlead.kafka.protocol.types import TP
from fairlead.names import parse_log
from fairlead.records.custody import CustodyEntry
from shore.errors import site_unreachable
from shore.jobs.checkpoint import read_checkpoint
from shore.jobs.model import Job
from shore.paths import TablePaths
from shore.site import (
    HeldLog,
    SiteRecord,
    check_may_run,
    cut_off,
    first_difference,
    lacking,
    moved_away,
    read_site,
    write_site,
)
from shore.source.offsets import Positions, parse_partition_id
from shore.source.stream import find_ends
from shore.tables.operations import OPERATIONS
from shore.tables.readings import READINGS, READINGS_REJECTED
from topologies.ledger_trust import sifted
from topologies.model import Topology

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "fairlead-shore"
PATIENCE_SECONDS: Final = 15.0  # without progress, for records that are on their way to the new site
_POLL_SECONDS: Final = 0.5
_COMPARED: Final = 10_000  # offsets of a log; where histories part, they differ from the first record on
_record = threading.Lock()  # several jobs begin side by side and change the record

Held = dict[str, dict[str, HeldLog]]


def settle_site(
    topology: Topology,
    endpoint: KafkaEndpoint,
    paths: TablePaths,
    jobs: Mapping[str, Job],
    *,
    move: bool,
) -> SiteRecord:
    """Return the record of the site where shore runs from now on. The caller holds the right to write.

    Args:
        endpoint: Kafka of the site where shore is to run.
        jobs: All jobs, by name.
        move: Whether shore may leave the site where it ran before. It then waits while records that it has read arrive
            at the new site, until none has come for ``PATIENCE_SECONDS``.

    Raises:
        ConfigurationError: the topology does not let shore run at this site.
        ShoreMovedError: shore is at another site, and ``move`` is not set.
        SiteUnreachableError: the site does not answer.
    """
    site = endpoint.site
    check_may_run(topology, site)
    usual = topology.shore.at if topology.shore is not None else site
    stored = read_site(paths)
    record = stored or SiteRecord(usual, usual)
    if record.site != site:
        if not move:
            raise moved_away(record, site)
        positions = {name: found for name, job in jobs.items() if job.reads_logs and (found := _positions(paths, name))}
        try:
            held = asyncio.run(_held(topology, endpoint, positions, record))
        except (ConnectionLost, RequestTimeout) as error:
            raise site_unreachable(endpoint, error) from error
        record = record.moved(site, held, dt.datetime.now(dt.UTC))
        logger.warning("shore moves from %s to %s; %d logs are held", record.moved_from, site, _count(held))
    if record != stored:
        write_site(paths, record)
    return record


def _positions(paths: TablePaths, job: str) -> Positions:
    """Return how far a job has read: also in a batch that it has begun, because the tables may have its rows."""
    checkpoint = read_checkpoint(paths, job)
    return {} if checkpoint is None else checkpoint.positions | checkpoint.positions_ahead


async def _held(
    topology: Topology,
    endpoint: KafkaEndpoint,
    positions: Mapping[str, Positions],
    before: SiteRecord,
) -> Held:
    async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
        ends, since = await _ends(cluster), time.monotonic()
        left = [lacking(each, ends) for each in positions.values()]
        while any(left) and time.monotonic() - since < PATIENCE_SECONDS:
            await asyncio.sleep(_POLL_SECONDS)
            ends, before_that = await _ends(cluster), left
            left = [lacking(each, ends) for each in positions.values()]
            if left != before_that:
                since = time.monotonic()
        seizures = await _seizures(topology, cluster, endpoint.site)
    held: Held = {}
    for job, read in positions.items():
        known = {log: HeldLog(each.end, each.position) for log, each in before.held.get(job, {}).items()}
        if logs := known | cut_off(read, seizures) | lacking(read, ends):
            held[job] = logs
    return held


async def _ends(cluster: Cluster) -> Positions:
    return (await find_ends(cluster, lambda topic: not topic.startswith("__"), None)).ends


async def _seizures(topology: Topology, cluster: Cluster, site: str) -> list[tuple[str, int]]:
    entries = sifted(topology, await read_ledgers(cluster, site)).entries
    return [
        (entry.log, entry.marker_offset)
        for entry in entries
        if isinstance(entry, CustodyEntry) and entry.event == "SEIZURE"
    ]


def _count(held: Held) -> int:
    return len({log for logs in held.values() for log in logs})


def settle_held(topology: Topology, endpoint: KafkaEndpoint, paths: TablePaths, job: str) -> None:
    """Compare the held logs of a job that have grown to where the job has read them. Let go of those that have the same
    records as the tables, and note where the others differ.

    Raises:
        SiteUnreachableError: the site does not answer.
    """
    record = read_site(paths)
    held = {} if record is None else record.held.get(job, {})
    if not held:
        return
    try:
        found = asyncio.run(_compared(topology, endpoint, paths, held))
    except (ConnectionLost, RequestTimeout) as error:
        raise site_unreachable(endpoint, error) from error
    with _record:
        record = read_site(paths)
        if record is not None and found != record.held.get(job):
            others = {name: logs for name, logs in record.held.items() if name != job}
            held_now = others | ({job: found} if found else {})
            write_site(paths, msgspec.structs.replace(record, held=held_now))


def note_feeds_taken_over(paths: TablePaths) -> None:
    """Record that the feeds of shore's site go on there."""
    with _record:
        record = read_site(paths)
        if record is not None and record.feeds_at != record.site:
            write_site(paths, msgspec.structs.replace(record, feeds_at=record.site))


async def _compared(
    topology: Topology, endpoint: KafkaEndpoint, paths: TablePaths, held: Mapping[str, HeldLog]
) -> dict[str, HeldLog]:
    """Return the logs that stay held."""
    stay = dict(held)
    async with await Cluster.open(endpoint, client_id=CLIENT_ID) as cluster:
        logs = {log: TP(*parse_partition_id(log)) for log in held}
        there = set(await cluster.topics(refresh=True))
        known = [tp for tp in logs.values() if tp.topic in there]
        ends = await cluster.end_offsets(known) if known else {}
        starts = await cluster.start_offsets(known) if known else {}
        for log, each in held.items():
            end, start = ends.get(logs[log]), starts.get(logs[log])
            if not isinstance(end, int) or not isinstance(start, int) or end < each.position:
                continue
            names, job = tables_of(topology, log)
            committed = read_checkpoint(paths, job)
            stop = min(each.position, each.end + _COMPARED)
            stop = min(stop, committed.positions.get(log, 0) if committed is not None else 0)
            begin = max(each.end, start)
            try:
                records = [r async for r in read_log(cluster, logs[log], begin, stop)] if begin < stop else []
            except BrokerError:
                continue  # retention was quicker; the next start looks again
            rows = await asyncio.to_thread(_stored, paths, names, log, begin, stop)
            differs = first_difference(((r.offset, r.value) for r in records if is_data(r)), rows)
            if differs is None:
                del stay[log]
            else:
                stay[log] = HeldLog(each.end, each.position, differs)
                logger.warning("%s", stay[log].describe(log, endpoint.site))
    return stay


def tables_of(topology: Topology, log: str) -> tuple[tuple[str, ...], str]:
    """Return the tables that have a row for each data record of a log, and the job that fills them. Pure."""
    topic, _ = parse_partition_id(log)
    name = parse_log(topic)
    if name is not None and name.stream in topology.moving_streams:
        return (READINGS.name, READINGS_REJECTED.name), "readings"
    return tuple(each.table.name for each in OPERATIONS if re.fullmatch(each.pattern, topic)), "operations"


def _stored(paths: TablePaths, names: tuple[str, ...], log: str, start: int, stop: int) -> dict[int, bytes | None]:
    """Return the values of a log's records between two offsets, as the tables have them."""
    found: dict[int, bytes | None] = {}
    wanted = (pc.field("log") == log) & (pc.field("log_offset") >= start) & (pc.field("log_offset") < stop)
    for name in names:
        try:
            rows = DeltaTable(paths.table(name)).to_pyarrow_dataset()
        except TableNotFoundError:
            continue
        part = rows.to_table(columns=["log_offset", "payload"], filter=wanted)
        values = part["payload"].cast(pa.binary()).to_pylist()
        found |= dict(zip(part["log_offset"].to_pylist(), values, strict=True))
    return found
