"""A table of very many readings, generated as ingest leaves it: every file has a stretch of time of all boxes."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from fairlead.names import container_check_digit
from shore.delta.commit import create_table
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
