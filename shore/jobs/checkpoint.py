"""Read the checkpoints of jobs without Spark: the batch that was begun, the batch that is done, and their positions.

A job's checkpoint folder holds ``metadata`` (the query's id), ``offsets/<batch>`` (written before the batch runs: a
line with the version, a line of settings, then one line of JSON for each source) and ``commits/<batch>`` (written when
the batch is done). A source is the logs (positions as ``shore.source.offsets.store`` writes them) or a Delta table
(``reservoirId`` is the table's id, ``reservoirVersion`` the version that is read next).

``backlog_of`` measures what a job has not read yet of the tables that it follows, from their Delta logs.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from fairlead.errors import first_line
from shore.errors import CheckpointDamagedError
from shore.paths import TablePaths
from shore.source.offsets import Positions, restore, store
from shore.storage import Storage
from shore.tables.model import CHANGE_FEED


def commit_actions(table: DeltaTable, version: int) -> list[dict[str, Any]]:
    """Return the actions of one commit: dicts with one key each (``add``, ``remove``, ``commitInfo``, ``txn``, ...).

    Raises:
        FileNotFoundError: the table's log no longer has the commit.
    """
    uri = table.table_uri.rstrip("/")
    here = unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
    found = Storage(here).read(f"_delta_log/{version:020d}.json")
    return [msgspec.json.decode(line) for line in found.splitlines() if line]


def table_ids(paths: TablePaths, names: Iterable[str]) -> dict[str, str]:
    """Return the names of existing tables by table id. A table that is created again has a new id."""
    found = {}
    for name in names:
        try:
            found[str(DeltaTable(paths.table(name)).metadata().id)] = name
        except DeltaError:
            continue
    return found


def table_end(paths: TablePaths, name: str) -> TablePosition:
    """Return the position of a job that has read everything that a table has now."""
    table = DeltaTable(paths.table(name))
    return TablePosition(str(table.metadata().id), table.version() + 1, index=-1, snapshot=False)


_VERSION: Final = "v1"
PARTITIONS: Final = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, slots=True)
class TablePosition:
    """A job's position in a Delta table: it has read all versions before ``version``, and of that version the files up
    to ``index`` (negative: none). ``snapshot``: the whole table as of ``version`` is read, not only the added files."""

    table_id: str
    version: int
    index: int
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A job's checkpoint. ``begun`` and ``done`` are batch numbers; None before the first.

    Args:
        sources: The offsets after batch ``done``, one for each source in the query's order: parsed JSON, or None when
            nothing of that source was ever read.
        ahead: The same after batch ``begun``. No table holds anything beyond these offsets.
    """

    job: str
    query_id: str
    begun: int | None
    done: int | None
    sources: tuple[Mapping[str, Any] | None, ...]
    ahead: tuple[Mapping[str, Any] | None, ...]

    @property
    def under_way(self) -> bool:
        """Whether a batch was begun and is not done: it runs, or was interrupted."""
        return self.begun != self.done

    @property
    def positions(self) -> Positions:
        """How far the logs are read after batch ``done``; empty for jobs that read tables."""
        return _positions(self.sources)

    @property
    def positions_ahead(self) -> Positions:
        """How far the logs are read after batch ``begun``; empty for jobs that read tables."""
        return _positions(self.ahead)

    @property
    def tables(self) -> tuple[TablePosition, ...]:
        """The positions in the tables that the job reads, after batch ``done``. Until batch 0 is done, Spark begins
        with the whole tables, in the versions whose files its offsets count."""
        if self.done is None:
            return tuple(
                replace(each, version=each.version - (not each.snapshot), index=-1, snapshot=True)
                for each in _table_positions(self.ahead)
            )
        return _table_positions(self.sources)


def _table_positions(sources: Sequence[Mapping[str, Any] | None]) -> tuple[TablePosition, ...]:
    return tuple(
        TablePosition(
            source["reservoirId"],
            int(source["reservoirVersion"]),
            int(source["index"]),
            bool(source.get("isStartingVersion", False)),
        )
        for source in sources
        if source is not None and "reservoirId" in source
    )


def read_checkpoint(paths: TablePaths, job: str) -> Checkpoint | None:
    """Return a job's checkpoint; None when it has not begun a batch yet.

    Raises:
        CheckpointDamagedError: a file that Spark needs to go on cannot be read; the error names the file.
    """
    files = Storage(paths.checkpoint(job))
    offsets, commits = _batches(files, "offsets"), _batches(files, "commits")
    if not offsets:
        return None
    begun, done = offsets[-1], commits[-1] if commits else None
    if done is not None and done > begun:
        raise _damaged(paths, job, f"offsets/{done}", "it is not there, although the batch is done")
    try:
        query_id = json.loads(files.read("metadata"))["id"]
    except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
        raise _damaged(paths, job, "metadata", _why(error)) from error
    if done is not None:
        _lines(paths, job, files, f"commits/{done}")
    ahead = _sources(paths, job, files, begun)
    sources = ahead if done == begun else _sources(paths, job, files, done) if done is not None else ()
    return Checkpoint(job, query_id, begun, done, sources, ahead)


def write_checkpoint(paths: TablePaths, job: str, positions: Positions, settings: str) -> None:
    """Write a checkpoint from which a job that reads logs continues at these positions.

    Args:
        settings: The settings line of an older checkpoint of the job, or ``{}``; see ``complete_settings``.
    """
    _write(paths, job, [store(positions)], settings, batches=1)


def write_table_checkpoint(paths: TablePaths, job: str, positions: Sequence[TablePosition], settings: str) -> None:
    """Write a checkpoint from which a job that follows tables continues at these positions.

    It has two batches. Of a query with one, Spark reads at the start what that batch had read: each input table as a
    whole, which takes 0.8 CPU-s for a small one (Spark 4.2.0, Delta 4.4.0).

    Args:
        positions: One for each of ``Job.inputs``, in their order.
        settings: As in ``write_checkpoint``.
    """
    sources = [
        {
            "sourceVersion": 1,
            "reservoirId": position.table_id,
            "reservoirVersion": position.version,
            "index": position.index,
            "isStartingVersion": position.snapshot,
        }
        for position in positions
    ]
    _write(paths, job, sources, settings, batches=2)


def complete_settings(settings: str, partitions: str) -> str:
    """Return a settings line that has a number of shuffle partitions.

    Without it, Spark 4.2 never starts a query again of which the batch after this one was interrupted: it compares the
    numbers of both batches and fails with ``None.get`` (``OfflineStateRepartitionUtils.isRepartitionBatch``). Spark
    goes on with the number that it finds.

    Args:
        settings: The settings line of an older checkpoint, or ``{}``.
        partitions: The session's ``PARTITIONS``; it counts where the line has none.
    """
    found = {"batchWatermarkMs": 0, "batchTimestampMs": 0} | json.loads(settings)
    return json.dumps(found | {"conf": {PARTITIONS: partitions} | found.get("conf", {})}, separators=(",", ":"))


def _write(paths: TablePaths, job: str, sources: Sequence[Any], settings: str, *, batches: int) -> None:
    """Write a checkpoint whose batches are done and all end at the offsets ``sources``."""
    files = Storage(paths.checkpoints)
    done = f'{_VERSION}\n{{"nextBatchWatermarkMs":0}}'
    offsets = "\n".join([_VERSION, settings, *(json.dumps(source, separators=(",", ":")) for source in sources)])
    # Without offsets the folder does not count as a checkpoint, and with any of them it is a whole one.
    contents = {"metadata": json.dumps({"id": str(uuid.uuid4())}), "commits/0": done, "offsets/0": offsets}
    for batch in range(1, batches):
        contents |= {f"offsets/{batch}": offsets, f"commits/{batch}": done}
    fresh = f"{job}.new"
    files.delete(fresh)
    folder = job if files.is_url else fresh  # a local checkpoint appears in one step, by a rename
    for name, text in contents.items():
        files.write(f"{folder}/{name}", text.encode())
    if folder != job:
        files.delete(job)  # a query that has begun no batch has left its id
        files.move(folder, job)


def records_under_way(paths: TablePaths, job: str) -> int:
    """Return how many records of logs the batch has that a job has begun and not done; more where a log had lost its
    first records before it was read."""
    checkpoint = read_checkpoint(paths, job)
    if checkpoint is None:
        return 0
    done = checkpoint.positions
    return sum(stop - done.get(log, 0) for log, stop in checkpoint.positions_ahead.items())


def settings_line(paths: TablePaths, job: str) -> str:
    """Return the settings line of the newest readable file of a checkpoint's ``offsets``; ``{}`` without one."""
    files = Storage(paths.checkpoint(job))
    for batch in reversed(_batches(files, "offsets")):
        try:
            return _lines(paths, job, files, f"offsets/{batch}")[0]
        except CheckpointDamagedError:
            continue
    return "{}"


def archive_checkpoint(paths: TablePaths, job: str, name: str) -> str | None:
    """Rename a job's checkpoint folder to ``<job>.<name>``. Return its new location; None when there was none."""
    moved = Storage(paths.checkpoints).move(job, f"{job}.{name}")
    return f"{paths.checkpoint(job)}.{name}" if moved else None


def has_begun(paths: TablePaths, job: str) -> bool:
    """Return whether the job has begun a batch."""
    return bool(_batches(Storage(paths.checkpoint(job)), "offsets"))


def _batches(files: Storage, folder: str) -> list[int]:
    return sorted(int(name) for name in files.names(folder) if name.isdecimal())


def _sources(paths: TablePaths, job: str, files: Storage, batch: int) -> tuple[Mapping[str, Any] | None, ...]:
    name = f"offsets/{batch}"
    _, *lines = _lines(paths, job, files, name)
    if not lines:
        raise _damaged(paths, job, name, "it has no offsets")
    try:
        found = [json.loads(line) if line != "-" else None for line in lines]
    except ValueError as error:
        raise _damaged(paths, job, name, _why(error)) from error
    if not all(each is None or isinstance(each, dict) for each in found):
        raise _damaged(paths, job, name, "it has something else where offsets should be")
    return tuple(found)


def _lines(paths: TablePaths, job: str, files: Storage, name: str) -> list[str]:
    """Return a file's lines after the version line, and check that the first of them is JSON."""
    try:
        version, *lines = files.read(name).decode().splitlines()
        if not version.startswith("v") or not lines:
            raise ValueError("it is cut off")
        json.loads(lines[0])
    except (FileNotFoundError, ValueError) as error:
        raise _damaged(paths, job, name, _why(error)) from error
    return lines


def _positions(sources: tuple[Mapping[str, Any] | None, ...]) -> Positions:
    logs = [source for source in sources if source is not None and "reservoirId" not in source]
    return restore(logs[0]) if logs else {}


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    return f"it is cut off or not Spark's ({first_line(error)})"


def _damaged(paths: TablePaths, job: str, name: str, why: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f"the checkpoint of job {job} is damaged: {paths.checkpoint(job)}/{name}: {why}",
        hint=f"put the file back from a copy, or run 'fairlead shore rebuild {job}': it makes the checkpoint anew from "
        "the tables and the logs, and nothing is lost or doubled",
        job=job,
        file=f"{paths.checkpoint(job)}/{name}",
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows that a job has not read, and since when the oldest waits (None: no row waits). ``unknown`` names input
    tables that are gone or were created again, or whose log no longer has the commits that the job must read."""

    rows: int = 0
    since: dt.datetime | None = None
    unknown: tuple[str, ...] = ()


def backlog_of(checkpoint: Checkpoint, paths: TablePaths, ids: Mapping[str, str]) -> Backlog:
    """Return what the job of a checkpoint has not read yet of its input tables.

    Args:
        ids: Names of tables by table id (``table_ids``).
    """
    rows, since, unknown = 0, [], []
    for position in checkpoint.tables:
        name = ids.get(position.table_id)
        if name is None:
            unknown.append(position.table_id)
            continue
        try:
            count, time = unread_rows(DeltaTable(paths.table(name)), position)
        except FileNotFoundError:
            unknown.append(name)
            continue
        rows += count
        since += [time] if count and time is not None else []
    return Backlog(rows, min(since, default=None), tuple(unknown))


def unread_rows(table: DeltaTable, position: TablePosition) -> tuple[int, dt.datetime | None]:
    """Return how many rows of a table a job at this position has not read, and when the oldest of them was written.
    Jobs follow the change data feed of a table that has one: then changed and deleted rows count as well.

    Raises:
        FileNotFoundError: the table's log no longer has a commit that the job has not read.
    """
    followed = table.metadata().configuration.get(CHANGE_FEED) == "true"
    rows, since, first = 0, None, position.version
    if position.snapshot:
        rows, since = _of_snapshot(table, position)
        first += 1
    for version in range(first, table.version() + 1):
        actions = commit_actions(table, version)
        if followed and version == position.version and position.index + 1 >= _files_of_change_feed(actions):
            continue
        if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
            if followed and (changed := _changed_rows(actions)):
                rows += changed
                since = since or max(
                    _time(action["commitInfo"]["timestamp"]) for action in actions if "commitInfo" in action
                )
            continue
        added = [action["add"] for action in actions if "add" in action and action["add"].get("dataChange", True)]
        if version == position.version:
            added = added[position.index + 1 :]
        if found := sum(_records(add) for add in added):
            rows += found
            since = since or max(_time(add["modificationTime"]) for add in added)
    return rows, since


def _files_of_change_feed(actions: Sequence[Mapping[str, Any]]) -> int:
    """Return how many files Delta's source reads of a commit: those with changes, else all added and removed ones."""
    changes = sum("cdc" in action for action in actions)
    files = (action.get("add") or action.get("remove") for action in actions)
    return changes or sum(file is not None and file.get("dataChange", True) for file in files)


def _changed_rows(actions: Iterable[Mapping[str, Any]]) -> int:
    """Return how many rows a MERGE inserted, updated and deleted, from the operation metrics of its commit."""
    infos = (action["commitInfo"] for action in actions if "commitInfo" in action)
    metrics: Mapping[str, str] = next((info.get("operationMetrics", {}) for info in infos), {})
    return sum(int(metrics.get(f"numTargetRows{what}", 0)) for what in ("Inserted", "Updated", "Deleted"))


def _of_snapshot(table: DeltaTable, position: TablePosition) -> tuple[int, dt.datetime | None]:
    """Count the rest of a table that a job reads for the first time: the whole table, oldest files first."""
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
