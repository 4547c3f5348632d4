"""Check that the checkpoints and tables of jobs belong together, before Spark starts."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.errors import FairleadError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.delta.table_errors import open_table
from shore.errors import SplitStateError
from shore.jobs.checkpoint import Checkpoint, archive_checkpoint, has_begun, read_checkpoint, table_end, table_ids
from shore.jobs.model import Job
from shore.paths import TablePaths
from shore.source.offsets import parse_partition_id
from shore.source.options import parse_options
from shore.source.stream import Ends, find_ends
from shore.tables import TABLES
from shore.tables.feeds import FEEDS
from shore.tables.operations import OPERATIONS

_SECONDS: Final = 15.0  # that a site has to answer

logger = logging.getLogger(__name__)


def check_state(paths: TablePaths, jobs: Sequence[Job]) -> None:
    """Refuse to go on where a checkpoint or a table was removed without the other, or is damaged.

    Raises:
        CheckpointDamagedError: a file that Spark needs cannot be read.
        SplitStateError: going on would repeat or lose rows.
        UnavailableError: a table cannot be opened.
    """
    ids = table_ids(paths, TABLES)
    for job in jobs:
        checkpoint = read_checkpoint(paths, job.name)
        for name in job.tables:
            table = open_table(paths, name)
            if checkpoint is not None and table is None and _has_read_for(checkpoint, job, name):
                raise SplitStateError(
                    f"job {job.name} has a checkpoint but table {name} is gone: its rows would be missing for ever",
                    hint=f"put the table back, or run 'fairlead shore rebuild {job.name}': it makes the table again "
                    "from what it was made of",
                    job=job.name,
                    table=name,
                )
            if checkpoint is None and job.reads_logs and table is not None and table.count() > 0:
                raise SplitStateError(
                    f"table {name} has rows but job {job.name} has no checkpoint: all rows would be added again",
                    hint=f"put the checkpoint back, or run 'fairlead shore rebuild {job.name}': it makes the "
                    "checkpoint anew from the tables and the logs",
                    job=job.name,
                    table=name,
                )
        if checkpoint is not None:
            _check_inputs(paths, job, checkpoint, ids)


def _has_read_for(checkpoint: Checkpoint, job: Job, table: str) -> bool:
    """Return whether a job has read logs whose records belong in a table. It never has for a table that came with a
    later version and has logs of its own."""
    pattern = next((each.pattern for each in OPERATIONS if each.table.name == table), ".*")
    return job.reads_logs and any(
        re.fullmatch(pattern, parse_partition_id(log)[0]) for log in checkpoint.positions_ahead
    )


def renew_incomplete(paths: TablePaths, jobs: Sequence[Job]) -> None:
    """Archive the checkpoints of jobs that read tables and lack one of their own: it was removed, or came with a later
    version. The job then looks at everything once more (``renew_checkpoint``). Call it before the tables are created.

    Raises:
        CheckpointDamagedError, UnavailableError: as ``check_state``.
    """
    for job in jobs:
        if job.inputs and read_checkpoint(paths, job.name) is not None:
            # Where table ``feeds`` is missing, it is read back from the feeds in Kafka.
            missing = [name for name in job.tables if name != FEEDS.name and open_table(paths, name) is None]
            if missing:
                _set_aside(paths, job, f"it fills {', '.join(missing)}")


def put_aside_unneeded(paths: TablePaths, jobs: Sequence[Job]) -> None:
    """Archive the checkpoints of jobs that read tables and for which the topology has no work. Vacuum does not wait for
    them then: when they have work again, they look at everything once more."""
    for job in jobs:
        if job.inputs and has_begun(paths, job.name):
            _set_aside(paths, job, "it had no work in this topology")


def renew_checkpoint(paths: TablePaths, job: Job) -> None:
    """Archive the checkpoint of a job that reads tables if it was written for other inputs or another order of them.

    With such a checkpoint of another version, Spark would refuse to go on, or take one table's position for another's.
    The job then reads everything once more. That changes no correct row: its tables are recomputed from their inputs,
    and the feeds themselves say what customers already have.

    Raises:
        CheckpointDamagedError: a file of the checkpoint cannot be read.
    """
    checkpoint = read_checkpoint(paths, job.name) if job.inputs else None
    if checkpoint is not None and _reads_other_inputs(paths, job, checkpoint):
        _set_aside(paths, job, "it read other tables before")


def _set_aside(paths: TablePaths, job: Job, why: str) -> None:
    aside = archive_checkpoint(paths, job.name, f"replaced-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S}")
    logger.warning("job %s looks at everything once more: %s (%s)", job.name, why, aside)


def _reads_other_inputs(paths: TablePaths, job: Job, checkpoint: Checkpoint) -> bool:
    """Return whether the checkpoint is of a version of the job with other inputs, or another order of them."""
    names = table_ids(paths, job.inputs)
    known = [
        names.get(source["reservoirId"]) if source and "reservoirId" in source else None for source in checkpoint.ahead
    ]
    return len(known) != len(job.inputs) or any(
        name not in (None, wanted) for name, wanted in zip(known, job.inputs, strict=True)
    )


def has_read_all(paths: TablePaths, job: Job) -> bool:
    """Return whether the job has read every commit of all its inputs. Always False for jobs that read logs.

    Raises:
        CheckpointDamagedError: a file of the checkpoint cannot be read.
    """
    checkpoint = read_checkpoint(paths, job.name) if job.inputs else None
    if checkpoint is None or checkpoint.under_way or len(checkpoint.tables) != len(job.inputs):
        return False
    ends = (table_end(paths, name) for name in job.inputs)
    return all(
        (position.table_id, position.version) == (end.table_id, end.version) and not position.snapshot
        for position, end in zip(checkpoint.tables, ends, strict=True)
    )


def logs_read_to_end(endpoint: KafkaEndpoint, paths: TablePaths, job: str, options: Mapping[str, str]) -> int | None:
    """Return how many logs these options of source ``fairlead`` select, if the job has read all of them to their ends.

    None where there is more to read, and where only the job's query can tell: no batch is done, or one is under way; a
    log is gone, has fewer records than were read, or cannot be asked; the site does not answer.

    Raises:
        CheckpointDamagedError: a file of the checkpoint cannot be read.
    """
    checkpoint = read_checkpoint(paths, job)
    if checkpoint is None or checkpoint.under_way:
        return None

    async def ask() -> Ends:
        async with await Cluster.open(endpoint, client_id="fairlead-shore", request_timeout=_SECONDS) as cluster:
            return await find_ends(cluster, parse_options(options).takes, None)

    try:
        found = asyncio.run(ask())
    except FairleadError:
        return None
    ends = {log: end for log, end in found.ends.items() if end}
    read = {log: position for log, position in checkpoint.positions.items() if position}
    return len(found.ends) if ends == read and not found.unreadable else None


def _check_inputs(paths: TablePaths, job: Job, checkpoint: Checkpoint, ids: dict[str, str]) -> None:
    lost = [position.table_id for position in checkpoint.tables if position.table_id not in ids]
    if lost:
        for name in TABLES:
            open_table(paths, name)  # a damaged table has no readable id: raise that error instead
        raise SplitStateError(
            f"job {job.name} has read a table that is no more there, or was made anew: Spark would refuse to go on",
            hint=f"put the table back, or run 'fairlead shore rebuild {job.name}': it makes its tables again",
            job=job.name,
            tables=lost,
        )
