"""What a job that reads tables has not read yet, from its checkpoint and the tables' own logs; no Spark, no rows read.

Delta's streaming source reads what commits add. It passes over commits that only move rows (compaction), and with
``skipChangeCommits`` over those that change or delete some.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from shore.checkpoint import Checkpoint, TablePosition
from shore.places import Places
from shore.tablelog import commit_actions


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows that wait, and since when (None: none do). ``unknown``: tables that the job has read and that are gone, made
    anew, or whose commits that it has not read are deleted."""

    rows: int = 0
    since: dt.datetime | None = None
    unknown: tuple[str, ...] = ()


def backlog_of(checkpoint: Checkpoint, places: Places, ids: Mapping[str, str]) -> Backlog:
    """What the job of a checkpoint has not read yet.

    Args:
        ids: Tables by their own ids (``table_ids``).
    """
    rows, since, unknown = 0, [], []
    for position in checkpoint.tables:
        name = ids.get(position.table_id)
        if name is None:
            unknown.append(position.table_id)
            continue
        try:
            count, time = waiting(DeltaTable(places.table(name)), position)
        except FileNotFoundError:
            unknown.append(name)
            continue
        rows += count
        since += [time] if count and time is not None else []
    return Backlog(rows, min(since, default=None), tuple(unknown))


def waiting(table: DeltaTable, position: TablePosition) -> tuple[int, dt.datetime | None]:
    """The rows of a table that a job at this position has not read, and since when the oldest of them is there.

    Raises:
        FileNotFoundError: a commit that it has not read is not in the table's log any more.
    """
    rows, since, first = 0, None, position.version
    if position.snapshot:
        rows, since = _of_snapshot(table, position)
        first += 1
    for version in range(first, table.version() + 1):
        actions = commit_actions(table, version)
        if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
            continue
        added = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
        if version == position.version:
            added = added[position.index + 1 :]
        if found := sum(_records(add) for add in added):
            rows += found
            since = since or max(_time(add["modificationTime"]) for add in added)
    return rows, since


def _of_snapshot(table: DeltaTable, position: TablePosition) -> tuple[int, dt.datetime | None]:
    """A table that is read for the first time is read as a whole, its oldest files first."""
    then = DeltaTable(table.table_uri, version=position.version)
    files = pa.table(then.get_add_actions(flatten=True)).select(["modification_time", "path", "num_records"])
    left = files.sort_by([("modification_time", "ascending"), ("path", "ascending")]).slice(position.index + 1)
    if not left.num_rows:
        return 0, None
    return sum(left["num_records"].to_pylist()), _time(left["modification_time"][0].as_py())


def _records(add: Mapping[str, Any]) -> int:
    stats = add.get("stats")
    return int(msgspec.json.decode(stats).get("numRecords", 0)) if stats else 0


def _time(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
