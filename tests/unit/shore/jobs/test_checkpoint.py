"""Reading a job's checkpoint: which batch is done, the positions of its sources, and the error if it is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from shore.errors import CheckpointDamagedError
from shore.jobs.checkpoint import (
    PARTITIONS,
    TablePosition,
    archive_checkpoint,
    commit_actions,
    complete_settings,
    has_begun,
    read_checkpoint,
    records_under_way,
    unread_rows,
    write_checkpoint,
    write_table_checkpoint,
)
from shore.jobs.runner import JOBS
from shore.jobs.state import put_aside_unneeded, renew_checkpoint
from shore.paths import TablePaths
from shore.storage import Storage
from shore.tables import TABLES
from shore.tables.model import CHANGE_FEED
from tests.support.delta_rs import create

OFFSETS = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n'


def checkpoint(folder: Path, begun: dict[int, str], done: list[int], job: str = "readings") -> TablePaths:
    """Write a checkpoint as Spark does, with these offsets by batch."""
    root = folder / "checkpoints" / job
    for name in ("offsets", "commits"):
        (root / name).mkdir(parents=True)
    (root / "metadata").write_text('{"id":"q-1"}')
    for batch, sources in begun.items():
        (root / "offsets" / str(batch)).write_text(OFFSETS + sources)
        (root / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in done:
        (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return TablePaths.of(folder)


def test_a_batch_that_is_done_and_one_under_way(tmp_path: Path) -> None:
    begun = {9: '{"containers":{"A":3}}', 10: '{"containers":{"A":7,"B":2}}'}
    found = read_checkpoint(checkpoint(tmp_path, begun, [9]), "readings")
    assert found is not None
    assert (found.query_id, found.begun, found.done, found.under_way) == ("q-1", 10, 9, True)
    assert found.positions == {"containers.A": 3}
    assert found.positions_ahead == {"containers.A": 7, "containers.B": 2}
    assert records_under_way(TablePaths.of(tmp_path), "readings") == 4 + 2
    assert found.tables == ()


def test_before_the_first_batch(tmp_path: Path) -> None:
    assert read_checkpoint(TablePaths.of(tmp_path), "readings") is None
    assert records_under_way(TablePaths.of(tmp_path), "readings") == 0
    assert read_checkpoint(checkpoint(tmp_path, {}, []), "readings") is None
    first = read_checkpoint(checkpoint(tmp_path, {0: '{"a":{"b":1}}'}, [], job="events"), "events")
    assert first is not None
    assert (first.begun, first.done, first.positions, first.positions_ahead) == (0, None, {}, {"a.b": 1})


def test_sources_that_are_tables(tmp_path: Path) -> None:
    table = '{"sourceVersion":1,"reservoirId":"t-1","reservoirVersion":5,"index":-1,"isStartingVersion":false}'
    found = read_checkpoint(checkpoint(tmp_path, {0: f"{table}\n-"}, [0], job="feeds"), "feeds")
    assert found is not None
    (only,) = found.tables
    assert (only.table_id, only.version, only.index, only.snapshot) == ("t-1", 5, -1, False)
    assert found.positions == {}


def test_settings_always_have_a_number_of_shuffle_partitions() -> None:
    assert json.loads(complete_settings("{}", "2")) == {
        "batchWatermarkMs": 0,
        "batchTimestampMs": 0,
        "conf": {PARTITIONS: "2"},
    }
    known = {"batchWatermarkMs": 7, "batchTimestampMs": 9, "conf": {PARTITIONS: "200", "a": "b"}}
    assert json.loads(complete_settings(json.dumps(known), "2")) == known


def test_what_is_written_is_read(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    positions = {"containers.A": 3, "odd": 4, "x.y/2": 5}
    write_checkpoint(paths, "readings", positions, "{}")
    found = read_checkpoint(paths, "readings")
    assert found is not None
    assert (found.positions, found.under_way) == (positions, False)
    assert archive_checkpoint(paths, "readings", "lost") == f"{paths.checkpoint('readings')}.lost"
    assert read_checkpoint(paths, "readings") is None
    assert archive_checkpoint(paths, "readings", "again") is None


def test_of_tables_spark_finds_a_batch_before_the_last_so_that_it_need_not_read_their_beginning(tmp_path: Path) -> None:
    paths, position = TablePaths.of(tmp_path), TablePosition("t-1", 5, index=-1, snapshot=False)
    write_table_checkpoint(paths, "quality", [position, position], "{}")
    found = read_checkpoint(paths, "quality")
    assert found is not None
    assert (found.begun, found.done, found.tables) == (1, 1, (position, position))
    first, second = (tmp_path / "checkpoints" / "quality" / "offsets" / name for name in "01")
    assert first.read_text() == second.read_text()


def test_a_checkpoint_takes_the_place_of_what_a_query_without_a_batch_has_left(tmp_path: Path) -> None:
    """Shore was killed while the query began."""
    paths, position = checkpoint(tmp_path, {}, [], job="feeds"), TablePosition("t-1", 5, index=-1, snapshot=False)
    assert not has_begun(paths, "feeds")
    write_table_checkpoint(paths, "feeds", [position], "{}")
    found = read_checkpoint(paths, "feeds")
    assert found is not None
    assert (found.tables, found.query_id != "q-1") == ((position,), True)


def test_a_checkpoint_that_was_written_in_part_is_none_or_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object storage, files appear one by one."""
    paths, position = TablePaths.of(tmp_path), TablePosition("t-1", 5, index=-1, snapshot=False)
    written = list[tuple[str, bytes]]()
    monkeypatch.setattr(Storage, "write", lambda self, path, content: written.append((path, content)))
    monkeypatch.setattr(Storage, "move", lambda self, folder, target: True)
    write_table_checkpoint(paths, "quality", [position], "{}")
    monkeypatch.undo()
    seen = []
    for name, content in written:
        Storage(paths.checkpoints).write(name.replace("quality.new", "quality"), content)
        found = read_checkpoint(paths, "quality")
        seen.append(None if found is None else (found.tables, found.under_way))
    whole = (position,)
    assert seen == [None, None, (whole, False), (whole, True), (whole, False)]


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("offsets/4", "", "cut off"),
        ("offsets/4", "v1", "cut off"),
        ("offsets/4", 'v1\n{"batchWatermarkMs"', "cut off"),
        ("offsets/4", "v1\n{}", "no offsets"),
        ("offsets/4", 'v1\n{}\n{"containers":{"A"', "cut off"),
        ("offsets/4", "v1\n{}\n[1]", "something else"),
        ("offsets/4", None, "not there, although the batch is done"),
        ("commits/4", "", "cut off"),
        ("commits/4", "v1\n{", "cut off"),
        ("metadata", "{", "cut off"),
        ("metadata", "{}", "cut off"),
        ("metadata", None, "not there"),
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, file: str, content: str | None, why: str) -> None:
    paths = checkpoint(tmp_path, {3: '{"a":{"b":1}}', 4: '{"a":{"b":2}}'}, [3, 4])
    damaged = tmp_path / "checkpoints" / "readings" / file
    damaged.unlink()
    if content is not None:
        damaged.write_text(content)
    with pytest.raises(CheckpointDamagedError, match=why) as error:
        read_checkpoint(paths, "readings")
    assert error.value.fields == {"job": "readings", "file": str(damaged)}
    assert "fairlead shore rebuild readings" in error.value.hint


def test_rows_that_a_job_has_still_to_read(tmp_path: Path) -> None:
    """Appended rows count; if the job follows the change data feed, rows that Spark's MERGE touched count, too."""
    for followed, merged in ((False, 0), (True, 5)):
        location = str(tmp_path / f"table-{followed}")
        configuration = {CHANGE_FEED: "true"} if followed else {}
        for mode in ("error", "append"):
            write_deltalake(location, pa.table({"n": [1, 2]}), mode=mode, configuration=configuration)
        table = DeltaTable(location)
        (add, *_) = (action["add"] for action in commit_actions(table, 1) if "add" in action)
        metrics = {"numTargetRowsInserted": "1", "numTargetRowsUpdated": "4", "numTargetRowsDeleted": "0"}
        actions = [
            {"commitInfo": {"timestamp": 1_750_000_000_000, "operation": "MERGE", "operationMetrics": metrics}},
            {"remove": {"path": add["path"], "deletionTimestamp": 1_750_000_000_000, "dataChange": True}},
            {"add": add | {"path": "merged.parquet"}},
        ]
        log = Path(location, "_delta_log", f"{2:020d}.json")
        log.write_text("\n".join(json.dumps(action) for action in actions))
        table = DeltaTable(location)
        assert unread_rows(table, TablePosition("t", 1, -1, snapshot=False))[0] == 2 + merged
        rows, since = unread_rows(table, TablePosition("t", 2, -1, snapshot=False))
        assert (rows, since is not None) == (merged, followed)
        assert unread_rows(table, TablePosition("t", 3, -1, snapshot=False)) == (0, None)
        for index, left in ((0, merged), (1, 0)):  # Spark may stop behind a commit's last file, here the second
            assert unread_rows(table, TablePosition("t", 2, index, snapshot=False))[0] == left
        cdc = {"cdc": {"path": "_change_data/cdc.parquet", "partitionValues": {}, "size": 1, "dataChange": False}}
        log.write_text("\n".join(json.dumps(action) for action in [*actions, cdc]))
        assert unread_rows(DeltaTable(location), TablePosition("t", 2, 0, snapshot=False)) == (0, None)


def test_the_checkpoint_of_a_job_without_work_is_put_aside(tmp_path: Path) -> None:
    table = '{"sourceVersion":1,"reservoirId":"t-1","reservoirVersion":5,"index":-1,"isStartingVersion":false}'
    paths = checkpoint(tmp_path, {0: table}, [0], job="feeds")
    checkpoint(tmp_path, {0: '{"a":{"b":1}}'}, [0])
    for _ in range(2):
        put_aside_unneeded(paths, [JOBS["feeds"], JOBS["readings"], JOBS["quality"]])
        assert not has_begun(paths, "feeds")
        assert has_begun(paths, "readings")  # it would read all logs again
        assert len(list((tmp_path / "checkpoints").iterdir())) == 2


READERS = sorted(name for name, job in JOBS.items() if job.inputs)


def test_jobs_that_read_no_logs_name_their_inputs() -> None:
    assert READERS == sorted(job.name for job in JOBS.values() if not job.reads_logs)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("change", ["none", "one unread", "one fewer", "one more", "another order"])
def test_a_checkpoint_of_other_inputs_is_put_aside(tmp_path: Path, name: str, change: str) -> None:
    job = JOBS[name]
    if change == "another order" and len(job.inputs) == 1:
        change = "one fewer"
    ids: list[str | None] = []
    for table in job.inputs:
        create(TABLES[table], TablePaths.of(tmp_path).table(table))
        ids.append(str(DeltaTable(TablePaths.of(tmp_path).table(table)).metadata().id))
    before: dict[str, list[str | None]] = {
        "none": ids,
        "one unread": [*ids[:-1], None],
        "one fewer": ids[:-1] or [*ids, "gone"],
        "one more": [*ids, "another"],
        "another order": [*ids[1:], ids[0]],
    }
    source = '{"sourceVersion":1,"reservoirId":"%s","reservoirVersion":5,"index":-1,"isStartingVersion":false}'
    lines = [source % each if each is not None else "-" for each in before[change]]
    paths = checkpoint(tmp_path, {0: "\n".join(lines)}, [0], job=name)
    for _ in range(2):
        renew_checkpoint(paths, job)
        assert has_begun(paths, name) is (change in ("none", "one unread"))
        assert len(list((tmp_path / "checkpoints").iterdir())) == 1  # either put aside or kept
