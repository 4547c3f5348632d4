"""Part ``point_query``: one container among 100 million readings, through ``shore.read.sql`` (delta-rs and DuckDB).

The table is generated as ingest leaves it, every file with a stretch of time of all boxes, then put together by
``shore.maintenance``, which is what ``fairlead shore compact`` does: a sort in 1 GB of memory that writes the
rest aside, several times as much as the table takes. The same query is asked before (once) and after (of many boxes),
each time as a user asks it: tables are opened, the query runs, all rows of all columns but the payload come back as
Arrow. ``point_query_seconds`` is the slowest of those after clustering.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.harness import FOLDER, Say
from fairlead.errors import UnavailableError
from fairlead.names import container_check_digit
from shore.delta.commit import create_table
from shore.maintenance import compact, maintenance_session, plan_compaction
from shore.paths import TablePaths
from shore.read import sql
from shore.session import close, spark
from shore.tables.readings import READINGS

FIRST = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
INTERVAL = dt.timedelta(minutes=5)

_AIR = "{base} + 0.1 * (hash(i * 31 + t * 7 + {salt}) % 9)::int"
_VALUES = {
    "log": "log",
    "log_offset": "(t + t // 400)::bigint",  # a marker now and then
    "term": "(t // 400)::int",
    "equipment_reference": "number",
    "device_id": "device",
    "boot_id": "1::bigint",
    "sequence": "t::bigint",
    "device_date_time": "measured",
    "supply_temperature": f"round({_AIR.format(base='setpoint - 0.4', salt=1)} + if(defrost, 3.0, 0), 1)",
    "return_temperature": f"round({_AIR.format(base='setpoint + 0.3', salt=2)} + if(defrost, 5.0, 0), 1)",
    "ambient_temperature": "round(18 + 8 * sin(t / 45.8), 1)",
    "relative_humidity": "(85 + hash(i * 13 + t) % 8)::double",
    "setpoint_temperature": "setpoint",
    "is_defrosting": "defrost",
    "is_connected_to_power_source": "hash(i + t) % 500 <> 0",
    "is_powered": "hash(i + t) % 500 <> 0",
    "latitude": "round(35.6 - ship - t * 0.002, 3)",
    "longitude": "round(139.8 + ship - t * 0.004, 3)",
    "tilt_degrees": "(0.1 * (hash(t * 11 + ship) % 90))::double",
    "peak_g": "(0.01 * (hash(t * 17 + i) % 40))::double",
    "free_fall_seconds": "0.0::double",
    "immersed": "false",
    "door_open": "false",
    "received_date_time": "measured + to_milliseconds((200 + hash(i * 3 + t * 5) % 3000)::bigint)",
    "late": "hash(i * 5 + t) % 1000 = 0",
    "payload": """encode('{"sequence":' || t || ',"supply":' || round(hash(i * 31 + t) % 300 / 10, 1) || '}')""",
}


def numbers(boxes: int) -> list[str]:
    """That many valid ISO 6346 container numbers, ascending."""
    tens = (f"MSKU{index:06d}" for index in range(boxes))
    return [ten + container_check_digit(ten) for ten in tens]


def generate(session: SparkSession, location: str, rows: int, *, boxes: int, file_rows: int) -> None:
    """Create the table at ``location`` and fill it with ``rows`` readings of ``boxes`` boxes.

    Args:
        rows: Rounded down to a multiple of ``boxes``.
        file_rows: About how many rows a commit, which is one file, has.
    """
    create_table(session, READINGS, location)
    per_box = rows // boxes
    step = max(1, file_rows // boxes)
    known = _boxes(boxes)

    def append(first: int) -> None:
        with tempfile.TemporaryDirectory() as scratch, duckdb.connect(":memory:") as connection:
            connection.execute("set timezone = 'UTC'")
            connection.register("boxes", known)
            file = Path(scratch) / "stretch.parquet"
            batches = _stretch(connection, first, min(first + step, per_box))
            with pq.ParquetWriter(file, batches.schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            # Spark appends them: delta-rs cannot write to clustered tables.
            session.read.parquet(str(file)).coalesce(1).write.format("delta").mode("append").save(location)

    with ThreadPoolExecutor(2) as pool:  # a stretch is made while Spark writes another
        list(pool.map(append, range(0, per_box, step)))


def _boxes(count: int) -> pa.Table:
    names = numbers(count)
    return pa.table(
        {
            "i": pa.array(range(count), pa.int64()),
            "number": names,
            "log": [f"containers.{name}" for name in names],
            "device": [f"sensor-{name}" for name in names],
            "setpoint": pa.array([(-18.0, 2.0, 5.0, 13.0)[index % 4] for index in range(count)]),
            "ship": pa.array([index % 40 for index in range(count)], pa.int64()),
        }
    )


def _stretch(connection: duckdb.DuckDBPyConnection, since: int, until: int) -> pa.RecordBatchReader:
    """The readings ``since`` to ``until`` (exclusive) of every box, in order of time as they were read."""
    columns = ", ".join(
        f"({_VALUES.get(field.name, 'null')})::{_sql_type(field.type)} as {field.name}" for field in READINGS.schema
    )
    query = f"""
        select {columns}
        from (
            select *, $first::timestamptz + to_microseconds((t * $interval + i * 7919 % $interval)::bigint) as measured,
                (t + i) % 72 < 4 as defrost
            from range($since, $until) as times(t), boxes
        )
    """  # noqa: S608 - of our own names
    values = {"first": FIRST, "interval": INTERVAL // dt.timedelta(microseconds=1), "since": since, "until": until}
    reader: pa.RecordBatchReader = connection.sql(query, params=values).to_arrow_reader(100_000)
    return pa.RecordBatchReader.from_batches(READINGS.plain_schema, _cast(reader))


def _cast(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        yield batch.cast(READINGS.plain_schema)


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamptz"
    names = {"string": "varchar", "int64": "bigint", "int32": "int", "bool": "boolean", "binary": "blob"}
    return names.get(str(kind), str(kind))


_TARGET: Final = 2.0
_BYTES_A_ROW: Final = 360  # 50 of the table before and after it is put together, and 260 that the sort writes aside


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--point-rows", type=int, default=100_000_000, help="readings in the table of point_query")
    parser.add_argument("--point-boxes", type=int, default=20_000, help="containers among them")
    parser.add_argument("--point-queries", type=int, default=20, help="containers that are asked for")
    parser.add_argument(
        "--point-folder",
        type=Path,
        default=FOLDER,
        help="a disk for the table and what sorting it writes aside: 36 GB for 100 million readings",
    )


def measure(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    rows, boxes = options.point_rows, options.point_boxes
    options.point_folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fairlead-point-", dir=options.point_folder))
    os.environ["TMPDIR"] = str(folder)  # delta-rs spills there; memory, where tests have it, has not that much room
    try:
        _check_room(folder, rows)
        return _measure(folder, rows // boxes * boxes, boxes, options.point_queries, say)
    finally:
        shutil.rmtree(folder)


def _measure(folder: Path, rows: int, boxes: int, queries: int, say: Say) -> dict[str, Any]:
    paths = TablePaths.of(folder)
    location = paths.table("readings")
    say(f"generating {rows:,} readings of {boxes:,} containers in {folder}")
    began = time.perf_counter()
    session = spark(folder)
    generate(session, location, rows, boxes=boxes, file_rows=1_000_000)
    generated = time.perf_counter() - began
    names = numbers(boxes)
    asked = names[7 :: max(1, boxes // queries)][:queries]
    before, bytes_before = _ask(folder, asked[0], rows // boxes), _bytes(location)
    say(f"{bytes_before / 1e9:.2f} GB after {generated:.0f} s; one query before clustering: {before:.2f} s")
    began = time.perf_counter()
    (step,) = plan_compaction(paths, ["readings"])
    files_before, files = compact(maintenance_session(session), paths, step)
    close(session)
    clustered = time.perf_counter() - began
    say(f"put together in {clustered:.0f} s: {files_before} files, now {files}")
    taken = [_ask(folder, name, rows // boxes) for name in asked]
    return {
        "point_query_seconds": round(max(taken), 3),
        "median_seconds": round(statistics.median(taken), 3),
        "before_clustering_seconds": round(before, 3),
        "queries": len(taken),
        "rows": rows,
        "containers": boxes,
        "rows_a_query": rows // boxes,
        "columns": len(DeltaTable(location).schema().fields),
        "files": {"before": files_before, "after": files},
        "gigabytes": {"before": round(bytes_before / 1e9, 2), "after": round(_bytes(location) / 1e9, 2)},
        "generating_seconds": round(generated, 1),
        "clustering_seconds": round(clustered, 1),
        "peak_memory_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "target": {"point_query_seconds": _TARGET},
        "met": max(taken) <= _TARGET,
    }


def _ask(folder: Path, number: str, expected: int) -> float:
    """Seconds until all readings of one container are there."""
    query = f"""
        select * exclude (payload) from readings where equipment_reference = '{number}'
        order by device_date_time, log_offset
    """  # noqa: S608  # a number of ours
    began = time.perf_counter()
    found = sql(folder, query)
    taken = time.perf_counter() - began
    if found.num_rows != expected:
        raise UnavailableError(f"{number} has {found.num_rows:,} readings instead of {expected:,}")
    return taken


def _bytes(location: str) -> int:
    """What the table's newest version takes."""
    import pyarrow as pa

    return sum(pa.table(DeltaTable(location).get_add_actions(flatten=True))["size_bytes"].to_pylist())


def _check_room(folder: Path, rows: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < rows * _BYTES_A_ROW:
        raise UnavailableError(
            f"{folder} has room for {free / 1e9:.1f} GB, and {rows * _BYTES_A_ROW / 1e9:.1f} GB may be needed",
            hint="--point-folder names another place, --point-rows makes it smaller",
        )
