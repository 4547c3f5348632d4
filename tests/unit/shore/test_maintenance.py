"""Plans of compaction and vacuum, what jobs have still to read, and the rules by which schemas may change."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from fairlead.errors import RefusedError, UnavailableError, UnknownNameError
from shore import maintenance
from shore.delta.evolution import broken_rules, check_types
from shore.errors import SchemaError
from shore.jobs.checkpoint import Checkpoint, backlog_of, read_checkpoint, table_ids, write_checkpoint
from shore.jobs.maintenance import unread_by, unread_files
from shore.jobs.runner import JOBS
from shore.maintenance import (
    CHANGING,
    FEW,
    TIMES,
    files_opened,
    kept_since,
    plan_compaction,
    plan_expiry,
    plan_vacuum,
)
from shore.paths import TablePaths
from shore.tables import TABLES
from tests.support.delta_rs import append_once, create
from tests.support.tables import age
from topologies.model import RetainedTable

READINGS = TABLES["readings"]
NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture
def paths(tmp_path: Path) -> TablePaths:
    found = TablePaths.of(tmp_path)
    for name in ("readings", "events"):
        create(TABLES[name], found.table(name))
    return found


def fill(paths: TablePaths, commits: int, boxes: int = 50, table: str = "readings", first: int = 0) -> None:
    """Append commits of one row for each box."""
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


def test_the_plan_names_tables_with_many_small_files(paths: TablePaths) -> None:
    fill(paths, 12)
    fill(paths, 9, table="events")
    plan = {step.table: step for step in plan_compaction(paths)}
    assert (plan["readings"].files, plan["readings"].opened) == (12, 12)
    assert (plan["events"].files, plan["events"].small, plan["events"].opened) == (9, 9, None)
    assert plan["events"].why == "make few files of 9 small ones"
    assert plan_compaction(paths, ["events"])[0].bytes > 1000
    with pytest.raises(UnknownNameError):
        plan_compaction(paths, ["event"])


def test_new_files_are_put_together_apart_until_they_have_enough_for_a_large_one(
    paths: TablePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Today's rows are not to be searched for among those of many days."""
    fill(paths, 1, table="events", boxes=5_000)
    (step,) = plan_compaction(paths, ["events"])
    monkeypatch.setattr(maintenance, "NEW", replace(maintenance.NEW, small=step.bytes // 2))
    monkeypatch.setattr(maintenance, "GROWING", replace(maintenance.GROWING, small=5 * step.bytes))
    fill(paths, FEW + 1, table="events", first=1)
    (step,) = plan_compaction(paths, ["events"])
    assert (step.sizes, step.files, step.small) == (maintenance.NEW, FEW + 2, FEW + 1)
    assert step.why == f"make few files of {FEW + 1} small ones"
    fill(paths, 5, table="events", boxes=5_000, first=FEW + 2)
    (step,) = plan_compaction(paths, ["events"])
    assert (step.sizes, step.small) == (maintenance.GROWING, FEW + 7)


@pytest.mark.parametrize("sizes", [maintenance.NEW, maintenance.GROWING, maintenance.OF_CHANGING])
def test_what_is_put_together_is_full_where_it_is_not_small(sizes: maintenance.Sizes) -> None:
    """Delta makes groups of almost ``group`` bytes. One that is neither would be written again each time."""
    given = {name.rpartition(".optimize.")[2]: value for name, value in sizes.settings.items()}
    full = given["clustering.mergeStrategy.minCubeSize.threshold"]
    assert full == given["minFileSize"] == sizes.small
    assert 2 * full <= sizes.group


def test_the_plan_names_files_that_the_last_days_do_not_need(paths: TablePaths) -> None:
    fill(paths, 10, table="events")
    DeltaTable(paths.table("events")).optimize.compact()
    (plan,) = plan_vacuum(paths, ["events"], now=NOW)
    assert (plan.files, plan.bytes) == (0, 0)
    age(paths, "events", 8)
    (plan,) = plan_vacuum(paths, ["events"], now=NOW)
    assert plan.files == 10
    assert plan.bytes is not None
    assert plan.bytes > 1000
    with pytest.raises(RefusedError, match="less than 7 days ago"):
        plan_vacuum(paths, keep=dt.timedelta(hours=1), now=NOW)
    with pytest.raises(UnknownNameError):
        plan_vacuum(paths, ["event"], now=NOW)


def test_tables_with_recent_rows_are_clustered_and_no_job_follows_them() -> None:
    """Putting recent rows apart looks to a stream like a change of them."""
    followed = {name for job in JOBS.values() for name in job.inputs}
    for name in CHANGING:
        assert TABLES[name].cluster_by
        assert name in TIMES
        assert name not in followed


def test_every_table_with_a_retention_has_times() -> None:
    assert set(get_args(RetainedTable)) == set(TIMES)
    for name, columns in TIMES.items():
        assert set(columns) <= set(TABLES[name].plain_schema.names)


@pytest.mark.parametrize("content", [b"", b'{"kept_si', b"\xff\xfe", b'{"kept_since": 3}'])
def test_a_limit_that_cannot_be_read_is_not_taken_for_none(content: bytes, paths: TablePaths) -> None:
    """An earlier release could leave a file cut off when the disk was full. Jobs would delete what stays for it."""
    file = Path(paths.base) / "retention" / "readings.json"
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(UnavailableError) as error:
        kept_since(paths, "readings")
    assert str(file) in error.value.what
    (written,) = re.findall(r"\{.*\}", error.value.hint)
    file.write_text(written, encoding="utf-8")
    assert kept_since(paths, "readings") == dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def test_files_that_one_query_opens() -> None:
    assert files_opened([]) == 0
    assert files_opened([("a", "b"), ("c", "d")]) == 1
    assert files_opened([("a", "c"), ("c", "d")]) == 2
    assert files_opened([("a", "z"), ("b", "c"), ("d", "e"), ("e", "f")]) == 3


def reading(paths: TablePaths, table: str, version: int, index: int = -1, snapshot: bool = False) -> Checkpoint:
    """Return the checkpoint of a job ``feeds`` at this version of a table."""
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


def test_what_a_job_has_still_to_read(paths: TablePaths) -> None:
    fill(paths, 4, table="events")  # versions 1 to 4
    ids = table_ids(paths, TABLES)

    def rows(checkpoint: Checkpoint) -> int:
        return backlog_of(checkpoint, paths, ids).rows

    assert rows(reading(paths, "events", 1)) == 200
    done = reading(paths, "events", 5)
    assert backlog_of(done, paths, ids) == backlog_of(done, paths, ids).__class__()
    DeltaTable(paths.table("events")).optimize.compact()
    DeltaTable(paths.table("events")).delete("log = 'c.003'")
    assert rows(done) == 0  # jobs do not read rows that were moved or deleted
    fill(paths, 1, table="events", first=4)
    waiting = backlog_of(done, paths, ids)
    assert waiting.rows == 50
    assert waiting.since is not None
    assert abs(waiting.since - NOW) < dt.timedelta(hours=1)
    snapshot = reading(paths, "events", 3, index=0, snapshot=True)
    assert rows(snapshot) == 2 * 50 + 50 + 50  # of version 3 all files but one; then versions 4 and 7
    assert backlog_of(done, paths, {}).unknown == (done.tables[0].table_id,)


def test_vacuum_waits_for_a_job_that_has_not_done_its_first_batch(paths: TablePaths) -> None:
    fill(paths, 3, table="events")
    DeltaTable(paths.table("events")).optimize.compact()  # version 4
    age(paths, "events", 8)
    for version, snapshot in ((3, True), (4, False)):  # Spark's offsets after a part of version 3, and after all of it
        reading(paths, "events", version, snapshot=snapshot)
        (Path(paths.checkpoint("feeds")) / "commits" / "0").unlink()
        (plan,) = plan_vacuum(paths, ["events"], unread=unread_by(paths, ["feeds"]), now=NOW)
        assert (plan.files, plan.why.startswith("job feeds has still to read rows of")) == (3, True)


def test_retention_waits_for_jobs_that_have_still_to_read_what_it_deletes(paths: TablePaths) -> None:
    def written(version: int, ago: int, table: str = "readings") -> None:
        time = NOW - ago * DAY
        row = {"log": "c.0", "log_offset": version, "device_date_time": time, "received_date_time": time}
        content = pa.Table.from_pylist([row], READINGS.plain_schema)
        append_once(paths.table(table), content, app="test", version=version)

    def why(version: int, *, snapshot: bool = False) -> str:
        reading(paths, "readings", version, snapshot=snapshot)
        (step,) = plan_expiry(paths, {"readings": 30 * DAY}, unread=unread_files(paths, ["feeds"]), now=NOW)
        assert step.files == 1
        return step.why

    written(1, 100)
    waits = "job feeds has still to read rows of it"
    assert [why(0), why(1), why(1, snapshot=True), why(2)] == [waits, waits, waits, ""]
    written(2, 1)
    assert [why(1), why(2), why(3)] == [waits, "", ""]  # what is unread in version 2 is not old
    DeltaTable(paths.table("readings")).optimize.compact()
    assert [why(2), why(3), why(4)] == [waits, "", ""]  # a compaction has put both into one file


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


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    paths = TablePaths.of(tmp_path)
    kinds = {field.name: field.type for field in READINGS.schema} | {"peak_g": pa.string()}
    DeltaTable.create(paths.table("readings"), schema=pa.schema(list(kinds.items())))
    with pytest.raises(SchemaError, match=r"column peak_g of table readings is .*string") as error:
        check_types(paths)
    assert error.value.fields == {"table": "readings", "column": "peak_g"}


@pytest.mark.parametrize(
    ("measured", "received", "files"),
    [
        (NOW - 60 * DAY, NOW - 60 * DAY, 1),
        (NOW - 60 * DAY, None, 1),
        (None, NOW - 60 * DAY, 1),
        (NOW - 60 * DAY, NOW, 0),
        (None, NOW, 0),
        (None, None, 0),
    ],
)
def test_files_are_looked_at_for_expiry_where_a_row_may_have_only_old_times(
    paths: TablePaths, measured: dt.datetime | None, received: dt.datetime | None, files: int
) -> None:
    row = {"log": "c.0", "log_offset": 1, "device_date_time": measured, "received_date_time": received}
    append_once(paths.table("readings"), pa.Table.from_pylist([row], READINGS.plain_schema), app="test", version=0)
    (step,) = plan_expiry(paths, {"readings": 30 * DAY}, now=NOW)
    assert step.files == files
