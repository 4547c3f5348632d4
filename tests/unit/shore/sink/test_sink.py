"""The sink's logic without Spark and Kafka: wherever a batch breaks off, each row is in its log once."""

from __future__ import annotations

import datetime as dt
import inspect
import random
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.records import headers as names
from shore.errors import ChangedBatchError, SinkOptionError, SinkRowError, StaleBatchError
from shore.sink import options as sink_options
from shore.sink.append import Found, Stamp, missing_records, stamp_of
from shore.sink.options import ROWS, by_log, check_columns, normalised_rows, parse_sink_options

APP = "arrivals"


def row(value: int) -> NewRecord:
    return NewRecord(b"%d" % value, b"k", (("a", None), ("b", b"x")), timestamp_ms=1_000 + value)


class Log:
    """A log in memory. ``try_batch`` does what the sink does, and breaks off after some records."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, records: list[NewRecord]) -> None:
        for each in records:
            self.records.append(Record(len(self.records), each.timestamp_ms, each.key, each.value, each.headers))

    def look_back(self, app: str, batch: int, window: int) -> Found:
        found, end = Found("a.log", app, batch), len(self.records)
        while end > 0:
            begin = max(0, end - window)
            if found.collect(self.records[begin:end]):
                break
            end, window = begin, window * 4
        return found

    def try_batch(
        self, rows: list[NewRecord], batch: int, *, window: int, app: str = APP, most: int | None = None
    ) -> None:
        self.append(missing_records(rows, self.look_back(app, batch, window), timed=True)[:most])

    def values(self, app: str) -> dict[int, list[bytes | None]]:
        found: dict[int, list[bytes | None]] = {}
        for record in self.records:
            stamp = stamp_of(record)
            if stamp is not None and stamp.app == app:
                batch = found.setdefault(stamp.batch, [])
                assert stamp.index == len(batch)
                batch.append(record.value)
        return found


batches = st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=5)  # few values: many are equal
crashes = st.lists(st.lists(st.integers(0, 12), max_size=3), min_size=5, max_size=5)


@given(batches, crashes, st.integers(1, 8), st.randoms(use_true_random=False), st.booleans())
def test_whatever_breaks_off_each_row_is_there_once(
    given_batches: list[list[int]], breaks: list[list[int]], window: int, chance: random.Random, others: bool
) -> None:
    """Before the first append, half-way, after the last one and before Spark noted it; with rows in another order at
    each try, and with another app writing the same log in between."""
    log = Log()
    for number, values in enumerate(given_batches):
        for most in [*breaks[number], None]:
            rows = [row(value) for value in values]
            chance.shuffle(rows)
            log.try_batch(rows, number, window=window, most=most)
            if others:
                log.append([NewRecord(b"foreign", timestamp_ms=1)])
                log.try_batch([row(77)], len(log.records), window=window, app="other")
    found = log.values(APP)
    assert {number: sorted(map(str, values)) for number, values in found.items()} == {
        number: sorted(str(b"%d" % value) for value in values) for number, values in enumerate(given_batches) if values
    }


def test_a_repeated_batch_with_other_rows_is_refused_and_nothing_is_appended() -> None:
    log = Log()
    log.try_batch([row(1), row(2), row(3)], 7, window=10, most=2)
    with pytest.raises(ChangedBatchError, match=r"2 records of batch 7 .* 1 are not among"):
        log.try_batch([row(1), row(5), row(3)], 7, window=10)
    assert len(log.records) == 2


def test_a_new_checkpoint_under_the_old_name_is_refused() -> None:
    log = Log()
    for batch in range(4):
        log.try_batch([row(batch)], batch, window=1)
    with pytest.raises(StaleBatchError, match=r"already has batch 3 .* comes batch 0"):
        log.try_batch([row(9)], 0, window=1)
    log.try_batch([row(9)], 0, window=1, app="arrivals-2")
    assert len(log.records) == 5


def test_what_retention_took_of_a_broken_off_batch_is_not_guessed() -> None:
    log = Log()
    log.try_batch([row(value) for value in range(5)], 0, window=10, most=4)
    found = Found("a.log", APP, 0)
    found.collect(log.records[2:])
    with pytest.raises(ChangedBatchError):
        missing_records([row(value) for value in range(5)], found, timed=True)


def test_times_of_the_sinks_own_making_may_differ() -> None:
    log = Log()
    log.append(missing_records([NewRecord(b"1", timestamp_ms=5)], Found("a.log", APP, 0), timed=False))
    later = [NewRecord(b"1", timestamp_ms=9), NewRecord(b"2", timestamp_ms=9)]
    (left,) = missing_records(later, log.look_back(APP, 0, 10), timed=False)
    assert (left.value, stamp_of(left)) == (b"2", Stamp(APP, 0, 1))


@given(st.binary(max_size=12))
def test_any_header_of_others_is_no_stamp_or_a_whole_one(value: bytes) -> None:
    found = stamp_of(Record(0, 0, None, None, ((names.SINK, value),)))
    assert found is None or (found.batch >= 0 and found.index >= 0)


def table(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_become_records_in_the_order_of_the_tasks() -> None:
    at = pa.array([1_772_366_400_123_456] * 2, pa.timestamp("us", tz="Europe/Athens"))
    headers = pa.array([[{"key": "h", "value": b"1"}, {"key": "sink", "value": b"old@1#2"}], None], ROWS.field(3).type)
    one = normalised_rows(
        table(topic=["a.1", "a.2"], value=["x", None], key=[b"k", None], timestamp=at, headers=headers), None
    )
    two = normalised_rows(table(value=["y"]), "a.1")
    assert by_log([one, two], 7) == {
        "a.1": [
            NewRecord(b"x", b"k", (("h", b"1"),), timestamp_ms=1_772_366_400_123),
            NewRecord(b"y", timestamp_ms=7),
        ],
        "a.2": [NewRecord(None, timestamp_ms=1_772_366_400_123)],
    }


early = pa.array([dt.datetime(1969, 1, 1, tzinfo=dt.UTC)])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (table(topic=["nolog"], value=["x"]), "topic 'nolog'"),
        (table(topic=["a." + "b" * 300], value=["x"]), "a.bbb"),
        (table(topic=pa.array([None], pa.string()), value=["x"]), "topic None"),
        (table(topic=["a.1"], value=["x"], timestamp=pa.array([None], pa.timestamp("us", tz="UTC"))), "no timestamp"),
        (table(topic=["a.1"], value=["x"], timestamp=early), "before 1970"),
        (table(topic=["a.1"], value=["x" * 1_000_000]), "more than a log takes"),
        (table(topic=["a.1"], value=["x"], headers=pa.array([[{"key": "fairlead", "value": b"filler"}]])), "not data"),
    ],
)
def test_bad_rows_are_refused_before_anything_is_appended(rows: pa.RecordBatch, told: str) -> None:
    with pytest.raises(SinkRowError, match=told):
        by_log([normalised_rows(rows, None)], 0)


def fields(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


HEADER = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def test_columns_of_the_source_itself_may_be_written() -> None:
    everything = fields(
        topic=StringType(), key=BinaryType(), value=BinaryType(), headers=HEADER, timestamp=TimestampType()
    )
    check_columns(everything, None)
    check_columns(fields(value=StringType()), "a.1")


@pytest.mark.parametrize(
    ("schema", "log", "told"),
    [
        (fields(topic=StringType(), value=StringType()), "a.1", "either option 'log' or"),
        (fields(value=StringType()), None, "either option 'log' or"),
        (fields(topic=StringType()), None, "needs a column 'value'"),
        (fields(value=LongType()), "a.1", "column 'value' is bigint"),
        (fields(value=StringType(), offset=LongType()), "a.1", "no column 'offset'"),
        (fields(value=StringType(), headers=ArrayType(StringType())), "a.1", "column 'headers' is array<string>"),
    ],
)
def test_mistakes_in_the_columns_are_named(schema: StructType, log: str | None, told: str) -> None:
    with pytest.raises(SinkOptionError, match=told):
        check_columns(schema, log)


@pytest.mark.parametrize(
    ("given_options", "told"),
    [
        ({}, "option 'app'"),
        ({"app": "a b"}, "option 'app' is 'a b'"),
        ({"app": "a", "logs": "x"}, "did you mean 'log'"),
        ({"app": "a", "log": "x"}, "<stream>.<key>"),
        ({"app": "a", "createLogs": "yes"}, "false, true"),
        ({"app": "a", "maxBytesPerBatch": "0"}, "above 0"),
    ],
)
def test_mistakes_in_the_options_are_named(given_options: dict[str, str], told: str) -> None:
    with pytest.raises(SinkOptionError) as error:
        parse_sink_options(given_options, streaming=True)
    assert told in str(error.value)


def test_the_name_of_a_query_names_its_batches() -> None:
    found = parse_sink_options({"queryname": "arrivals", "checkpointlocation": "/x", "LOG": "a.1"}, streaming=True)
    assert (found.app, found.log, found.create_logs) == ("arrivals", "a.1", False)
    assert parse_sink_options({"log": "a.1"}, streaming=False).app is None


def test_every_option_of_the_sink_is_described() -> None:
    described = re.findall(r"^``(\w+)``", inspect.getdoc(sink_options) or "", re.MULTILINE)
    with pytest.raises(SinkOptionError) as error:
        parse_sink_options({"zzz": ""}, streaming=True)
    assert error.value.hint == f"valid: {', '.join(described)}"
