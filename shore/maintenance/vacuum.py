"""``shore vacuum``: delete files that no version of the last days needs, and what crashed writers left behind.

Files are kept for ``KEEP`` since they were replaced: that long can readers that opened an older version go on, and
versions be looked at. A table is left alone while a job has still to read what it had before that.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from fairlead.errors import RefusedError
from shore.backlog import waiting
from shore.checkpoint import TablePosition, read_checkpoint
from shore.opened import check_tables, open_table
from shore.places import Places
from shore.tables import TABLES

KEEP: Final = dt.timedelta(days=7)
_HOUR: Final = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class VacuumStep:
    """What can be deleted of one table. ``bytes`` is None where files cannot be looked at (a storage URL). ``why`` says
    why nothing is to be deleted although something could be; empty otherwise."""

    table: str
    files: int
    bytes: int | None
    why: str = ""


def plan_vacuum(
    places: Places,
    names: Iterable[str] | None = None,
    *,
    keep: dt.timedelta = KEEP,
    force: bool = False,
    jobs: Iterable[str] = (),
    tables: Collection[str] = TABLES,
    now: dt.datetime,
) -> tuple[VacuumStep, ...]:
    """What can be deleted of these tables, or of all that are there; deletes nothing.

    Args:
        keep: For how long files are kept after they were replaced.
        force: Allow less than ``KEEP``.
        jobs: Those that read tables.
        tables: All that there can be (``shore.feeds.tables.kept_tables`` has those of customers, too).

    Raises:
        RefusedError: ``keep`` is too short.
        UnknownNameError: there is no such table.
        UnavailableError: one cannot be opened.
    """
    _check(keep, force=force)
    wanted = list(names or ())
    check_tables(wanted, tables)
    positions = _positions(places, jobs)
    steps = []
    for name in wanted or tables:
        table = open_table(places, name)
        if table is None:
            continue
        count, size = _there(places, name, _vacuum(table, keep, dry_run=True))
        steps.append(VacuumStep(name, count, size, _unread(table, positions, now - keep)))
    return tuple(steps)


def vacuum(places: Places, step: VacuumStep, *, keep: dt.timedelta = KEEP, force: bool = False) -> int:
    """Carry out one step: delete the files. Gives their number; 0 for a step that says why not."""
    _check(keep, force=force)
    if step.why:
        return 0
    _vacuum(DeltaTable(places.table(step.table)), keep, dry_run=False)
    return step.files


def _check(keep: dt.timedelta, *, force: bool) -> None:
    if keep < KEEP and not force:
        raise RefusedError(
            f"files that were replaced less than {KEEP.days} days ago may still be read: by queries that run, by jobs "
            "that were stopped, by whoever looks at yesterday's version",
            hint="--force deletes them all the same; stop shore and its readers first",
        )


def _vacuum(table: DeltaTable, keep: dt.timedelta, *, dry_run: bool) -> list[str]:
    return table.vacuum(
        retention_hours=int(keep / _HOUR), dry_run=dry_run, enforce_retention_duration=keep >= KEEP, full=True
    )


def _positions(places: Places, jobs: Iterable[str]) -> Mapping[str, list[tuple[str, TablePosition]]]:
    """Where jobs stand, by the tables' own ids."""
    found: dict[str, list[tuple[str, TablePosition]]] = {}
    for job in jobs:
        checkpoint = read_checkpoint(places, job)
        for position in checkpoint.tables if checkpoint is not None else ():
            found.setdefault(position.table_id, []).append((job, position))
    return found


def _unread(table: DeltaTable, positions: Mapping[str, list[tuple[str, TablePosition]]], before: dt.datetime) -> str:
    for job, position in positions.get(str(table.metadata().id), ()):
        try:
            rows, since = waiting(table, position)
        except FileNotFoundError:
            return f"job {job} has stood still for so long that the table's log does not reach back to it"
        if rows and (since is None or since < before):
            return (
                f"job {job} has still to read rows of {since:%Y-%m-%d %H:%M} UTC" if since else f"job {job} is behind"
            )
    return ""


def _there(places: Places, name: str, files: Sequence[str]) -> tuple[int, int | None]:
    """How many of these files are there, and their bytes: delta-rs also names those that it deleted before."""
    if not places.is_local:
        return len(files), None
    paths = [Path(places.table(name)) / file for file in files]
    sizes = [path.stat().st_size for path in paths if path.is_file()]
    return len(sizes), sum(sizes)
