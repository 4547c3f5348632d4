"""Filler batches for holes. Pure functions; the records of a filler batch are compressed once per size and kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fairlead.wire.convention import (
    FILLERS_PER_BATCH,
    FOREIGN_EPOCH,
    FOREIGN_PRODUCER_ID,
    PRODUCER_ID,
    filler_batch,
)
from replication.item import SEQUENCES, Hole, Item
from replication.stamp import restamp

BEFORE_FIRST_TERM: Final = 0  # fillers below a log's first known term; older than every term
MAX_FILLER: Final = FILLERS_PER_BATCH  # the broker holds one object per record while it validates


def fillers(
    hole: Hole, *, producer_id: int | None = None, term: int = BEFORE_FIRST_TERM, marker: int = 0
) -> Iterator[Item]:
    """Batches that close a hole, in order.

    Offsets before the following term's marker belong to the target's own last term (``term``, ``marker``), or to
    none when the target is empty; those after it to the following term. So every later batch is in sequence.
    """
    at = hole.base
    while at < hole.stop:
        follows = at >= hole.marker
        end = min(hole.stop if follows else min(hole.stop, hole.marker), at + MAX_FILLER)
        if hole.producer_id != PRODUCER_ID:
            pid, own_term, own_marker = FOREIGN_PRODUCER_ID, FOREIGN_EPOCH, 0
        elif follows:
            pid, own_term, own_marker = PRODUCER_ID, hole.term, hole.marker
        else:
            pid, own_term, own_marker = producer_id or PRODUCER_ID, term, marker
        yield _filler(at, end, pid, own_term, own_marker, hole.timestamp_ms, hole.key)
        at = end


def _filler(at: int, end: int, pid: int, term: int, marker: int, timestamp_ms: int, key: bytes) -> Item:
    made = bytearray(
        filler_batch(end - at, term=term, offset=at, marker=marker, timestamp_ms=max(timestamp_ms, 1), key=key)
    )
    view = memoryview(made)
    crc = restamp(view, pid, term, (at - marker) % SEQUENCES)
    return Item(at, end, view, crc, pid, term, marker, timestamp_ms)
