"""The batches of jobs ``readings`` and ``operations``, without a broker: what they append, and what a crash leaves."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from shore.delta.commit import create_tables
from shore.delta.lake import Lake
from shore.jobs import operations, readings
from shore.paths import TablePaths
from shore.source.operations import rows_of
from shore.source.readings import READINGS_SCHEMA
from shore.tables.custody import CUSTODY
from shore.tables.operations import ALERTS, CUSTODY_ENTRIES, OPERATIONS
from shore.tables.readings import READINGS, READINGS_REJECTED
from tests.support.crashes import crash_everywhere
from tests.support.delta_rs import append_once, create
from tests.support.ledgers import entry
from tests.support.shore.raw_records import RECORDS, raw

pytestmark = [pytest.mark.integration, pytest.mark.spark]

QUERY = "0d5d3c1e-1111-4222-8333-444455556666"
AT = dt.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
GOOD = {
    "log": "containers.BIGU0000016",
    "term": 3,
    "equipment_reference": "BIGU0000016",
    "device_id": "d1",
    "boot_id": 2,
    "device_date_time": AT,
    "supply_temperature": 4.25,
    "is_powered": True,
    "received_date_time": AT + dt.timedelta(seconds=1.5),
    "late": False,
    "payload": b'{"a": "\xc3\xa9"}',
}
BAD = {
    "log": "containers.BIGU0000016",
    "equipment_reference": "BIGU0000016",
    "reason": "the record has no value",
    "record_date_time": AT,
    "headers": [{"key": "trace", "value": b"\xff"}, {"key": "empty", "value": None}],
    "record_key": b"key",
}


@pytest.fixture
def of_a_query(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session as a batch of a streaming query has it."""
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", QUERY)
    yield spark
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]  # takes it away


@pytest.fixture
def paths(spark: SparkSession, tmp_path: Path) -> TablePaths:
    found = TablePaths.of(tmp_path)
    tables = (READINGS, READINGS_REJECTED, CUSTODY, *(operation.table for operation in OPERATIONS))
    create_tables(spark, {found.table(table.name): table for table in tables})
    return found


def stored(paths: TablePaths, table: str) -> list[dict[str, Any]]:
    rows = DeltaTable(paths.table(table)).to_pyarrow_dataset().to_table()
    found: list[dict[str, Any]] = rows.sort_by([("log", "ascending"), ("log_offset", "ascending")]).to_pylist()
    return found


def commits(paths: TablePaths, table: str) -> int:
    return DeltaTable(paths.table(table)).version()


def batch_of(spark: SparkSession, *rows: dict[str, Any]) -> Any:
    """Return rows as the source gives them, at the offsets 0, 1, ..."""
    numbered = [{**row, "log_offset": row.get("log_offset", n)} for n, row in enumerate(rows)]
    return spark.createDataFrame(pa.Table.from_pylist(numbered, schema=READINGS_SCHEMA))


def test_rows_come_into_their_tables_as_they_are(of_a_query: SparkSession, paths: TablePaths) -> None:
    readings.store(batch_of(of_a_query, GOOD, BAD, GOOD), 0, paths)
    first, second = stored(paths, "readings")
    assert {name: value for name, value in first.items() if value is not None} == GOOD | {"log_offset": 0}
    assert second == first | {"log_offset": 2}
    assert list(first) == READINGS.plain_schema.names
    (bad,) = stored(paths, "readings_rejected")
    assert {name: value for name, value in bad.items() if value is not None} == BAD | {"log_offset": 1}


def test_a_batch_without_rejected_records_is_one_commit(of_a_query: SparkSession, paths: TablePaths) -> None:
    before = commits(paths, "readings"), commits(paths, "readings_rejected")
    for _ in range(2):
        readings.store(batch_of(of_a_query, GOOD), 0, paths)
    assert (commits(paths, "readings"), commits(paths, "readings_rejected")) == (before[0] + 1, before[1] + 1)
    assert len(stored(paths, "readings")) == 1  # a repeat cannot know that none was rejected and commits
    for _ in range(2):
        readings.store(batch_of(of_a_query, GOOD), 0, paths)
    assert (commits(paths, "readings"), commits(paths, "readings_rejected")) == (before[0] + 1, before[1] + 1)


def test_a_crash_at_every_append_of_readings(of_a_query: SparkSession, paths: TablePaths) -> None:
    sent = {"readings": 0, "readings_rejected": 0}

    def batch(number: int) -> Callable[[], None]:
        rows = [{**row, "log_offset": 10 * number + n} for n, row in enumerate((GOOD, BAD, GOOD))]
        sent["readings"] += 2
        sent["readings_rejected"] += 1
        frame = batch_of(of_a_query, *rows)
        return lambda: readings.store(frame, number, paths)

    def check() -> None:
        for table, count in sent.items():
            offsets = [row["log_offset"] for row in stored(paths, table)]
            assert len(offsets) == len(set(offsets)) == count

    assert crash_everywhere(batch, check) == 2


def test_a_batch_that_an_older_version_began_is_not_repeated(of_a_query: SparkSession, tmp_path: Path) -> None:
    """The older version created tables and committed by delta-rs, to ``readings_rejected`` first; it may have crashed
    after either commit."""
    paths = TablePaths.of(tmp_path)
    for table in (READINGS, READINGS_REJECTED):
        create(table, paths.table(table.name))
    rows = [{**row, "log_offset": n} for n, row in enumerate((GOOD, BAD))]
    for number, tables in enumerate(((READINGS_REJECTED,), (READINGS_REJECTED, READINGS))):
        for table in tables:
            own = [row for row in rows if ("reason" in row) == (table is READINGS_REJECTED)]
            content = pa.Table.from_pylist(own, schema=table.plain_schema)
            append_once(paths.table(table.name), content, app=QUERY, version=number)
        readings.store(batch_of(of_a_query, *rows), number, paths)
        assert [len(stored(paths, name)) for name in ("readings", "readings_rejected")] == [number + 1, number + 1]


@pytest.mark.long
def test_each_operations_table_gets_what_is_its_own(of_a_query: SparkSession, paths: TablePaths) -> None:
    records = raw(*RECORDS, ("bookings.hq", b"{"), ("ships.9074729.engine", b"{}"), ("xbookings.hq", b"{}"))
    operations.write(of_a_query.createDataFrame(records), 0, Lake(of_a_query, paths))
    for operation in OPERATIONS:
        expected = rows_of(operation, records).sort_by([("log", "ascending"), ("log_offset", "ascending")])
        assert stored(paths, operation.table.name) == expected.to_pylist()
        assert expected.num_rows == (2 if operation.table.name == "booking_changes" else 1)
        assert commits(paths, operation.table.name) == 1
    operations.write(of_a_query.createDataFrame(raw(RECORDS[0])), 1, Lake(of_a_query, paths))
    assert [commits(paths, operation.table.name) for operation in OPERATIONS] == [2, 1, 1, 1, 1, 1, 1]


def test_a_crash_at_every_append_of_operations(of_a_query: SparkSession, paths: TablePaths) -> None:
    tables = (ALERTS, CUSTODY_ENTRIES)
    sent = 0

    def batch(number: int) -> Callable[[], None]:
        nonlocal sent
        moved = msgspec.structs.replace(entry(number + 1, number * 10, "tokyo", "GTIN"), log="containers.BIGU0000016")
        records = raw(RECORDS[0], ("custody.tokyo", moved))
        offsets = pc.add(records["offset"], number * 1000)
        rows = records.set_column(records.schema.names.index("offset"), "offset", offsets)
        sent += rows.num_rows
        frame = of_a_query.createDataFrame(rows)
        return lambda: operations.write(frame, number, Lake(of_a_query, paths))

    def check() -> None:
        keys = [(row["log"], row["log_offset"]) for table in tables for row in stored(paths, table.name)]
        assert len(keys) == len(set(keys)) == sent

    assert crash_everywhere(batch, check) == len(tables)
