"""Whether the checkpoints and tables of jobs belong together, looked at before Spark is started."""

from __future__ import annotations

from collections.abc import Sequence

from shore.checkpoint import Checkpoint, read_checkpoint
from shore.errors import SplitStateError
from shore.jobs.model import Job
from shore.opened import open_table
from shore.places import Places
from shore.tablelog import table_ids
from shore.tables import TABLES

REBUILT = frozenset({"feeds"})
"""Jobs whose tables are read back from what they have written elsewhere: they may be gone."""


def check_state(places: Places, jobs: Sequence[Job]) -> None:
    """Refuse to go on where a checkpoint or a table was removed without the other, or is damaged. Only for tables on
    this machine.

    Raises:
        CheckpointDamagedError: a file that Spark would need cannot be read.
        SplitStateError: going on would repeat or lose rows.
        UnavailableError: a table cannot be opened.
    """
    if not places.is_local:
        return
    ids = table_ids(places, TABLES)
    for job in jobs:
        checkpoint = read_checkpoint(places, job.name)
        for name in job.tables:
            table = open_table(places, name)
            if checkpoint is not None and table is None and job.name not in REBUILT:
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
            _check_inputs(places, job, checkpoint, ids)


def _check_inputs(places: Places, job: Job, checkpoint: Checkpoint, ids: dict[str, str]) -> None:
    lost = [position.table_id for position in checkpoint.tables if position.table_id not in ids]
    if lost:
        for name in TABLES:
            open_table(places, name)  # one that is damaged cannot tell its id: then that is what is wrong
        raise SplitStateError(
            f"job {job.name} has read a table that is no more there, or was made anew: Spark would refuse to go on",
            hint=f"put the table back, or run 'fairlead shore rebuild {job.name}': it makes its tables again",
            job=job.name,
            tables=lost,
        )
