"""Records of very many batches at once, as columns: what ``record.decode_batch`` says of each, without its objects.

A reader of thousands of small logs gets mostly batches of one record, and then some microseconds of Python for each of
them are most of its time. Here Python looks only at where batches begin; headers, lengths and numbers of all records
are read by numpy together. Keys, values and headers are not copied: they are (start, size) into one buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fairlead.wire.batch import LOG_APPEND_TIME
from fairlead.wire.batches import Batches
from fairlead.wire.convention import FIRST_TERM, PRODUCER_ID
from fairlead.wire.pieces import NONE, NULL, OUTSIDE, Ints, Mask, Slices, Words, equal, inside, varints, words_of
from fairlead.wire.stretch import Stretch, stretch

__all__ = ["NONE", "NULL", "Columns", "HeaderTable", "Slices", "Stretch", "decode", "stretch"]


class HeaderTable(NamedTuple):
    """All headers of all rows, in their order: the row each belongs to, its name, its value."""

    row: Ints
    name: Slices
    value: Slices


class Columns(NamedTuple):
    """Rows in the order of the stretches and of their offsets.

    Args:
        data: What the slices are of; longer than the last of them.
        stretch: Number of the stretch a row is of.
        term: The batch's custody term; 0 where Fairlead did not write it.
        time_ms: Milliseconds since 1970 UTC.
    """

    data: bytes
    stretch: Ints
    offset: Ints
    time_ms: Ints
    term: Ints
    key: Slices
    value: Slices
    headers: HeaderTable

    def __len__(self) -> int:  # of rows, as with every table
        return len(self.offset)

    def where(self, mask: Mask) -> Columns:
        """Only some of the rows."""
        if mask.all():
            return self
        kept = mask[self.headers.row]
        headers = HeaderTable(
            (np.cumsum(mask) - 1)[self.headers.row[kept]], self.headers.name.where(kept), self.headers.value.where(kept)
        )
        return Columns(
            self.data,
            self.stretch[mask],
            self.offset[mask],
            self.time_ms[mask],
            self.term[mask],
            self.key.where(mask),
            self.value.where(mask),
            headers,
        )

    def header(self, name: bytes, *, first: bool = False) -> Slices:
        """The value of each row's last header of this name (or its first)."""
        found = Slices(np.zeros(len(self), np.int64), np.full(len(self), NONE, np.int64))
        table = self.headers
        named = np.flatnonzero(equal(self.data, table.name, name))
        if first:
            named = named[::-1]  # of several assignments to one row the last stays
        rows = table.row[named]
        found.start[rows] = table.value.start[named]
        found.size[rows] = table.value.size[named]
        return found

    def equal(self, slices: Slices, text: bytes) -> Mask:
        """For each slice whether it is exactly this."""
        return equal(self.data, slices, text)


def decode(stretches: Iterable[Stretch], *, check_crc: bool = True) -> Columns:
    """All records of all stretches; none of control batches.

    Raises:
        CorruptBatch: a CRC does not match, or records cannot be read.
    """
    batches = Batches(stretches, check_crc=check_crc)
    at, stop, batch = batches.records()
    return _fields(batches, at, stop, batch)


def _fields(batches: Batches, at: Ints, stop: Ints, batch: Ints) -> Columns:
    header, data = batches.header, batches.data
    words = words_of(data)
    at = inside(at + 1, data)  # attributes, unused
    time_delta, at = varints(words, at)
    offset_delta, at = varints(words, at)
    key, at = _slice(words, at, data)
    value, at = _slice(words, at, data)
    headers, at = _header_table(words, at, data)
    wrong = at != stop
    if wrong.any():
        batches.damaged(int(batch[np.argmax(wrong)]))
    fixed = (header["attributes"] & LOG_APPEND_TIME) != 0
    base_time = np.where(fixed, header["max_timestamp"], header["base_timestamp"]).astype(np.int64)
    ours = (header["producer_id"] == PRODUCER_ID) & (header["epoch"] >= FIRST_TERM) & (header["sequence"] >= 0)
    term = np.where(ours, header["epoch"], 0).astype(np.int64)
    offset = header["base_offset"].astype(np.int64)[batch] + offset_delta
    found = Columns(
        batches.data,
        batches.stretch[batch],
        offset,
        base_time[batch] + np.where(fixed[batch], 0, time_delta),
        term[batch],
        key,
        value,
        headers,
    )
    low, high = batches.bounds[found.stretch].T if len(offset) else (offset, offset)
    return found.where((offset >= low) & (offset < high))


def _header_table(words: Words, at: Ints, data: bytes) -> tuple[HeaderTable, Ints]:
    count, at = varints(words, at)
    at = inside(at, data)
    rows: list[Ints] = []
    names: list[Slices] = []
    values: list[Slices] = []
    active = np.flatnonzero(count > 0)
    done = 0
    end = len(words)
    while len(active):
        name, position = _slice(words, at[active], data)
        value, position = _slice(words, position, data)
        position[name.size < 0] = end  # a header without a name: nothing ends there
        at[active] = inside(position, data)
        rows.append(active)
        names.append(name)
        values.append(value)
        done += 1
        # Whoever is outside has no further header either, whatever number of them it claims.
        active = active[(count[active] > done) & (position < len(data) - OUTSIDE)]
    if not rows:
        empty = np.zeros(0, np.int64)
        return HeaderTable(empty, Slices(empty, empty), Slices(empty, empty)), at
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")

    def joined(parts: Sequence[Slices]) -> Slices:
        return Slices(*(np.concatenate(each)[order] for each in zip(*parts, strict=True)))

    return HeaderTable(row[order], joined(names), joined(values)), at


def _slice(words: Words, at: Ints, data: bytes) -> tuple[Slices, Ints]:
    """A length and as many bytes; (slices, positions after them)."""
    size, start = varints(words, at)
    size = np.maximum(size, NULL)
    after = inside(start + np.maximum(size, 0), data)
    return Slices(start, size), after
