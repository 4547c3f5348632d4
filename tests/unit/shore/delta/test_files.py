"""Data files that tasks write and the driver commits: complete, once, and with statistics that hide no row."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from shore.delta import files
from shore.delta.files import FILES_SCHEMA, ColumnBounds, FileWriter, NewFile, as_batch
from shore.delta.write import commit_files
from shore.source.readings import READINGS_SCHEMA, write_files
from shore.tables.model import TIME, Column, Table
from shore.tables.readings import READINGS, READINGS_REJECTED

THINGS = Table(
    name="things",
    title="Things",
    columns=(
        Column("name", pa.string(), "Name"),
        Column("number", pa.int64(), "Number"),
        Column("at", TIME, "When"),
        Column("note", pa.string(), "No statistics"),
    ),
    key=("name",),
    grain="One row a thing.",
    late="Never.",
    layout="None.",
    pruned_by=("name", "number", "at"),
)
NOON = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


def batch(*rows: tuple[str | None, int | None, dt.datetime | None]) -> pa.RecordBatch:
    made = [dict(zip(("name", "number", "at"), row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(made, schema=THINGS.plain_schema)


def written(folder: str, *batches: pa.RecordBatch) -> NewFile:
    writer = FileWriter(folder, THINGS)
    for each in batches:
        writer.write(each)
    file = writer.close()
    assert file is not None
    return file


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_was_written_is_there_once_it_is_committed_and_only_once(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS_PER_GROUP", 2)  # several groups a file
    location = f"{scheme}{tmp_path / 'things'}"
    THINGS.create(location)
    some = [batch(("a", n, NOON), ("b", -n, None), (None, None, NOON)) for n in range(4)]
    first, second = written(location, *some), written(location, some[0])
    assert (first.rows, second.rows) == (12, 3)
    assert first.bytes == (tmp_path / "things" / first.path).stat().st_size
    assert DeltaTable(location).to_pyarrow_dataset().count_rows() == 0
    assert commit_files(location, THINGS.schema, [first, second], app="query", version=7)
    again = written(location, some[1])
    for version in (7, 6):
        assert not commit_files(location, THINGS.schema, [again], app="query", version=version)
    found = DeltaTable(location).to_pyarrow_table()
    assert found.num_rows == 15
    assert found.schema.names == THINGS.plain_schema.names
    assert DeltaTable(location).transaction_version("query") == 7
    assert commit_files(location, THINGS.schema, [again], app="another", version=0)
    assert DeltaTable(location).to_pyarrow_dataset().count_rows() == 18


def test_statistics_let_readers_leave_files_out_and_hide_no_row(tmp_path: Path) -> None:
    location = str(tmp_path / "things")
    THINGS.create(location)
    late = NOON + dt.timedelta(microseconds=1001)
    files = [written(location, batch(("a", 1, NOON), ("b", 2, late))), written(location, batch(("z", 9, NOON)))]
    commit_files(location, THINGS.schema, files, app="query", version=0)
    told = json.loads(files[0].stats)
    assert told["numRecords"] == 2
    assert told["minValues"] == {"name": "a", "number": 1, "at": "2026-11-22T12:00:00.000Z"}
    assert told["maxValues"] == {"name": "b", "number": 2, "at": "2026-11-22T12:00:00.002Z"}
    dataset = DeltaTable(location).to_pyarrow_dataset()
    assert dataset.to_table(filter=pc.field("at") == late)["name"].to_pylist() == ["b"]
    fragments = list(dataset.get_fragments(filter=pc.field("name") == "z"))
    assert [fragment.path.rpartition("/")[2] for fragment in fragments] == [files[1].path]


VALUES = st.tuples(
    st.none() | st.text(max_size=4),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-(10**15), 10**15).map(lambda micros: NOON + dt.timedelta(microseconds=micros)),
)


@given(st.lists(st.lists(VALUES, min_size=1, max_size=5), min_size=1, max_size=3))
def test_every_value_lies_within_the_statistics(groups: list[list[Any]]) -> None:
    names = list(THINGS.pruned_by)
    bounds = ColumnBounds(names)
    for rows in groups:
        bounds.add(pa.Table.from_batches([batch(*rows)]))
    told = json.loads(json.dumps(bounds.to_delta()))
    everything = [row for rows in groups for row in rows]
    assert told["numRecords"] == len(everything)
    for place, name in enumerate(names):
        values = [row[place] for row in everything if row[place] is not None]
        assert told["nullCount"][name] == len(everything) - len(values)
        assert (name in told["minValues"]) is (name in told["maxValues"]) is bool(values)
        if not values:
            continue
        low, high = told["minValues"][name], told["maxValues"][name]
        if name == "at":
            low, high = dt.datetime.fromisoformat(low), dt.datetime.fromisoformat(high)
            assert high - max(values) < dt.timedelta(milliseconds=1)
        if name == "name":
            values, low, high = [v.encode() for v in values], low.encode(), high.encode()
        assert low <= min(values) and max(values) <= high


@pytest.mark.parametrize("table", [READINGS, READINGS_REJECTED], ids=lambda table: table.name)
def test_rows_are_found_by_every_column_whatever_has_no_statistics_or_no_value(tmp_path: Path, table: Table) -> None:
    """delta-rs takes a column that the table wants statistics of, and a file has none of, for one without values."""
    location = str(tmp_path / table.name)
    replace(table, pruned_by=()).create(location)  # as it was made by a version before
    table.create(location)
    box, log = "BIGU0000016", "containers.BIGU0000016"
    row = {"log": log, "log_offset": 7, "equipment_reference": box, "reason": "broken", "device_id": "d"}
    schema = table.plain_schema
    writer = FileWriter(location, table)
    known = {name: value for name, value in row.items() if name in schema.names}
    writer.write(pa.RecordBatch.from_pylist([known], schema=schema))
    file = writer.close()
    assert file is not None
    commit_files(location, table.schema, [file], app="query", version=0)
    dataset = DeltaTable(location).to_pyarrow_dataset()
    for name, value in known.items():
        assert dataset.to_table(filter=pc.field(name) == value).num_rows == 1, name
    among = pc.field("equipment_reference").isin([box])
    assert dataset.to_table(filter=among & pc.field("received_date_time").is_null()).num_rows == 1


def test_files_as_rows() -> None:
    files = [NewFile("things", "a.parquet", 3, 100, "{}"), NewFile("things", "b.parquet", 1, 50, "{}")]
    assert as_batch(files).to_pylist() == [file._asdict() for file in files]
    assert (as_batch([]).num_rows, as_batch([]).schema) == (0, FILES_SCHEMA)


def row(offset: int, reason: str | None = None) -> dict[str, Any]:
    return {"log": "containers.BIGU0000016", "log_offset": offset, "payload": b"{}", "reason": reason}


def rows(*some: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(some), schema=READINGS_SCHEMA)


def test_rejected_rows_go_into_a_file_of_their_own(tmp_path: Path) -> None:
    for name in ("readings", "readings_rejected"):
        (tmp_path / name).mkdir()
    files = write_files(iter([rows(row(0), row(1, "broken")), rows(row(2)), rows()]), str(tmp_path))
    assert [(file.table, file.rows) for file in files] == [("readings", 2), ("readings_rejected", 1)]
    offsets = [pq.read_table(tmp_path / file.table / file.path)["log_offset"].to_pylist() for file in files]
    assert offsets == [[0, 2], [1]]
    assert write_files(iter([rows()]), str(tmp_path)) == []


def test_a_task_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROWS_PER_GROUP", 1)
    for name in ("readings", "readings_rejected"):
        (tmp_path / name).mkdir()

    def broken() -> Any:
        yield rows(row(0), row(1, "broken"))
        assert len(list(tmp_path.rglob("*.parquet"))) == 2
        raise ConnectionError("away")

    with pytest.raises(ConnectionError, match="away"):
        write_files(broken(), str(tmp_path))
    assert list(tmp_path.rglob("*.parquet")) == []
