"""Variable-length integers against kafka-python's."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint, encode_varint

from fairlead.kafka.protocol.coding import decode_signed, decode_unsigned, encode_signed, encode_unsigned, skip_tags

LONGS = st.integers(min_value=-(2**63), max_value=2**63 - 1)


@given(LONGS)
def test_signed_is_what_kafka_python_writes_and_reads(value: int) -> None:
    oracle = bytearray()
    encode_varint(value, oracle.append)
    assert encode_signed(value) == oracle
    assert decode_signed(bytes(oracle), 0) == decode_varint(memoryview(oracle), 0) == (value, len(oracle))


@given(st.integers(min_value=0, max_value=2**64 - 1), st.binary(max_size=3))
def test_unsigned_comes_back_wherever_it_stands(value: int, before: bytes) -> None:
    coded = before + encode_unsigned(value)
    assert decode_unsigned(coded, len(before)) == (value, len(coded))


@given(st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=200)), max_size=200))
def test_tagged_fields_are_skipped_whatever_they_are(fields: list[tuple[int, bytes]]) -> None:
    out = io.BytesIO()
    out.write(encode_unsigned(len(fields)))
    for tag, content in fields:
        out.write(encode_unsigned(tag) + encode_unsigned(len(content)) + content)
    assert skip_tags(out.getvalue(), 0) == out.tell()


def test_number_that_is_cut_short_is_an_error() -> None:
    with pytest.raises(IndexError):
        decode_unsigned(b"\xff\xff", 0)
