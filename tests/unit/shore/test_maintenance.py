"""Compaction, vacuum, what jobs have still to read, and the rules by which schemas may change."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from fairlead.cli.app import run
from fairlead.errors import RefusedError, UnavailableError, UnknownNameError
from shore.delta.evolution import broken_rules, check_types
from shore.delta.write import append_once
from shore.errors import SchemaError
from shore.jobs.checkpoint import Checkpoint, backlog_of, commit_actions, read_checkpoint, table_ids, write_checkpoint
from shore.maintenance import compact, files_opened, plan_compaction, plan_vacuum, vacuum
from shore.paths import TablePaths
from shore.read import sql
from shore.tables import TABLES
from tests.support.tables import age

READINGS = TABLES["readings"]
NOW = dt.datetime.now(dt.UTC)


@pytest.fixture
def paths(tmp_path: Path) -> TablePaths:
    found = TablePaths.of(tmp_path)
    for name in ("readings", "events"):
        TABLES[name].create(found.table(name))
    return found


def fill(paths: TablePaths, commits: int, boxes: int = 50, table: str = "readings", first: int = 0) -> None:
    """Commits of one row a box."""
    for n in range(first, first + commits):
        rows = [
            {"log": f"c.{b:03d}", "log_offset": n, "equipment_reference": f"{b:03d}", "payload": b"x" * 20}
            for b in range(boxes)
        ]
        content = pa.Table.from_pylist(rows, schema=TABLES[table].plain_schema)
        append_once(paths.table(table), content, app="test", version=n)


def rows_of(paths: TablePaths, table: str = "readings") -> pa.Table:
    keys = [("log", "ascending"), ("log_offset", "ascending")]
    return DeltaTable(paths.table(table)).to_pyarrow_dataset().to_table().sort_by(keys)


def test_compaction_moves_rows_and_changes_none(paths: TablePaths) -> None:
    fill(paths, 12)
    fill(paths, 12, table="events")
    before = rows_of(paths), rows_of(paths, "events")
    plan = {step.table: step for step in plan_compaction(paths)}
    assert (plan["readings"].files, plan["readings"].opened) == (12, 12)
    assert "opens up to 12 files" in plan["readings"].why
    assert "12 small ones" in plan["events"].why
    for step in plan.values():
        assert compact(paths, step) == (12, 1)
        table = DeltaTable(paths.table(step.table))
        (moved,) = [one for one in commit_actions(table, table.version()) if "add" in one]
        assert moved["add"]["dataChange"] is False
    assert (rows_of(paths), rows_of(paths, "events")) == before
    assert [step.why for step in plan_compaction(paths)] == ["", ""]
    box = DeltaTable(paths.table("readings")).to_pyarrow_dataset().to_table(filter=pc.field("log") == "c.007")
    assert box.num_rows == 12
    stored = DeltaTable(paths.table("readings")).to_pyarrow_dataset().to_table()["equipment_reference"].to_pylist()
    assert stored == sorted(stored)


def test_files_that_cannot_be_filtered_are_written_again(paths: TablePaths, tmp_path: Path) -> None:
    """delta-rs's own delete writes strings as views, for which Arrow has no comparison."""
    fill(paths, 2, table="events")
    DeltaTable(paths.table("events")).delete("log_offset = 1 and log > 'c.001'")
    query = "select count(*) as n from events where log = 'c.001'"
    with pytest.raises(UnavailableError) as error:
        sql(tmp_path, query)
    assert "delta-rs's delete" in error.value.hint
    assert "fairlead shore compact --yes" in error.value.hint
    before = rows_of(paths, "events")
    (step,) = plan_compaction(paths, ["events"])
    assert (step.files, step.views) == (2, 1)
    assert "cannot be filtered" in step.why
    compact(paths, step)
    assert rows_of(paths, "events") == before
    assert sql(tmp_path, query).to_pylist() == [{"n": 2}]
    table = DeltaTable(paths.table("events"))
    assert not any(one["add"]["dataChange"] for one in commit_actions(table, table.version()) if "add" in one)
    assert [each.why for each in plan_compaction(paths, ["events"])] == [""]


def test_a_file_that_somebody_removed(paths: TablePaths, tmp_path: Path) -> None:
    fill(paths, 9, table="events")
    next(Path(paths.table("events")).glob("*.parquet")).unlink()
    (step,) = plan_compaction(paths, ["events"])
    for attempt in (lambda: compact(paths, step), lambda: sql(tmp_path, "select * from events")):
        with pytest.raises(UnavailableError, match="a table cannot be read") as error:
            attempt()
        assert "fairlead shore verify" in error.value.hint


def test_a_writer_that_is_faster(paths: TablePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(paths, 9, table="events")
    (step,) = plan_compaction(paths, ["events"])
    raced: list[int] = []

    class Raced(DeltaTable):
        def __init__(self, location: str) -> None:
            super().__init__(location)
            if len(raced) < 2:  # between opening and committing, somebody replaces all rows
                raced.append(1)
                write_deltalake(location, rows_of(paths, "events"), mode="overwrite")

    monkeypatch.setattr("shore.maintenance.DeltaTable", Raced)
    compact(paths, step)
    assert rows_of(paths, "events").num_rows == 9 * 50

    def never(*_: object, **__: object) -> None:
        raise CommitFailedError("a concurrent transaction deleted the same data")

    monkeypatch.setattr("deltalake.table.TableOptimizer.compact", never)
    with pytest.raises(UnavailableError, match="faster 5 times"):
        compact(paths, step)


def test_files_that_one_query_opens() -> None:
    assert files_opened([]) == 0
    assert files_opened([("a", "b"), ("c", "d")]) == 1
    assert files_opened([("a", "c"), ("c", "d")]) == 2
    assert files_opened([("a", "z"), ("b", "c"), ("d", "e"), ("e", "f")]) == 3


def test_vacuum_keeps_what_the_last_days_need(paths: TablePaths) -> None:
    fill(paths, 10, table="events")
    (step,) = plan_compaction(paths, ["events"])
    compact(paths, step)
    (plan,) = plan_vacuum(paths, ["events"], now=NOW)
    assert (plan.files, plan.bytes) == (0, 0)
    age(paths, "events", 8)
    fill(paths, 1, table="events", first=10)
    (plan,) = plan_vacuum(paths, ["events"], now=NOW)
    assert plan.files == 10
    assert plan.bytes is not None
    assert plan.bytes > 1000
    before = rows_of(paths, "events")
    assert vacuum(paths, plan) == 10
    assert rows_of(paths, "events") == before
    assert plan_vacuum(paths, ["events"], now=NOW)[0].files == 0
    with pytest.raises(RefusedError, match="less than 7 days ago"):
        plan_vacuum(paths, keep=dt.timedelta(hours=1), now=NOW)
    with pytest.raises(UnknownNameError):
        plan_vacuum(paths, ["event"], now=NOW)


def reading(paths: TablePaths, table: str, version: int, index: int = -1, snapshot: bool = False) -> Checkpoint:
    """The checkpoint of a job ``feeds`` that stands at this version of a table."""
    shutil.rmtree(paths.checkpoint("feeds"), ignore_errors=True)
    write_checkpoint(paths, "feeds", {}, "{}")
    source = {
        "sourceVersion": 1,
        "reservoirId": str(DeltaTable(paths.table(table)).metadata().id),
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": snapshot,
    }
    file = Path(paths.checkpoint("feeds")) / "offsets" / "0"
    file.write_text("v1\n{}\n" + json.dumps(source))
    found = read_checkpoint(paths, "feeds")
    assert found is not None
    return found


def test_vacuum_leaves_a_table_alone_that_a_job_has_to_read(paths: TablePaths) -> None:
    fill(paths, 10, table="events")
    (step,) = plan_compaction(paths, ["events"])
    compact(paths, step)
    age(paths, "events", 8)
    reading(paths, "events", 5)
    (plan,) = plan_vacuum(paths, ["events"], jobs=["feeds"], now=NOW)
    assert (plan.files, plan.why.startswith("job feeds has still to read rows of")) == (10, True)
    assert vacuum(paths, plan) == 0


def test_what_a_job_has_still_to_read(paths: TablePaths) -> None:
    fill(paths, 4, table="events")  # versions 1 to 4
    ids = table_ids(paths, TABLES)

    def rows(checkpoint: Checkpoint) -> int:
        return backlog_of(checkpoint, paths, ids).rows

    assert rows(reading(paths, "events", 1)) == 200
    done = reading(paths, "events", 5)
    assert backlog_of(done, paths, ids) == backlog_of(done, paths, ids).__class__()
    compact(paths, plan_compaction(paths, ["events"])[0])
    DeltaTable(paths.table("events")).delete("log = 'c.003'")
    assert rows(done) == 0  # rows moved or deleted are nothing to read
    fill(paths, 1, table="events", first=4)
    waiting = backlog_of(done, paths, ids)
    assert waiting.rows == 50
    assert waiting.since is not None
    assert abs(waiting.since - NOW) < dt.timedelta(hours=1)
    snapshot = reading(paths, "events", 3, index=0, snapshot=True)
    assert rows(snapshot) == 2 * 50 + 50 + 50  # of version 3 all files but one; then versions 4 and 7
    assert backlog_of(done, paths, {}).unknown == (done.tables[0].table_id,)


def test_rules_of_change() -> None:
    before = {"t": {"a": "string", "b": "int64"}, "u": {"a": "string"}}
    assert broken_rules(before, {**before, "v": {"a": "string"}}) == []
    assert broken_rules(before, {**before, "t": {**before["t"], "c": "double"}}) == []
    assert broken_rules(before, {"t": {"a": "string", "b": "int32"}}) == [
        "column t.b was int64 and is int32",
        "table u was removed",
    ]
    assert broken_rules(before, {"t": {"a": "string", "b2": "int64"}, "u": {"a": "string"}}) == [
        "column t.b was removed or renamed"
    ]


def test_a_table_of_an_older_version_gets_the_columns_it_lacks(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    old = pa.schema([field for field in READINGS.schema if field.name not in ("door_open", "origin")])
    DeltaTable.create(paths.table("readings"), schema=old)
    row = {"log": "c.1", "log_offset": 1, "payload": b"x"}
    write_deltalake(paths.table("readings"), pa.Table.from_pylist([row], schema=old), mode="append")
    READINGS.create(paths.table("readings"))
    check_types(paths)
    fill(paths, 1)
    found = DeltaTable(paths.table("readings")).to_pyarrow_dataset().to_table()
    assert set(found.schema.names) == set(READINGS.schema.names)
    assert found.schema.names[-2:] == [name for name in READINGS.schema.names if name in ("door_open", "origin")]
    assert found.num_rows == 51
    assert found["door_open"].null_count == 51


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    kinds = {field.name: field.type for field in READINGS.schema} | {"peak_g": pa.string()}
    DeltaTable.create(paths.table("readings"), schema=pa.schema(list(kinds.items())))
    with pytest.raises(SchemaError, match=r"column peak_g of table readings is .*string") as error:
        check_types(paths)
    assert error.value.fields == {"table": "readings", "column": "peak_g"}


def test_plan_then_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal")
    paths = TablePaths.of(tmp_path / "minimal")
    TABLES["events"].create(paths.table("events"))
    fill(paths, 9, table="events")
    assert run(["shore", "compact"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert run(["shore", "compact", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "make few files of 9 small ones" in " ".join(told.split())
    assert "run the same command without --dry-run" in told
    assert run(["shore", "compact", "events", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["files_after"] == 1
    assert run(["shore", "compact", "--yes"]) == 0
    assert "nothing" in capsys.readouterr().out
    age(paths, "events", 8)
    assert run(["shore", "vacuum", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["applied"], plan["tables"][0]["files"]) == (False, 9)
    assert run(["shore", "vacuum", "--yes"]) == 0
    assert "9 files of events deleted" in capsys.readouterr().out
    assert run(["shore", "vacuum", "--keep", "1h", "--yes"]) == 5
    assert run(["shore", "vacuum", "--keep", "soon", "--yes"]) == 2
    assert run(["shore", "compact", "event", "--yes"]) == 3
