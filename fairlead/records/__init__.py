"""Payloads of every log, as frozen msgspec structs with their codec, JSON except for digests; pure data, no I/O.

In: bytes from sensors, terminals and logs. Out: typed values and back. Imports only Fairlead's errors.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeVar

import msgspec

T = TypeVar("T")

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that a decoder raises for other bytes than its payload: no JSON, other fields, no UTF-8, too deep."""


class Decoder(Protocol):
    """Decodes the values of a log. Raises one of ``UNREADABLE``."""

    def decode(self, value: bytes, /) -> Any:
        """Return the payload."""
        ...


_encoder = msgspec.json.Encoder()


def encode(value: msgspec.Struct) -> bytes:
    """Encode a payload as JSON, fields in declared order, so that equal values give equal bytes."""
    return _encoder.encode(value)


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Make a reusable decoder. Its ``decode`` raises one of ``UNREADABLE``.

    The error for JSON of another form is ``msgspec.ValidationError``.
    """
    return msgspec.json.Decoder(kind)
