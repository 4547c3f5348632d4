"""Measure how far each job is behind now, from Kafka's logs for jobs that read logs, else from the tables' Delta logs.

Needs neither a Spark session nor a running shore. A job that reads logs is behind by record time: how much newer a
log's newest record is than the last record read, in the log where this is most. A job that reads tables is behind by
clock time: how long the oldest row that it has not read has been there.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import msgspec

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.batch import split
from fairlead.kafka.protocol.record import decode_batch
from fairlead.kafka.protocol.types import TP
from shore.jobs.checkpoint import Checkpoint, backlog_of, read_checkpoint, table_ids
from shore.paths import TablePaths
from shore.source.offsets import Positions, parse_partition_id
from shore.tables import TABLES
from topologies.model import Topology

LOGS_ASKED: Final = 200  # the logs with most records to read, whose record times are fetched
_BYTES: Final = 64 << 10
SAMPLE_SECONDS: Final = 30.0  # between two measurements for the metrics
_SECONDS: Final = 15.0  # that a site has to answer
_UNKNOWN: Final = "a table that it reads is gone, was made anew, or is damaged ('fairlead tables' tells)"

logger = logging.getLogger(__name__)


class Lag(msgspec.Struct, frozen=True):
    """One job's lag; values are None where they are not known, and ``why`` gives the reason."""

    records: int | None = None
    seconds: float | None = None
    logs_behind: int | None = None
    logs: int | None = None
    unreadable: tuple[str, ...] = ()
    why: str = ""


@contextlib.contextmanager
def sampled(measure: Callable[[], Mapping[str, Lag]], keep: Callable[[Mapping[str, Lag]], None]) -> Iterator[None]:
    """While inside, measure the lags every ``SAMPLE_SECONDS`` in a separate thread and pass them to ``keep``; pass an
    empty mapping while they cannot be measured."""
    stop = threading.Event()

    def run() -> None:
        while True:
            try:
                found = measure()
            except Exception as error:  # a storage that does not answer now may answer at the next sample
                logger.warning("the lags cannot be measured: %s", error)
                found = {}
            keep(found)
            if stop.wait(SAMPLE_SECONDS):
                return

    thread = threading.Thread(target=run, name="shore-lag", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_SECONDS)


def job_lags(
    topology: Topology, endpoint: KafkaEndpoint, paths: TablePaths, jobs: Collection[str], *, now: dt.datetime
) -> dict[str, Lag]:
    """Return the lag of each job. ``why`` says where a site does not answer or a checkpoint is damaged."""
    found: dict[str, Lag] = {}
    reading: dict[str, Checkpoint] = {}
    ids = table_ids(paths, TABLES)
    from shore.verify.catalogue import FROM_LOGS  # loads Spark, which takes a second

    of_logs = {entry.job for entry in FROM_LOGS}
    for job in jobs:
        try:
            checkpoint = read_checkpoint(paths, job)
        except FairleadError as error:
            found[job] = Lag(why=error.what)
            continue
        if job in of_logs or (checkpoint is not None and checkpoint.positions_ahead):
            reading[job] = checkpoint or Checkpoint(job, "", None, None, (), ())
        elif checkpoint is None:
            found[job] = Lag(why="it has not run yet")
        elif checkpoint.done is None:
            found[job] = Lag(why="its first batch is not done yet")
        else:
            backlog = backlog_of(checkpoint, paths, ids)
            seconds = (now - backlog.since).total_seconds() if backlog.since is not None else 0.0
            why = _UNKNOWN if backlog.unknown else ""
            found[job] = Lag(backlog.rows, round(max(0.0, seconds), 1), why=why)
    if reading:
        try:
            found |= asyncio.run(asyncio.wait_for(_of_logs(topology, endpoint, reading), _SECONDS))
        except TimeoutError:
            found |= {job: Lag(why=f"{endpoint.site} did not answer in {_SECONDS:.0f} s") for job in reading}
        except FairleadError as error:
            found |= {job: Lag(why=error.what) for job in reading}
    return {job: found[job] for job in jobs}


async def _of_logs(topology: Topology, endpoint: KafkaEndpoint, reading: Mapping[str, Checkpoint]) -> dict[str, Lag]:
    from shore.verify.logs import CLIENT_ID, extents_of

    found = {}
    async with await Cluster.open(endpoint, client_id=CLIENT_ID, request_timeout=_SECONDS) as cluster:
        for job, checkpoint in reading.items():
            all_takes = _takes(job, checkpoint, topology)
            extents, unreadable = await extents_of(cluster, lambda topic: any(take(topic) for take in all_takes), ())  # noqa: B023  # called here
            positions = checkpoint.positions
            behind = records_behind(positions, extents)
            found[job] = Lag(
                records=sum(behind.values()),
                seconds=round(await _seconds(cluster, positions, extents, behind), 1),
                logs_behind=len(behind),
                logs=len(extents),
                unreadable=tuple(f"{log}: {why}" for log, why in sorted(unreadable.items())[:5]),
            )
    return found


def _takes(job: str, checkpoint: Checkpoint, topology: Topology) -> list[Callable[[str], bool]]:
    """Return predicates for the topics that a job reads; without a log table, for the streams in its checkpoint."""
    from shore.verify.catalogue import FROM_LOGS

    found = [entry.takes(topology) for entry in FROM_LOGS if entry.job == job]
    if not found:
        streams = {log.partition(".")[0] for log in checkpoint.positions_ahead}
        found = [lambda topic: topic.partition(".")[0] in streams]
    return found


def records_behind(positions: Positions, extents: Mapping[str, OffsetRange]) -> dict[str, int]:
    """Return the number of unread offsets of each log that has any. Pure."""
    left = {log: extent.end - max(positions.get(log, 0), extent.start) for log, extent in extents.items()}
    return {log: count for log, count in left.items() if count > 0}


async def _seconds(
    cluster: Cluster, positions: Positions, extents: Mapping[str, OffsetRange], behind: Mapping[str, int]
) -> float:
    most = sorted(behind, key=lambda log: -behind[log])[:LOGS_ASKED]
    last_read = {log: max(extents[log].start, positions.get(log, 0) - 1) for log in most}
    before = await _times(cluster, last_read, newest=False)
    after = await _times(cluster, {log: extents[log].end - 1 for log in most}, newest=True)
    return max((after[log] - before[log] for log in most if log in before and log in after), default=0) / 1000


async def _times(cluster: Cluster, offsets: Mapping[str, int], *, newest: bool) -> dict[str, int]:
    """Return the milliseconds of the records at these offsets; with ``newest``, of the newest in their batches."""
    if not offsets:
        return {}
    logs = {TP(*parse_partition_id(log)): log for log in offsets}
    wanted = {tp: offsets[log] for tp, log in logs.items()}
    answers = await cluster.fetch(wanted, max_wait_ms=0, partition_max_bytes=_BYTES)
    found = {}
    for tp, content in answers.items():
        for view in split(content.records) if not content.error_code else ():
            if view.header.next_offset <= wanted[tp]:
                continue
            found[logs[tp]] = view.header.max_timestamp
            if not newest:
                records = decode_batch(content.records, view.start, view.stop)
                found[logs[tp]] = next((r.timestamp_ms for r in records if r.offset >= wanted[tp]), found[logs[tp]])
            break
    return found
