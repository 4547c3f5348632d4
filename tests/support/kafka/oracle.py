"""Independent codecs that Fairlead's are compared with: kafka-python for requests, pyarrow and gzip for compression."""

from __future__ import annotations

import gzip
import struct
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from fairlead.kafka.protocol.codecs import Codec
from fairlead.kafka.protocol.coding import Question

I16 = st.integers(-(2**15), 2**15 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.sampled_from("abcXYZ0129._-é"), min_size=1, max_size=20)
TEXT = st.one_of(st.none(), st.text(max_size=200))


def same(question: Question[Any], oracle: Any) -> None:
    """The question is what kafka-python would send."""
    assert (question.api_key, question.version) == (oracle.API_KEY, oracle.API_VERSION)
    assert question.body == bytes(oracle.encode(version=question.version))
    assert question.flexible == bool(type(oracle).flexible_version_q(question.version))


def read(question: Question[Any], answer: Any) -> Any:
    """What the question makes of kafka-python's answer."""
    return question.decode(memoryview(bytearray(answer.encode(version=question.version))))


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
