"""Payloads of every log, as frozen msgspec structs with their JSON codec; pure data, no I/O.

In: bytes from sensors, terminals and logs. Out: typed values and back. Imports nothing of Fairlead but its errors.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All that a decoder raises for bytes that are not its payload: no JSON, other fields, no UTF-8, too deeply nested."""

_encoder = msgspec.json.Encoder()


def encode(value: msgspec.Struct) -> bytes:
    """The JSON bytes of a payload, fields in declared order (so equal values give equal bytes)."""
    return _encoder.encode(value)


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """A reusable decoder; its ``decode`` raises one of ``UNREADABLE``; ``msgspec.ValidationError`` for JSON of another
    form."""
    return msgspec.json.Decoder(kind)
