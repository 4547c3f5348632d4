"""Parse the records of container logs into rows with the columns of tables ``readings`` and ``readings_rejected``.

A row with a ``reason`` belongs to ``readings_rejected``: all columns of its payload are null. Other rows belong to
``readings``: the columns that only ``readings_rejected`` has are null.

A record is rejected when it does not identify a reading of a device of this container: it has no value, no JSON object,
no container, device, boot, sequence or time, a time in the first or the last year of the calendar, names another
container than its log, or is longer than ``MOST_BYTES``. Its neighbours in the log do not matter. All other fields are
optional: fields that a newer writer adds are ignored, and fields of another type than ours are null. The payload is
kept as is.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fairlead.kafka.columnar import Columns
from fairlead.names import parse_log
from fairlead.records import UNREADABLE, decoder
from fairlead.records.reading import Base, Device, Reading, check_year
from shore.source.columns import (
    Collector,
    binary,
    chosen,
    header_lists,
    is_late,
    lines,
    log_origin,
    received,
    record_time,
    terms,
)
from shore.source.offsets import partition_id
from shore.source.parsing import TOO_LONG, FastReader, Parsed, TolerantReader, too_long, without
from shore.tables.model import Column
from shore.tables.readings import PAYLOAD_COLUMNS, READINGS, READINGS_REJECTED

ONLY_REJECTED: Final = tuple(c for c in READINGS_REJECTED.columns if c.name not in READINGS.plain_schema.names)
"""The columns that only ``readings_rejected`` has."""
READINGS_SCHEMA: Final = pa.schema([*READINGS.plain_schema, *(pa.field(c.name, c.type) for c in ONLY_REJECTED)])
REASON: Final = "reason"

_DEFAULTS: Final[dict[str, Any]] = {
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
_NAMED: Final = Column("named", pa.string(), "The container the payload names", path="equipmentReference")
_COLUMNS: Final = (*PAYLOAD_COLUMNS, _NAMED)
_REQUIRED: Final = (
    "equipmentReference",
    "device.deviceId",
    "device.bootId",
    "device.sequence",
    "device.deviceDateTime",
)
_FEW: Final = 160  # rows: reading them one by one costs no more than finding the one that the fast reader refuses
_PARTS: Final = 4


class _Device(Device, frozen=True, kw_only=True):
    """A device whose time can be converted and printed everywhere."""

    def __post_init__(self) -> None:
        check_year("deviceDateTime", self.device_date_time)


class _Whole(Reading, frozen=True, kw_only=True):
    device: _Device


class _Needed(Base, frozen=True, kw_only=True):
    """The fields that every reading must have."""

    equipment_reference: str
    device: _Device


class ReadingsCollector(Collector):
    """Collects rows of ``READINGS_SCHEMA``."""

    def __init__(self) -> None:
        super().__init__()
        self._fast = FastReader(_COLUMNS, required=_REQUIRED, defaults=_DEFAULTS)
        self._tolerant = TolerantReader(
            _COLUMNS, decoder(_Whole), msgspec.json.Decoder(_Needed), required=_REQUIRED, defaults=_DEFAULTS
        )

    def _rows(self, logs: list[tuple[str, int]], records: Columns) -> pa.RecordBatch:
        names = [partition_id(*log) for log in logs]
        containers = [name.key if (name := parse_log(log)) else log for log in names]
        equipment = chosen(pa.array(containers, pa.string()), records.stretch)
        payload = binary(records.data, records.value)
        arrays, reasons = without(_only_own(self._parse(records), equipment), too_long(payload), TOO_LONG)
        found = dict(zip((c.name for c in PAYLOAD_COLUMNS), arrays, strict=True)) | {
            "log": chosen(pa.array(names, pa.string()), records.stretch),
            "log_offset": pa.array(records.offset),
            "term": terms(records),
            "equipment_reference": equipment,
            "received_date_time": received(records),
            "late": is_late(records),
            "origin": log_origin(records),
            "payload": payload,
            "inspection": inspections(payload, pc.is_null(reasons)),
            REASON: reasons,
        }
        found |= _rejected(records, ~np.asarray(reasons.is_null()))
        return pa.RecordBatch.from_arrays([found[name] for name in READINGS_SCHEMA.names], schema=READINGS_SCHEMA)

    def _parse(self, records: Columns) -> Parsed:
        """Parse all values at once. If the fast reader refuses, parse smaller parts: few values are read one by one."""
        count = len(records)
        written = lines(records.data, records.value)
        parsed = self._fast.read(written, count) if written is not None else None
        if parsed is not None:
            return parsed
        if count <= _FEW:
            return self._tolerant.read(binary(records.data, records.value).to_pylist())
        place = np.arange(count) * _PARTS // count
        parts = [self._parse(records.where(place == part)) for part in range(_PARTS)]
        arrays = [pa.concat_arrays([part.arrays[n] for part in parts]) for n in range(len(_COLUMNS))]
        return Parsed(arrays, pa.concat_arrays([part.problems for part in parts]))


def _rejected(records: Columns, rejected: npt.NDArray[np.bool_]) -> dict[str, pa.Array]:
    """Return the columns that only rejected rows have, except ``reason``."""
    if not rejected.any():
        return {c.name: pa.nulls(len(records), c.type) for c in ONLY_REJECTED if c.name != REASON}
    some = records.where(rejected)
    of_some = {
        "record_date_time": record_time(some),
        "headers": header_lists(some),
        "record_key": binary(some.data, some.key),
    }
    place = pa.array(np.cumsum(rejected) - 1, mask=~rejected)
    return {name: values.take(place) for name, values in of_some.items()}


class _Inspected(msgspec.Struct, frozen=True):
    inspection: Any = None


_inspected: Final = msgspec.json.Decoder(_Inspected)


def inspections(payloads: pa.Array, read: pa.Array) -> pa.Array:
    """Return the inspections of each reading as JSON, whatever their form; null where it has none, or is not ``read``.

    Few readings have any, so only payloads with the word are decoded once more.
    """
    told = pc.and_(pc.match_substring(payloads, '"inspection"'), read)
    places = pc.indices_nonzero(pc.fill_null(told, False))
    found: list[str | None] = [None] * len(payloads)
    for place, payload in zip(places.to_pylist(), payloads.take(places).to_pylist(), strict=True):
        with contextlib.suppress(*UNREADABLE, ValueError, OverflowError):
            value = _inspected.decode(payload).inspection
            found[place] = None if value is None else msgspec.json.encode(value).decode()
    return pa.array(found, pa.string())


def _only_own(parsed: Parsed, own: pa.Array) -> Parsed:
    """Reject payloads that name another container than their log. Return the columns without the one that names it."""
    *arrays, named = parsed.arrays
    told = pc.binary_join_element_wise("the payload names container ", named, "")
    return without(Parsed(arrays, parsed.problems), pc.not_equal(named, own), told)
