"""Reading tables without a JVM, on tables that delta-rs wrote."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from fairlead.errors import UnavailableError, UnknownNameError
from shore.errors import QueryError
from shore.paths import TablePaths
from shore.read import rows, sql, table, tables
from shore.tables import TABLES
from tests.support.delta_rs import append_once, create, last_version

T0 = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    paths = TablePaths.of(tmp_path)
    for each in TABLES.values():
        create(each, paths.table(each.name))
    append(tmp_path, 0, 3)
    return tmp_path


def append(folder: Path, version: int, count: int) -> bool:
    found = [
        {"log": "containers.BIGU0000016", "log_offset": i + 100 * version, "supply_temperature": float(i),
         "device_date_time": T0 + dt.timedelta(minutes=i)}
        for i in range(count)
    ]  # fmt: skip
    schema = TABLES["readings"].plain_schema
    rows = pa.Table.from_pylist(found, schema=schema)
    return append_once(TablePaths.of(folder).table("readings"), rows, app="test", version=version)


def test_tables_are_listed_with_what_they_hold(folder: Path) -> None:
    found = {info.name: info for info in tables(folder)}
    assert list(found) == list(TABLES)
    readings = found["readings"]
    assert (readings.rows, readings.version, readings.files) == (3, 1, 1)
    assert found["conditions"].rows == 0
    supply = next(c for c in readings.columns if c.name == "supply_temperature")
    assert (supply.type, supply.comment) == ("double", "Air supplied to the cargo [Cel]")
    assert next(c for c in readings.columns if c.name == "device_date_time").type == "timestamp"


def test_sql_joins_and_gives_times_in_utc(folder: Path) -> None:
    query = """select count(*) as n, max(r.device_date_time) as t, min(r.log_offset) as o
               from readings r left join alerts using (log)"""
    assert rows(sql(folder, query)) == [{"n": 3, "t": T0 + dt.timedelta(minutes=2), "o": 0}]


def test_a_query_sees_the_newest_version(folder: Path) -> None:
    append(folder, 1, 2)
    assert rows(sql(folder, "select count(*) as n from readings")) == [{"n": 5}]
    assert table(folder, "readings").count_rows() == 5


def test_a_query_opens_the_files_of_the_newest_version_and_no_others(folder: Path) -> None:
    (file,) = Path(TablePaths.of(folder).table("readings")).glob("*.parquet")
    other = file.with_name("other.parquet")
    shutil.copy(file, other)
    twice = f"select count(*) as n from readings, '{file}'"  # noqa: S608
    assert rows(sql(folder, twice)) == [{"n": 9}]
    for query in (f"from '{other}'", f"from readings, '{other}'"):
        with pytest.raises(QueryError, match="disabled"):
            sql(folder, query)


def test_columns_that_no_file_has_are_null_and_keep_their_types(folder: Path) -> None:
    place = TablePaths.of(folder).table("readings")
    old = DeltaTable(place).to_pyarrow_dataset().to_table(columns=["log", "log_offset", "device_date_time"])
    for file in Path(place).glob("*.parquet"):
        pq.write_table(old, file)
    query = "select typeof(payload) as kind, payload, device_date_time as at from readings order by log_offset limit 1"
    assert rows(sql(folder, query)) == [{"kind": "BLOB", "payload": None, "at": T0}]


@pytest.mark.parametrize("damage", ["gone", "cut off", "no Parquet"])
def test_a_file_that_cannot_be_read_is_told_as_such(folder: Path, damage: str) -> None:
    (file,) = Path(TablePaths.of(folder).table("readings")).glob("*.parquet")
    content = file.read_bytes()
    file.unlink()
    if damage != "gone":
        file.write_bytes(content[:-100] if damage == "cut off" else b"this is no table")
    with pytest.raises(UnavailableError, match="cannot be read"):
        sql(folder, "select * from readings")


@pytest.mark.parametrize("name", ["a 'quoted' name", "any*thing"])
def test_the_folder_may_have_an_odd_name(tmp_path: Path, name: str) -> None:
    create(TABLES["readings"], TablePaths.of(tmp_path / name).table("readings"))
    append(tmp_path / name, 0, 3)
    assert rows(sql(tmp_path / name, "select count(*) as n from readings")) == [{"n": 3}]


def test_a_table_with_partitions_has_their_columns(tmp_path: Path) -> None:
    place = TablePaths.of(tmp_path).table("readings")
    write_deltalake(place, pa.table({"log": ["a", "b"], "log_offset": [1, 2]}), partition_by=["log"])
    assert rows(sql(tmp_path, "select * from readings order by log")) == [
        {"log": "a", "log_offset": 1},
        {"log": "b", "log_offset": 2},
    ]


def test_a_repeated_append_is_not_done_again(folder: Path) -> None:
    assert append(folder, 1, 2) is True
    assert append(folder, 1, 2) is False
    assert append(folder, 0, 9) is False
    assert last_version(TablePaths.of(folder).table("readings"), "test") == 1
    assert rows(sql(folder, "select count(*) as n from readings")) == [{"n": 5}]


def test_an_unknown_table_is_answered_with_the_nearest(folder: Path) -> None:
    with pytest.raises(UnknownNameError) as error:
        sql(folder, "select * from reading")
    assert error.value.fields["nearest"] == "readings"
    with pytest.raises(UnknownNameError):
        table(folder, "condition")


def test_only_tables_that_a_query_can_be_about_are_opened(folder: Path) -> None:
    log = Path(TablePaths.of(folder).table("positions"), "_delta_log", f"{0:020}.json")
    log.write_text("this is no commit", encoding="utf-8")
    assert rows(sql(folder, "select count(*) as n from READINGS")) == [{"n": 3}]
    for query in ("select * from positions", "show tables"):
        with pytest.raises(UnavailableError) as error:
            sql(folder, query)
        assert "positions" in error.value.what


def test_all_tables_can_be_listed(folder: Path) -> None:
    assert {row["name"] for row in rows(sql(folder, "show tables"))} == set(TABLES)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("selec 1", "syntax error"),
        ("select supply from readings", "supply_temperature"),
        ("select 1/", "syntax error"),
        ("select * from read_csv('/etc/hostname')", "disabled"),
        ("select * from '/etc/hostname'", "no table"),
        ("copy readings to '/tmp/x.csv'", "disabled"),
        ("attach '/tmp/x.db'", "disabled"),
        ("install httpfs", "disabled"),
        ("set enable_external_access = true", "locked"),
        *(
            (change, "written by shore's jobs")
            for change in (
                "delete from readings",
                "update readings set quantity = 1",
                "insert into readings select * from readings",
                "create table mine as select 1",
                "drop view readings",
            )
        ),
        ("", "the query is empty"),
        (" -- nothing\n;", "the query is empty"),
        ("select 1; select 2", "2 queries"),
    ],
)
def test_queries_that_cannot_run_are_explained_and_reach_nothing_else(folder: Path, query: str, told: str) -> None:
    with pytest.raises((QueryError, UnknownNameError)) as error:
        sql(folder, query)
    assert told in str(error.value)


def test_local_variables_are_no_tables(folder: Path) -> None:
    hidden = pa.table({"a": [1]})
    with pytest.raises(UnknownNameError):
        sql(folder, "select * from hidden")
    assert hidden.num_rows == 1


def test_before_shore_ever_ran(tmp_path: Path) -> None:
    assert tables(tmp_path) == []
    with pytest.raises(UnavailableError) as error:
        sql(tmp_path, "select 1")
    assert "fairlead shore run" in error.value.hint
    with pytest.raises(UnavailableError):
        table(tmp_path, "readings")
