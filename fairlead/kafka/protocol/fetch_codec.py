"""Encode Fetch requests and decode their answers by hand, because every read uses them.

Tests compare with kafka-python's codec. Version 13 names topics by id, so for a topic that was deleted and created
again the broker answers 100 instead of serving another log under the same name. Bodies only; the connection writes the
request header. Records are never copied.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

from fairlead.kafka.protocol.coding import decode_unsigned, encode_unsigned, skip_tags
from fairlead.kafka.protocol.types import FetchedPartition

API_KEY: Final = 1
VERSION: Final = 13
NO_SESSION: Final = 0
EPOCH_OPEN: Final = 0  # opens a session (and closes the one whose id is given)
EPOCH_NONE: Final = -1  # no session; closes the one whose id is given

_HEAD: Final = struct.Struct(">iiiibii")
_WANTED: Final = struct.Struct(">iiqiqi")
_ANSWER_HEAD: Final = struct.Struct(">ihi")
_PARTITION: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_I32: Final = struct.Struct(">i")
_ONE: Final = b"\2"  # length of a compact array of one element
_EMPTY: Final = memoryview(bytearray())


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """One partition to read."""

    topic_id: bytes
    partition: int
    offset: int


class FetchAnswer(NamedTuple):
    """A whole answer: ``partitions`` holds (topic id, partition number, content).

    ``preferred`` has the node ids of followers from which to fetch instead (KIP-392), by topic id and partition number.
    The leader sends such a partition without records.
    """

    error_code: int
    session_id: int
    partitions: list[tuple[bytes, int, FetchedPartition]]
    preferred: dict[tuple[bytes, int], int]


def encode_request(
    wanted: Collection[Wanted],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    isolation: int,
    session_id: int = NO_SESSION,
    session_epoch: int = EPOCH_NONE,
    forgotten: Collection[tuple[bytes, int]] = (),
    rack: str = "",
) -> bytearray:
    """Encode the body; ``forgotten`` holds (topic id, partition number) to drop from the session."""
    out = bytearray(_HEAD.pack(-1, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch))
    out += encode_unsigned(len(wanted) + 1)
    for each in wanted:
        out += each.topic_id
        out += _ONE
        out += _WANTED.pack(each.partition, -1, each.offset, -1, -1, partition_max_bytes)
        out += b"\0\0"
    out += encode_unsigned(len(forgotten) + 1)
    for topic_id, partition in forgotten:
        out += topic_id
        out += _ONE
        out += _I32.pack(partition)
        out += b"\0"
    name = rack.encode()
    out += encode_unsigned(len(name) + 1)
    out += name
    out += b"\0"  # no tags
    return out


def decode_response(frame: bytearray, position: int) -> FetchAnswer:
    """Decode the whole answer; ``position`` is where the body begins. Records are views into ``frame``."""
    view = memoryview(frame)
    _, code, session_id = _ANSWER_HEAD.unpack_from(frame, position)
    position += _ANSWER_HEAD.size
    out: list[tuple[bytes, int, FetchedPartition]] = []
    preferred: dict[tuple[bytes, int], int] = {}
    unpack = _PARTITION.unpack_from
    topics, position = decode_unsigned(frame, position)
    for _ in range(topics - 1):
        topic_id = bytes(view[position : position + 16])
        partitions, position = decode_unsigned(frame, position + 16)
        for _ in range(partitions - 1):
            number, error, high, stable, start = unpack(frame, position)
            position += 30
            aborted: tuple[tuple[int, int], ...] = ()
            count, position = decode_unsigned(frame, position)
            if count > 1:
                pairs = []
                for _ in range(count - 1):
                    pairs.append(_ABORTED.unpack_from(frame, position))
                    position = skip_tags(frame, position + 16)
                aborted = tuple(pairs)
            if frame[position] < 0x80:  # a node id; nearly always it is -1
                preferred[topic_id, number] = _I32.unpack_from(frame, position)[0]
            size, position = decode_unsigned(frame, position + 4)
            if size > 1:
                records = view[position : position + size - 1]
                position += size - 1
            else:
                records = _EMPTY
            position = skip_tags(frame, position)
            out.append((topic_id, number, FetchedPartition(error, high, stable, start, aborted, records)))
        position = skip_tags(frame, position)
    return FetchAnswer(code, session_id, out, preferred)


def failed(error_code: int) -> FetchedPartition:
    """Make a log's part of an answer that has only an error code."""
    return FetchedPartition(error_code, -1, -1, -1, (), _EMPTY)
