"""Rows of the source: collecting records into Arrow record batches, in one of two shapes. Pure.

``RAW``: one row per data record with everything Kafka has of it, whatever it holds. ``READINGS``: the columns of the
table ``readings``, parsed. Markers and fillers are never rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from fairlead.names import parse_log
from fairlead.records import decoder, headers
from fairlead.records.reading import Reading
from shore.parsing import FastReader, read_strict
from shore.source.offsets import partition_id
from shore.tables.model import TIME, Column
from shore.tables.readings import PAYLOAD_COLUMNS, READINGS

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
RAW_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("stream", pa.string()),  # of the topic's name; null when it is no log of any stream
        pa.field("log_key", pa.string()),  # container number, site or ship of the topic's name; null likewise
        pa.field("site", pa.string()),  # whose Kafka it was read from
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIME),  # of the Kafka record: device time
        pa.field("received", TIME),  # of the bridge's header; null without one
        pa.field("term", pa.int32()),  # null for batches that Fairlead did not write
        pa.field("key", pa.binary()),
        pa.field("headers", _HEADERS),
        pa.field("value", pa.binary()),
    ]
)
READINGS_SCHEMA = READINGS.plain_schema

_DEFAULTS = {
    "reeferSettings": {},
    "reeferSettings.isDefrosting": False,
    "reeferSettings.isPreTripInspection": False,
    "isConnectedToPowerSource": True,
    "isPowered": True,
    "motion.tiltDegrees": 0.0,
    "motion.peakG": 0.0,
    "motion.freeFallSeconds": 0.0,
    "motion.immersed": False,
    "motion.doorOpen": False,
}
_NAMED = Column("named", pa.string(), "The container the payload names", path="equipmentReference")
_COLUMNS = (*PAYLOAD_COLUMNS, _NAMED)
_REQUIRED = ("equipmentReference", "device.deviceId", "device.bootId", "device.sequence", "device.deviceDateTime")


class RecordLike(Protocol):
    """What the collectors need of ``fairlead.wire.record.Record``."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class Collector(Protocol):
    """Takes data records log by log, gives them back as one record batch."""

    def add(self, topic: str, partition: int, term: int | None, records: Sequence[RecordLike]) -> None: ...
    def __len__(self) -> int: ...
    def take(self) -> pa.RecordBatch: ...


def header(record: RecordLike, name: str) -> bytes | None:
    """The last value of a header (the one that counts in Kafka); None without one."""
    found = None
    for key, value in record.headers:
        if key == name:
            found = value
    return found


def milliseconds(value: bytes | None) -> int | None:
    """A header that holds milliseconds since 1970, in the source's microseconds; None when it is no number."""
    try:
        return int(value) * 1000 if value is not None else None
    except ValueError:
        return None


class RawCollector:
    """Collects rows of ``RAW_SCHEMA``."""

    def __init__(self, site: str) -> None:
        self._site = site
        self._reset()

    def _reset(self) -> None:
        self._logs: list[tuple[str, int, int | None, int]] = []  # topic, partition, term, number of records
        self._records: list[RecordLike] = []

    def add(self, topic: str, partition: int, term: int | None, records: Sequence[RecordLike]) -> None:
        self._logs.append((topic, partition, term, len(records)))
        self._records.extend(records)

    def __len__(self) -> int:
        return len(self._records)

    def take(self) -> pa.RecordBatch:
        records = self._records
        names = [(parse_log(topic), n) for topic, _, _, n in self._logs]
        columns = [
            pa.array([topic for topic, _, _, n in self._logs for _ in range(n)], pa.string()),
            pa.array([name.stream if name else None for name, n in names for _ in range(n)], pa.string()),
            pa.array([name.key if name else None for name, n in names for _ in range(n)], pa.string()),
            pa.array([self._site] * len(records), pa.string()),
            pa.array([partition for _, partition, _, n in self._logs for _ in range(n)], pa.int32()),
            pa.array([r.offset for r in records], pa.int64()),
            pa.array([r.timestamp_ms * 1000 for r in records], TIME),
            pa.array([milliseconds(header(r, headers.RECEIVED)) for r in records], TIME),
            pa.array([term for _, _, term, n in self._logs for _ in range(n)], pa.int32()),
            pa.array([r.key for r in records], pa.binary()),
            pa.array([[{"key": k, "value": v} for k, v in r.headers] for r in records], _HEADERS),
            pa.array([r.value for r in records], pa.binary()),
        ]
        self._reset()
        return pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)


class ReadingsCollector:
    """Collects rows of ``READINGS_SCHEMA``: payloads parsed, what cannot be parsed kept with its problem."""

    def __init__(self) -> None:
        self._fast = FastReader(_COLUMNS, required=_REQUIRED, defaults=_DEFAULTS)
        self._decoder = decoder(Reading)
        self._reset()

    def _reset(self) -> None:
        self._logs: list[tuple[str, int | None, int]] = []
        self._records: list[RecordLike] = []

    def add(self, topic: str, partition: int, term: int | None, records: Sequence[RecordLike]) -> None:
        self._logs.append((partition_id(topic, partition), term, len(records)))
        self._records.extend(records)

    def __len__(self) -> int:
        return len(self._records)

    def take(self) -> pa.RecordBatch:
        records, logs = self._records, self._logs
        values = [r.value for r in records]
        parsed = self._fast.read(values) or read_strict(values, _COLUMNS, self._decoder)
        containers = [name.key if (name := parse_log(log)) else log for log, _, _ in logs]
        equipment = pa.array([c for c, (_, _, n) in zip(containers, logs, strict=True) for _ in range(n)], pa.string())
        arrays, problems = _only_own(parsed.arrays[:-1], parsed.arrays[-1], equipment, parsed.problems)
        received, late, origin = _provenance(records)
        by_name = dict(zip((c.name for c in PAYLOAD_COLUMNS), arrays, strict=True)) | {
            "log": pa.array([log for log, _, n in logs for _ in range(n)], pa.string()),
            "log_offset": pa.array([r.offset for r in records], pa.int64()),
            "term": pa.array([term for _, term, n in logs for _ in range(n)], pa.int32()),
            "equipment_reference": equipment,
            "received_date_time": pa.array(received, TIME),
            "late": pa.array(late, pa.bool_()),
            "origin": pa.array(origin, pa.string()),
            "problem": problems,
            "payload": pa.array(values, pa.binary()),
        }
        self._reset()
        return pa.RecordBatch.from_arrays([by_name[name] for name in READINGS_SCHEMA.names], schema=READINGS_SCHEMA)


def _provenance(records: Sequence[RecordLike]) -> tuple[list[int | None], list[bool], list[str | None]]:
    """Received (microseconds), late and origin of each record, from its headers."""
    received: list[int | None] = []
    late: list[bool] = []
    origin: list[str | None] = []
    for record in records:
        by_name = dict(record.headers)
        received.append(milliseconds(by_name.get(headers.RECEIVED)))
        late.append(by_name.get(headers.LATE) == b"1")
        source = by_name.get(headers.ORIGIN)
        origin.append(source.decode("utf-8", "replace") if source is not None else None)
    return received, late, origin


def _only_own(
    arrays: list[pa.Array], named: pa.Array, own: pa.Array, problems: pa.Array
) -> tuple[list[pa.Array], pa.Array]:
    """A payload that names another container than its log is a problem: its columns are null, its payload is kept."""
    strange = pc.fill_null(pc.not_equal(named, own), False)
    if not pc.any(strange).as_py():
        return arrays, problems
    text = pc.binary_join_element_wise("the payload names container ", named, "")
    problems = pc.if_else(strange, text, problems)
    return [pc.if_else(strange, pa.scalar(None, array.type), array) for array in arrays], problems
