"""Pieces of one buffer (``fairlead.kafka.columnar.Slices``) into Arrow arrays, without an object for each.
Pure."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairlead.kafka.columnar import NONE, ByteSlices
from fairlead.kafka.protocol.errors import CorruptBatch

_MOST_BYTES: Final = 2**31 - 1  # that Arrow's plain arrays can point into
_USUAL_DIGITS: Final = 13  # milliseconds since 1970, from 2001 to 2286
_NEWLINE: Final = 10


def binary(data: bytes | bytearray, slices: ByteSlices) -> pa.Array:
    """One value for each slice, null for null. The slices lie one after the other, as those of a column do."""
    rows = len(slices.size)
    if not rows:
        return pa.array([], pa.binary())
    if len(data) > _MOST_BYTES:
        raise CorruptBatch(f"{len(data)} bytes of records, unpacked, are more than one array can have")
    absent = slices.size < 0
    if absent.all():
        return pa.nulls(rows, pa.binary())
    # To Arrow the buffer is an array already: of values, and of what lies between them. It copies every other one.
    end = np.maximum.accumulate(np.where(absent, 0, slices.start + slices.size))
    edges = np.empty(2 * rows, np.int32)
    edges[0::2] = np.where(absent, end, slices.start)
    edges[1::2] = end
    whole = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    wanted = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return whole.take(pa.array(wanted, mask=absent if absent.any() else None))


def text(data: bytes | bytearray, slices: ByteSlices) -> pa.Array:
    """The same as strings; what is no UTF-8 has replacement characters."""
    values = binary(data, slices)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [v.decode(errors="replace") if v is not None else None for v in values.to_pylist()], pa.string()
        )


def lines(data: bytes, slices: ByteSlices) -> pa.Buffer | None:
    """All values, each with a newline after it, as one text; None when one of them is null, empty, or has line breaks
    or another beginning than ``{``. What follows a value in ``data`` must be no part of another one."""
    if not len(slices.size) or (slices.size <= 0).any():
        return None
    raw = np.frombuffer(bytearray(data), np.uint8)
    if (raw[slices.start] != ord("{")).any():
        return None
    raw[slices.start + slices.size] = _NEWLINE
    joined = binary(raw, ByteSlices(slices.start, slices.size + 1))  # type: ignore[arg-type]  # a buffer as well
    found = joined.buffers()[2]
    written = np.frombuffer(found, np.uint8)
    if np.count_nonzero(written == _NEWLINE) != len(slices.size) or (written == ord("\r")).any():
        return None
    return found


def milliseconds(data: bytes, slices: ByteSlices) -> pa.Array:
    """Decimal milliseconds since 1970 as microseconds (int64); null where there are none, or no such number."""
    present = slices.size != NONE
    if not present.any():
        return pa.nulls(len(present), pa.int64())
    if (slices.size[present] == _USUAL_DIGITS).all():
        raw = np.frombuffer(data, np.uint8)
        digits = raw[slices.start[present][:, None] + np.arange(_USUAL_DIGITS)].astype(np.int64) - ord("0")
        if ((digits >= 0) & (digits <= 9)).all():
            number = np.zeros(len(present), np.int64)
            number[present] = digits @ (10 ** np.arange(_USUAL_DIGITS - 1, -1, -1, dtype=np.int64)) * 1000
            return pa.array(number, mask=~present)
    return pa.array([_milliseconds(value) for value in binary(data, slices).to_pylist()], pa.int64())


def _milliseconds(value: bytes | None) -> int | None:
    return int(value) * 1000 if value is not None and value.isdigit() and len(value) <= 15 else None


def chosen(values: pa.Array, number: npt.NDArray[np.int64]) -> pa.Array:
    """For each number the value of that place."""
    return values.take(pa.array(number))
