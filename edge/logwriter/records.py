"""Builds the Kafka record of each kind of entry, and reads the identity of a stored record back. Pure."""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Final

from edge.messages import MessageId
from fairlead.kafka.convention import is_data, marker_record, received_ms, time_ms
from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.records import UNREADABLE, decoder, encode, headers
from fairlead.records.alert import Alert
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, Marker, RefusalEntry, ReturnEntry
from fairlead.records.edge import DeadLetter, Stray
from fairlead.records.event import Event
from fairlead.records.reading import Base, Count, milliseconds


class _DeviceKey(Base, frozen=True, kw_only=True):
    device_id: str
    boot_id: Count
    sequence: Count


class _Identified(Base, frozen=True, kw_only=True):
    """The part of a reading, or of a ship's report, that identifies it."""

    device: _DeviceKey


_identified = decoder(_Identified)
_stray = decoder(Stray)
_event = decoder(Event)
_LATE: Final = (headers.LATE, b"1")


def published(payload: bytes, *, key: str, at_ms: int, received_ms: int) -> NewRecord:
    """Return the record of a message as it was published. ``at_ms`` is device time, ``received_ms`` the site's time."""
    return NewRecord(payload, key.encode(), ((headers.RECEIVED, b"%d" % received_ms),), timestamp_ms=at_ms)


def stray(log: str, record: NewRecord) -> NewRecord:
    """Return a reading's record wrapped for the strays log, with the same key, time and headers."""
    wrapped = Stray(
        log=log,
        payload=record.value or b"",
        received_date_time=dt.datetime.fromtimestamp(received_ms(record) / 1000, dt.UTC),
    )
    return NewRecord(encode(wrapped), record.key, record.headers, timestamp_ms=record.timestamp_ms)


def stray_event(log: str, record: NewRecord, mqtt_topic: str) -> NewRecord:
    """Return the record of an event that waits for custody, wrapped for the strays log."""
    wrapped = Stray(
        log=log,
        payload=record.value or b"",
        received_date_time=dt.datetime.fromtimestamp(received_ms(record) / 1000, dt.UTC),
        event=True,
        mqtt_topic=mqtt_topic,
    )
    return NewRecord(encode(wrapped), record.key, record.headers, timestamp_ms=record.timestamp_ms)


def event_of(payload: bytes) -> Event | None:
    """Decode the event in a stray; None when it cannot be read."""
    try:
        return _event.decode(payload)
    except UNREADABLE:
        return None


def read_stray(record: Record) -> Stray | None:
    """Decode the stray in a record of a strays log; None for a marker or filler."""
    return _stray.decode(record.value) if record.value is not None and is_data(record) else None


def drained(kept: Stray, record: Record, strays_log: str) -> NewRecord:
    """Return a stray's record for the log it belongs to, with the ORIGIN header: the strays log and offset."""
    origin = (headers.ORIGIN, f"{strays_log}@{record.offset}".encode())
    return NewRecord(kept.payload, record.key, (*record.headers, origin), timestamp_ms=time_ms(record))


def late(record: NewRecord) -> NewRecord:
    """Return the record with the LATE header: the log has a newer reading of the same device before it."""
    if is_late(record):
        return record
    return NewRecord(record.value, record.key, (*record.headers, _LATE), timestamp_ms=record.timestamp_ms)


def is_late(record: NewRecord | Record) -> bool:
    """Return whether a record has the LATE header."""
    return _LATE in record.headers


def dead(letter: DeadLetter, at_ms: int) -> NewRecord:
    return NewRecord(encode(letter), letter.mqtt_topic.encode(), timestamp_ms=at_ms)


def alert(raised: Alert) -> NewRecord:
    at_ms = milliseconds(raised.raised_date_time)
    return NewRecord(encode(raised), raised.equipment_reference.encode(), timestamp_ms=at_ms)


def digest(*parts: str) -> bytes:
    """Return the key by which equal messages without an id of their own are recognised."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).digest()


def alert_state_key(raised: Alert) -> tuple[str, str]:
    """Return the key of one state of an alert; it has the revision, because an alert may be UPDATED more than once."""
    return raised.alert_id, f"{raised.state} {raised.revision}" if raised.revision else raised.state


def ledger(entry: LedgerEntry) -> NewRecord:
    match entry:
        case CustodyEntry():
            at = entry.granted_date_time
        case ReturnEntry():
            at = entry.returned_date_time
        case RefusalEntry():
            at = entry.refused_date_time
        case ClaimEntry():
            at = entry.claimed_date_time
    return NewRecord(encode(entry), entry.log.encode(), timestamp_ms=milliseconds(at))


def marker(value: Marker) -> NewRecord:
    """Return the record of a marker. Its time is that of the event, like the times of the readings around it."""
    key = value.log.partition(".")[2].encode()
    return marker_record(encode(value), timestamp_ms=max(0, milliseconds(value.event_date_time)), key=key)


def identity(payload: bytes | None) -> MessageId | None:
    """Return the identity of a reading or of a ship's report; None for any other payload."""
    if payload is None:
        return None
    try:
        device = _identified.decode(payload).device
    except UNREADABLE:
        return None
    return MessageId(device.device_id, device.boot_id, device.sequence)


def identity_of(record: Record) -> MessageId | None:
    """Return the identity of the reading in a record; None for markers and fillers."""
    return identity(record.value) if is_data(record) else None
