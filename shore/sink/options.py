"""Options and columns of the sink ``fairlead``, checked before anything runs. Pure.

====================  ===============================================================================================
``app``               names this sequence of batches in the logs' records. Another name for each query and for each
                      new checkpoint of a query: what a log has of batch 7 of ``app`` is taken for batch 7 of this
                      query. A streaming query that has a name (``queryName``) may leave it out; a batch write without
                      it cannot be repeated safely.
``log``               the log that all rows go to; without it they need a column ``topic``
``site``              whose Kafka; must be one of the endpoints the source was registered with. Needed when there is
                      more than one.
``createLogs``        ``true``: make logs that are not there, with Fairlead's usual settings; default ``false``: fail
``maxBytesPerBatch``  at most so many bytes of keys, values and headers in one batch; default 134217728 (128 MiB). They
                      pass through the driver.
====================  ===============================================================================================

There is no option for a password: options are shown in query plans.

Columns, in any order:

- ``topic``: string; not with option ``log``
- ``value``: string or binary; null is a tombstone
- ``key``: string or binary, optional
- ``headers``: array of struct<key string, value binary>, optional; as the source gives them
- ``timestamp``: optional; without it the time of appending
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructField, StructType, TimestampType

from fairlead.kafka.protocol.record import Headers, NewRecord
from fairlead.names import MAX_TOPIC_LENGTH, parse_log
from fairlead.records import headers as names
from shore.errors import SinkOptionError, SinkRowError
from shore.source.options import known_options, one_of, positive

APP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAMES = ("app", "log", "site", "createLogs", "maxBytesPerBatch")
_MAX_BYTES = 128 << 20
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options with their types. ``app`` is None only for a batch write."""

    app: str | None
    log: str | None
    site: str | None
    create_logs: bool
    max_bytes: int


def parse_sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check the options of one ``start()`` or ``save()``. Names are compared without case, as everywhere in Spark.

    Raises:
        SinkOptionError: says which option, what it is and what is possible.
    """
    options = known_options(given, _NAMES, "the sink fairlead", SinkOptionError)
    names = {key.lower(): value for key, value in given.items()}
    app = options.get("app") or names.get("queryname")
    if app is None and streaming:
        raise SinkOptionError(
            "the sink fairlead needs option 'app' or a query name",
            hint="for example .option('app', 'arrivals-2026'); another one for each new checkpoint",
        )
    if app is not None and not APP.fullmatch(app):
        raise SinkOptionError(
            f"option 'app' is {app!r}", hint="expected up to 100 letters, digits, dots, hyphens and underscores"
        )
    log = options.get("log")
    if log is not None and not is_log(log):
        raise SinkOptionError(f"option 'log' is {log!r}", hint="expected a log's name, <stream>.<key>")
    create = one_of(options, "createLogs", ("false", "true"), SinkOptionError) == "true"
    size = positive(options, "maxBytesPerBatch", _MAX_BYTES, SinkOptionError)
    return SinkOptions(app, log, options.get("site"), create, size)


def is_log(topic: str) -> bool:
    """Whether a topic may be a log that the sink writes."""
    return len(topic) <= MAX_TOPIC_LENGTH and bool(_TOPIC.fullmatch(topic)) and parse_log(topic) is not None


MAX_RECORD_BYTES = 900_000  # of a batch in a log, before compression
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)
_TEXT = (StringType, BinaryType)
_OF: dict[str, tuple[type[DataType], ...]] = {
    "topic": (StringType,),
    "key": _TEXT,
    "value": _TEXT,
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}


def check_columns(schema: StructType, log: str | None) -> None:
    """Refuse rows that cannot become records, before anything runs.

    Raises:
        SinkOptionError: says which column, and which there may be.
    """
    hint = "columns: topic string, key and value string or binary, headers as the source gives them, timestamp"
    for field in schema.fields:
        if field.name not in _OF:
            raise SinkOptionError(f"the sink fairlead has no column {field.name!r}", hint=hint)
        if not isinstance(field.dataType, _OF[field.name]) or not (field.name != "headers" or _are_headers(field)):
            raise SinkOptionError(f"column {field.name!r} is {field.dataType.simpleString()}", hint=hint)
    if "value" not in schema.names:
        raise SinkOptionError("the sink fairlead needs a column 'value'", hint=hint)
    if ("topic" in schema.names) == (log is not None):
        raise SinkOptionError(
            "the sink fairlead needs either option 'log' or a column 'topic'", hint="and not both, which might differ"
        )


def _are_headers(field: StructField) -> bool:
    element = field.dataType.elementType if isinstance(field.dataType, ArrayType) else None
    return isinstance(element, StructType) and [(f.name, type(f.dataType)) for f in element.fields] == [
        ("key", StringType),
        ("value", BinaryType),
    ]


def normalised_rows(batch: pa.RecordBatch, log: str | None) -> pa.Table:
    """Rows in the form ``ROWS``, each checked.

    Raises:
        SinkRowError: says of the first bad row what is wrong with it.
    """
    table = pa.Table.from_batches([batch])
    if log is not None:
        table = table.append_column("topic", pa.repeat(pa.scalar(log), table.num_rows))
    timed = "timestamp" in table.column_names
    columns = [
        table.column(field.name).cast(field.type, safe=False)  # microseconds become milliseconds, Kafka's unit
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in ROWS
    ]
    rows = pa.Table.from_arrays(columns, schema=ROWS)
    for topic in pc.unique(rows["topic"]).to_pylist():
        if topic is None or not is_log(topic):
            raise SinkRowError(f"a row has the topic {topic!r}", hint="expected a log's name, <stream>.<key>")
    if timed and rows["timestamp"].null_count:
        raise SinkRowError("a row has no timestamp", hint="leave the column out to have the time of appending")
    if timed and rows.num_rows and pc.min(rows["timestamp"].cast(pa.int64())).as_py() < 0:
        raise SinkRowError("a row has a timestamp before 1970", hint="Kafka cannot store it")
    return rows


def size_of(rows: pa.Table) -> int:
    """Bytes of keys, values and headers, about: what a batch is bounded by."""
    return int(rows.nbytes)


def by_log(messages: Sequence[pa.Table], now_ms: int) -> dict[str, list[NewRecord]]:
    """All rows of a batch as records, by log, in the order of the tasks.

    Args:
        now_ms: The time of rows without one.

    Raises:
        SinkRowError: a record is larger than a log takes, or would not be data.
    """
    found: dict[str, list[NewRecord]] = {}
    for message in messages:
        for row in message.cast(ROWS).to_pylist():
            time = row["timestamp"]
            record = NewRecord(
                row["value"],
                row["key"],
                _headers(row["headers"] or ()),
                timestamp_ms=now_ms if time is None else round(time.timestamp() * 1000),
            )
            if record.size_bound() > MAX_RECORD_BYTES:
                raise SinkRowError(
                    f"a row for {row['topic']} has {record.size_bound():,} bytes, more than a log takes "
                    f"({MAX_RECORD_BYTES:,})",
                    hint="leave such rows out, or put what they hold elsewhere and its place into the log",
                )
            found.setdefault(row["topic"], []).append(record)
    return found


def _headers(given: Sequence[Mapping[str, object]]) -> Headers:
    found: list[tuple[str, bytes | None]] = []
    for each in given:
        name, value = each["key"], each["value"]
        if not isinstance(name, str):
            raise SinkRowError("a row has a header without a name", hint="Kafka cannot store it")
        if name == names.KIND:
            raise SinkRowError(
                f"a row has the header {name!r}, which marks what is not data", hint="leave this header out"
            )
        if name != names.SINK:  # copied from a log that a sink wrote: says nothing here
            found.append((name, value if isinstance(value, bytes) else None))
    return tuple(found)
