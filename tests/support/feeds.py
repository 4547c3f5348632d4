"""Read a customer's feed like a plain consumer: drop retracted records, and records that a later revision replaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.kafka.protocol.record import Record
from fairlead.records import headers
from shore.feeds.records import parse_origin


def value_of(record: Record) -> dict[str, Any]:
    """Return the value as a JSON object; empty if it is anything else."""
    try:
        value = msgspec.json.decode(record.value or b"")
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def origins(records: Iterable[Record]) -> list[tuple[str, int]]:
    """Return the log and offset that each record names as its origin."""
    found = [parse_origin(dict(record.headers)[headers.ORIGIN]) for record in records]
    return [origin for origin in found if origin is not None]


def followed(feed: Iterable[Record]) -> list[Record]:
    """Return the data records of a feed that are still valid.

    Fails unless a retraction names the newest record of its origin, and a second record of an origin is a later
    revision.
    """
    has: dict[bytes | None, Record] = {}
    revisions: dict[bytes | None, int] = {}
    for record in feed:
        named, value = dict(record.headers), value_of(record)
        if "retracts" in value:
            taken = has.pop(named["retracts"])
            assert (taken.offset, taken.key) == (value["feedOffset"], record.key)
            assert named["retracts"] == value["retracts"].encode()
            continue
        origin = named["origin"] or b""
        # Records that are made for feeds have a "/" in their origin; a site's alert has revisions of its own.
        if "revision" in value and b"/" in origin:
            assert value["revision"] == revisions.get(origin, -1) + 1
            revisions[origin] = value["revision"]
        else:
            assert origin not in has
        has[origin] = record
    return list(has.values())
