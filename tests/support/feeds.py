"""Reading a customer's feed as a plain consumer that forgets what is taken back: by values and offsets alone."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.wire.record import Record


def followed(feed: Iterable[Record]) -> list[Record]:
    """The data records of a feed that were not taken back; each retraction must name one that stands there."""
    has: dict[int, Record] = {}
    for record in feed:
        try:
            value = msgspec.json.decode(record.value or b"")
        except msgspec.DecodeError:
            value = None
        if isinstance(value, dict) and "retracts" in value:
            taken = has.pop(value["feedOffset"])
            assert dict(taken.headers)["origin"] == value["retracts"].encode() == dict(record.headers)["retracts"]
            assert taken.key == record.key
        else:
            has[record.offset] = record
    return list(has.values())
