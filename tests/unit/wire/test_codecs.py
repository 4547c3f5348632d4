"""Compression against independent libraries: pyarrow's codecs and the standard library."""

from __future__ import annotations

import gzip
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.wire.codecs import Codec, compress, decompress
from fairlead.wire.errors import CorruptBatch
from tests.unit.wire.strategies import codecs

DATA = st.one_of(st.binary(max_size=2000), st.builds(lambda piece: piece * 5000, st.binary(min_size=1, max_size=30)))


def independent(codec: Codec, data: bytes, size: int) -> bytes:
    """Decompress with another library than Fairlead does."""
    if codec is Codec.NONE:
        return data
    if codec is Codec.GZIP:
        return gzip.decompress(data)
    if codec is Codec.SNAPPY:
        assert data[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
        out, position = b"", 16
        while position < len(data):
            (block,) = struct.unpack_from(">i", data, position)
            # A raw snappy block begins with its own length; a block of the xerial framing has at most 32 KiB.
            raw = data[position + 4 : position + 4 + block]
            out += pa.Codec("snappy").decompress(raw, decompressed_size=min(32768, size - len(out)), asbytes=True)
            position += 4 + block
        return out
    name = {Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}[codec]
    return bytes(pa.Codec(name).decompress(data, decompressed_size=size, asbytes=True))


@given(codecs, DATA)
def test_another_library_reads_what_is_compressed(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert independent(codec, packed, len(data)) == data
    assert decompress(codec, packed) == data


@given(DATA)
def test_snappy_without_framing_is_read_too(data: bytes) -> None:
    assert decompress(Codec.SNAPPY, pa.Codec("snappy").compress(data, asbytes=True)) == data


def test_gzip_of_several_members_is_read() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_lz4_blocks_are_independent() -> None:
    packed = compress(Codec.LZ4, b"x" * 200_000)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20, "the frame's flag for independent blocks"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("damage", [b"not compressed at all", b"\xff\xff\xff"])
def test_damaged_data_is_said_to_be_corrupt(codec: Codec, damage: bytes) -> None:
    with pytest.raises(CorruptBatch, match=codec.name.lower()):
        decompress(codec, damage)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_data_that_is_cut_short_is_said_to_be_corrupt(codec: Codec) -> None:
    packed = compress(codec, bytes(range(256)) * 300)
    with pytest.raises(CorruptBatch):
        decompress(codec, packed[: len(packed) * 2 // 3])
