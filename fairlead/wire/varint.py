"""Variable-length integers of the Kafka protocol: unsigned (compact lengths, tags) and zig-zag signed (records)."""

from __future__ import annotations

from typing import Final

_LARGEST_SHIFT: Final = 63


def encode_unsigned(value: int) -> bytes:
    """``value`` (0 or more) in 7-bit groups, lowest first."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_signed(value: int) -> bytes:
    """``value`` (64 bits, signed) zig-zag coded, so that small negative numbers stay short."""
    return encode_unsigned((value << 1) ^ (value >> 63))


def decode_unsigned(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """(value, position after it); ``IndexError`` when the buffer ends early, or the number has more than ten bytes."""
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
    """(value, position after it) of a zig-zag coded number."""
    value, position = decode_unsigned(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def skip_tags(buffer: bytes | bytearray | memoryview, position: int) -> int:
    """The position after a section of tagged fields, whatever they are."""
    count = buffer[position]
    if count == 0:  # by far the most frequent
        return position + 1
    count, position = decode_unsigned(buffer, position)
    for _ in range(count):
        _, position = decode_unsigned(buffer, position)
        size, position = decode_unsigned(buffer, position)
        position += size
    return position


_SMALL: Final = [bytes((value,)) for value in range(0x80)]
