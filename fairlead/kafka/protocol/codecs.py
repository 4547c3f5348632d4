"""Compression of record batches in the framings that Kafka uses. Pure functions.

gzip is a gzip member, lz4 a frame of independent blocks, zstd a plain frame, snappy the "xerial" framing: a 16-byte
header, then blocks of a 4-byte big-endian length and a raw snappy block (snappy-java's SnappyOutputStream).
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

from fairlead.kafka.protocol.errors import UnreadableRecords


class Codec(enum.IntEnum):
    """The three lowest bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_I32: Final = struct.Struct(">i")
_GZIP_WBITS: Final = 31  # zlib's value for a gzip header
_ZSTD_LEVEL: Final = 3
_MOST: Final = 16 << 20  # bytes; a batch of the largest message that a log takes, or of fillers, is far smaller
_MOST_TIMES: Final = 32  # a larger batch may grow by this factor; readings grow five to ten times
_FIRST_TIMES: Final = 8
_TOO_SMALL: Final = "failed to write whole buffer"  # cramjam's error text for a full buffer


def compress(codec: Codec, data: bytes | bytearray | memoryview) -> bytes:
    """Compress ``data`` in the framing of ``codec``; return it unchanged for ``Codec.NONE``."""
    import cramjam  # 1.5 MB, for the few processes that look inside batches

    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP_WBITS)
            return packer.compress(data) + packer.flush()
        case Codec.SNAPPY:
            out = bytearray(_XERIAL_HEADER)
            view = memoryview(data)
            for start in range(0, len(view), _XERIAL_BLOCK):
                block = bytes(cramjam.snappy.compress_raw(bytes(view[start : start + _XERIAL_BLOCK])))
                out += _I32.pack(len(block))
                out += block
            return bytes(out)
        case Codec.LZ4:
            # Java's reader requires independent blocks (KAFKA-3160 and later).
            lz4 = cramjam.lz4.Compressor(level=1, content_checksum=False, block_linked=False)
            lz4.compress(bytes(data))
            return bytes(lz4.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(bytes(data), level=_ZSTD_LEVEL))


def decompress(codec: Codec, data: bytes | bytearray | memoryview) -> bytes:
    """Decompress ``data``; also takes snappy without the xerial framing, which some producers send.

    Never returns more than 16 MiB or, if that is more, 32 times the size of ``data``: gigabytes can be compressed to a
    kilobyte.

    Raises:
        UnreadableRecords: ``data`` is not in the framing of ``codec``, or decompresses to more than that.
    """
    import cramjam

    raw = bytes(data)
    most = max(_MOST, _MOST_TIMES * len(raw))
    try:
        match codec:
            case Codec.NONE:
                return raw
            case Codec.GZIP:
                return _gunzip(raw, most)
            case Codec.SNAPPY:
                return _unsnappy(raw, most)
            case Codec.LZ4:
                return _unpack(cramjam.lz4.decompress_into, raw, most)
            case Codec.ZSTD:
                return _unpack(cramjam.zstd.decompress_into, raw, most)
    except (cramjam.DecompressionError, zlib.error, struct.error, ValueError) as error:
        raise UnreadableRecords(
            f"the records of a batch cannot be decompressed as {codec.name.lower()}: {error}"
        ) from error


def _unpack(into: Callable[[bytes, Any], int], raw: bytes, most: int) -> bytes:
    """Decompress into a buffer that grows up to ``most`` bytes."""
    import cramjam

    size = min(most, 1024 + _FIRST_TIMES * len(raw))
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: into(raw, buffer)])
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
            if size == most:
                raise _too_much(most) from None
        size = min(most, size * _FIRST_TIMES)


def _gunzip(raw: bytes, most: int) -> bytes:
    out = bytearray()
    while raw:  # a gzip stream may have several members
        unpacker = zlib.decompressobj(_GZIP_WBITS)
        out += unpacker.decompress(raw, most + 1 - len(out))
        if len(out) > most:
            raise _too_much(most)
        if not unpacker.eof:
            raise UnreadableRecords("the records of a batch cannot be decompressed as gzip: the stream ends early")
        raw = unpacker.unused_data
    return bytes(out)


def _unsnappy(raw: bytes, most: int) -> bytes:
    if not raw.startswith(_XERIAL_MAGIC):
        return _unsnap(raw, most)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(raw):
        (size,) = _I32.unpack_from(raw, position)
        position += 4
        if size < 0 or position + size > len(raw):
            raise UnreadableRecords("the records of a batch cannot be decompressed as snappy: a block is cut short")
        out += _unsnap(raw[position : position + size], most - len(out))
        position += size
    return bytes(out)


def _unsnap(raw: bytes, most: int) -> bytes:
    import cramjam

    if cramjam.snappy.decompress_raw_len(raw) > most:
        raise _too_much(most)
    return bytes(cramjam.snappy.decompress_raw(raw))


def _too_much(most: int) -> UnreadableRecords:
    return UnreadableRecords(f"the records of a batch would be more than {most:,} bytes when decompressed")
