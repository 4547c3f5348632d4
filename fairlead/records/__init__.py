"""Payloads of every log, as frozen msgspec structs with their JSON codec; pure data, no I/O.

In: bytes from sensors, terminals and logs. Out: typed values and back. Imports nothing of Fairlead but its errors.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


def encode(value: msgspec.Struct) -> bytes:
    """The JSON bytes of a payload, fields in declared order (so equal values give equal bytes)."""
    return _encoder.encode(value)


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """A reusable decoder; its ``decode`` raises ``msgspec.ValidationError`` or ``msgspec.DecodeError``."""
    return msgspec.json.Decoder(kind)
