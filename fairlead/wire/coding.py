"""Fields of requests and answers in flexible versions of Kafka's protocol, for codecs that are written by hand.

Those of the hot paths (``produce_codec``, ``fetch_codec``, ``metadata_codec``) do it inline, which is faster; all
others use these. kafka-python's codec is the oracle in the tests; it is not used at run time, because its import costs
a tenth of a second and 10 MB.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

from fairlead.wire.varint import decode_unsigned, encode_unsigned, skip_tags

T = TypeVar("T")
NO_TAGS: Final = b"\0"


class Question(NamedTuple, Generic[T]):
    """One request: what is sent, and how its answer's body is read.

    ``decode`` raises ``IndexError``, ``struct.error`` or ``UnicodeDecodeError`` for a body that is cut short, or none.
    """

    api_key: int
    version: int
    body: bytes
    decode: Callable[[memoryview], T]
    flexible: bool = True  # whether the headers of request and answer have tagged fields


class Reader:
    """Reads a body field by field, from its first byte on."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Fields of fixed size."""
        found = form.unpack_from(self._body, self._at)
        self._at += form.size
        return found

    def count(self) -> int:
        """How many elements a compact array has; 0 for null too."""
        size, self._at = decode_unsigned(self._body, self._at)
        return max(0, size - 1)

    def blob(self) -> bytes | None:
        """Compact bytes, or None for null."""
        size, start = decode_unsigned(self._body, self._at)
        if size == 0:
            self._at = start
            return None
        self._at = end = start + size - 1
        if end > len(self._body):
            raise IndexError("the answer is cut short")
        return bytes(self._body[start:end])

    def text(self) -> str | None:
        """A compact string, or None for null."""
        found = self.blob()
        return None if found is None else found.decode()

    def tags(self) -> None:
        """Skip tagged fields."""
        self._at = skip_tags(self._body, self._at)


def count(elements: int) -> bytes:
    """The beginning of a compact array."""
    return encode_unsigned(elements + 1)


def blob(data: bytes) -> bytes:
    """Compact bytes."""
    return encode_unsigned(len(data) + 1) + data


def text(value: str) -> bytes:
    """A compact string."""
    return blob(value.encode())
