"""Compression against independent libraries: pyarrow's codecs and the standard library."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kafka.protocol.codecs import Codec, compress, decompress
from fairlead.kafka.protocol.errors import CorruptBatch
from tests.support.kafka.oracle import independent
from tests.support.kafka.strategies import codecs

DATA = st.one_of(st.binary(max_size=2000), st.builds(lambda piece: piece * 5000, st.binary(min_size=1, max_size=30)))


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
