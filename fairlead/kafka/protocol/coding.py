"""Fields of requests and answers in flexible versions of Kafka's protocol, for codecs written by hand.

The codecs of the hot paths (``produce_codec``, ``fetch_codec``, ``metadata_codec``) code fields inline, which is
faster; all others use these functions. Tests compare with kafka-python's codec; Fairlead does not import it at run
time, because that costs a tenth of a second and 10 MB.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

_LARGEST_SHIFT: Final = 63


def encode_unsigned(value: int) -> bytes:
    """Encode ``value`` (0 or more) in 7-bit groups, lowest first."""
    return _ENCODED[value] if value < _FEW else _encode(value)


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_FEW: Final = 0x800
_ENCODED: Final = [_encode(value) for value in range(_FEW)]  # such as all sizes within a usual reading


def encode_signed(value: int) -> bytes:
    """Encode ``value`` (64 bits, signed) zig-zag coded, so that small negative numbers stay short."""
    coded = (value << 1) ^ (value >> 63)
    return _ENCODED[coded] if coded < _FEW else _encode(coded)


def decode_unsigned(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return (value, position after it).

    Raises:
        IndexError: the buffer ends early, or the number has more than ten bytes.
    """
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _LARGEST_SHIFT:  # each further byte would cost more than the one before it
            raise IndexError("a number of more than 64 bits")


def decode_signed(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return (value, position after it) of a zig-zag coded number; raises as ``decode_unsigned``."""
    value, position = decode_unsigned(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def skip_tags(buffer: bytes | bytearray | memoryview, position: int) -> int:
    """Return the position after a section of tagged fields; ignore the fields."""
    count = buffer[position]
    if count == 0:  # by far the most frequent case
        return position + 1
    count, position = decode_unsigned(buffer, position)
    for _ in range(count):
        _, position = decode_unsigned(buffer, position)
        size, position = decode_unsigned(buffer, position)
        position += size
    return position


T = TypeVar("T")
NO_TAGS: Final = b"\0"


class Question(NamedTuple, Generic[T]):
    """One request: the bytes to send, and the decoder of its answer's body.

    ``decode`` raises ``IndexError``, ``struct.error`` or ``UnicodeDecodeError`` for a body that is truncated or not
    such an answer.
    """

    api_key: int
    version: int
    body: bytes
    decode: Callable[[memoryview], T]
    flexible: bool = True  # whether the headers of request and answer have tagged fields


class FieldReader:
    """Reads a body field by field, from its first byte on."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Read fields of fixed size."""
        found = form.unpack_from(self._body, self._at)
        self._at += form.size
        return found

    def count(self) -> int:
        """Read how many elements a compact array has; 0 also for null."""
        size, self._at = decode_unsigned(self._body, self._at)
        return max(0, size - 1)

    def blob(self) -> bytes | None:
        """Read compact bytes; None for null."""
        size, start = decode_unsigned(self._body, self._at)
        if size == 0:
            self._at = start
            return None
        self._at = end = start + size - 1
        if end > len(self._body):
            raise IndexError("the answer is cut short")
        return bytes(self._body[start:end])

    def text(self) -> str | None:
        """Read a compact string; None for null."""
        found = self.blob()
        return None if found is None else found.decode()

    def tags(self) -> None:
        """Skip tagged fields."""
        self._at = skip_tags(self._body, self._at)


def count(elements: int) -> bytes:
    """Encode the beginning of a compact array."""
    return encode_unsigned(elements + 1)


def blob(data: bytes) -> bytes:
    """Encode compact bytes."""
    return encode_unsigned(len(data) + 1) + data


def text(value: str) -> bytes:
    """Encode a compact string."""
    return blob(value.encode())
