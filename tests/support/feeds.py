"""Reading a customer's feed as a plain consumer that forgets what is taken back, and what a later revision replaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.kafka.protocol.record import Record


def value_of(record: Record) -> dict[str, Any]:
    """The value as JSON; empty where it is something else."""
    try:
        value = msgspec.json.decode(record.value or b"")
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def followed(feed: Iterable[Record]) -> list[Record]:
    """The data records of a feed that stand. A retraction must name the newest record of its origin, a later revision
    must be one."""
    has: dict[bytes | None, Record] = {}
    revisions: dict[bytes | None, int] = {}
    for record in feed:
        headers, value = dict(record.headers), value_of(record)
        if "retracts" in value:
            taken = has.pop(headers["retracts"])
            assert (taken.offset, taken.key) == (value["feedOffset"], record.key)
            assert headers["retracts"] == value["retracts"].encode()
            continue
        origin = headers["origin"]
        if "revision" in value:
            assert value["revision"] == revisions.get(origin, -1) + 1
            revisions[origin] = value["revision"]
        else:
            assert origin not in has
        has[origin] = record
    return list(has.values())
