"""Convert between a row that a customer may see and the record in its feed. Pure."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from fairlead.kafka.convention import marker_record
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.records import encode, headers
from fairlead.records.booking import Retraction
from fairlead.records.custody import Marker
from shore.feeds.readers import SHORE_LOG
from topologies.model import SHORE_ALERTS

MAX_RECORDS = 1_000  # of one append
MAX_BYTES = 500_000
_KINDS = {
    "alerts": "alert",
    "custody": "custody",
    "digests": "digest",
    "hours": "conditions",
    "milestones": "milestone",
    "movements": "movement",
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_REVISION = re.compile(rb',"revision":(\d+)\}$')
_MILLISECOND = dt.timedelta(milliseconds=1)


def feed_topic(customer: str) -> str:
    return SHORE_ALERTS if customer == SHORE_LOG.customer else f"feeds.{customer}"


def customer_of(topic: str) -> str:
    """Return whose feed a log is; the inverse of ``feed_topic``."""
    return SHORE_LOG.customer if topic == SHORE_ALERTS else topic.removeprefix("feeds.")


def new_record(row: Mapping[str, Any]) -> NewRecord:
    """Return the feed's record for a row of ``shore.feeds.entitlement.DUE``. Its timestamp is the device time."""
    if row["retracts"] is not None:
        return _retraction(row)
    extra: list[tuple[str, bytes | None]] = [(headers.ORIGIN, f"{row['log']}@{row['log_offset']}".encode())]
    if row["received_date_time"] is not None:
        extra.append((headers.RECEIVED, b"%d" % _milliseconds(row["received_date_time"])))
    if row["late"]:
        extra.append((headers.LATE, b"1"))
    value = row["payload"]
    if row["revision"] is not None:
        value = value[:-1] + b',"revision":%d}' % row["revision"]
    return NewRecord(
        value,
        row["equipment_reference"].encode(),
        tuple(extra),
        timestamp_ms=max(0, _milliseconds(row["device_date_time"])),
    )


def _retraction(row: Mapping[str, Any]) -> NewRecord:
    """A record that takes back another: by a header, and by its value for consumers that ignore headers."""
    what = f"{row['log']}@{row['log_offset']}"
    taken = Retraction(retracts=what, feed_offset=row["retracts"], equipment_reference=row["equipment_reference"])
    return NewRecord(
        encode(taken),
        row["equipment_reference"].encode(),
        ((headers.RETRACTS, what.encode()),),
        timestamp_ms=max(0, _milliseconds(row["device_date_time"])),
    )


def kind_of(log: str) -> str:
    """Return what kind of record a feed's record is, by its origin."""
    return _KINDS.get(log.partition("/" if "/" in log else ".")[0], "reading")


def given_row(customer: str, record: Record, *, with_value: bool = False) -> dict[str, Any] | None:
    """Return the row of table ``feeds`` for a data record of a customer's feed, with ``kind`` and ``value`` for the
    customer's own table. Return None for a record that names no origin: shore did not write it."""
    named = named_by(record)
    if named is None:
        return None
    log, log_offset, retracts = named
    value = record.value or b""
    return {
        "customer": customer,
        "feed_offset": record.offset,
        "log": log,
        "log_offset": log_offset,
        "equipment_reference": (record.key or b"").decode("utf-8", "replace"),
        "device_date_time": _EPOCH + record.timestamp_ms * _MILLISECOND,
        "retracts": retracts,
        **_made(log, b"" if retracts else value),
        "kind": kind_of(log) if with_value else None,
        "value": value.decode("utf-8", "replace") if with_value else None,
    }


def given_rows(records: Iterable[tuple[str, Record]], schema: pa.Schema, with_values: Collection[str] = ()) -> pa.Table:
    """Return the rows of a table, or of ``shore.sink.feed_logs.GIVEN``, for data records in customers' feeds. Records
    that shore did not write are left out.

    Args:
        with_values: Customers whose rows need ``kind`` and ``value``.
    """
    rows = (given_row(customer, record, with_value=customer in with_values) for customer, record in records)
    return pa.Table.from_pylist([row for row in rows if row is not None], schema=schema)


def _made(log: str, value: bytes) -> dict[str, Any]:
    """Columns ``revision`` and ``digest`` of a record made for the feed; null for others and for retractions."""
    found = _REVISION.search(value) if "/" in log else None
    if found is None:
        return {"revision": None, "digest": None}
    content = value[: found.start()] + b"}"
    return {"revision": int(found[1]), "digest": hashlib.md5(content, usedforsecurity=False).hexdigest()}


def named_by(record: Record | NewRecord) -> tuple[str, int, bool] | None:
    """Return the log and offset that a feed's record names, and whether it takes that record back; None without any."""
    found = dict(record.headers)
    retracts = headers.RETRACTS in found
    origin = parse_origin(found.get(headers.RETRACTS if retracts else headers.ORIGIN))
    return None if origin is None else (*origin, retracts)


def parse_origin(value: bytes | None) -> tuple[str, int] | None:
    """Split ``<log>@<offset>``; return None when it is not that."""
    if value is None:
        return None
    log, at, offset = value.decode("utf-8", "replace").rpartition("@")
    return (log, int(offset)) if at and log and offset.isdecimal() else None


def slices(records: Sequence[NewRecord]) -> Iterator[Sequence[NewRecord]]:
    """Cut a list into appends of at most ``MAX_RECORDS`` records and ``MAX_BYTES`` bytes, a larger record alone."""
    start, size = 0, 0
    for index, record in enumerate(records):
        size += record.size_bound()
        if index > start and (index - start >= MAX_RECORDS or size > MAX_BYTES):
            yield records[start:index]
            start, size = index, record.size_bound()
    if start < len(records):
        yield records[start:]


def opening(log: str, site: str, *, key: bytes | None = None, term: int = 1, from_site: str | None = None) -> NewRecord:
    """Return the marker that opens a term of a log that shore writes: its site then holds the log.

    Args:
        from_site: The site where shore ran before; None for the first term.
    """
    now = dt.datetime.now(dt.UTC)
    marker = Marker.opening(log, site, now, term=term, from_site=from_site)
    return marker_record(encode(marker), timestamp_ms=_milliseconds(now), key=key)


def restored(rows: Iterable[Mapping[str, Any]], end: int) -> Iterator[NewRecord]:
    """Yield the records of a feed from offset ``end`` on, made again from rows of ``DUE`` with ``feed_offset``.

    Args:
        rows: In the order of the feed. A row without payload that retracts nothing cannot be made again: a filler
            stands in its place, as at offsets that have no row.
    """
    for row in rows:
        offset = row["feed_offset"]
        if offset < end:
            continue
        time = max(0, _milliseconds(row["device_date_time"]))
        for _ in range(offset - end):
            yield filler(time)
        can_be_made = row["retracts"] is not None or row["payload"] is not None
        yield new_record(row) if can_be_made else filler(time)
        end = offset + 1


def filler(timestamp_ms: int) -> NewRecord:
    """Return a record that only fills an offset of a feed."""
    return NewRecord(None, None, ((headers.KIND, headers.FILLER),), timestamp_ms=timestamp_ms)


def _milliseconds(time: dt.datetime) -> int:
    return (time - _EPOCH) // _MILLISECOND
