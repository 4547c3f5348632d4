"""Decide whether compaction explains every difference between two sites' copies of one log.

Pure, except for a temporary database that bounds memory.

Each site compacts its own copy at its own time, and a replica never gets records that were compacted away before they
were copied. So in a compacted log a record may be missing at one site if a later record, at either site, has the same
key. A tombstone may also be missing without a later record, because compaction removes tombstones themselves after
``delete.retention.ms``. But then the site must not have an earlier record with that key: there the key would still have
a value, while at the other site it is deleted.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import NamedTuple

from replication.audit.result import SeenRecord

Records = Iterator[tuple[int, SeenRecord]]
"""``(offset, record)`` in ascending order of offsets; data records only."""


class RecordPair(NamedTuple):
    """The records of two sites at one offset; None where a site has no record."""

    offset: int
    a: SeenRecord | None
    b: SeenRecord | None


def pairs(a: Records, b: Records) -> Iterator[RecordPair]:
    """Merge both sides by offset; yield every offset that at least one of them has."""
    here, there = next(a, None), next(b, None)
    while here is not None or there is not None:
        if there is None or (here is not None and here[0] < there[0]):
            assert here is not None  # noqa: S101 - one of them is there
            yield RecordPair(here[0], here[1], None)
            here = next(a, None)
        elif here is None or there[0] < here[0]:
            yield RecordPair(there[0], None, there[1])
            there = next(b, None)
        else:
            yield RecordPair(here[0], here[1], there[1])
            here, there = next(a, None), next(b, None)


def first_unexplained(a: Records, b: Records, stop: int, again: Callable[[int, int], Records]) -> int | None:
    """Return the first offset below ``stop`` whose difference compaction does not explain; None if it explains all.

    Args:
        a, b: The records from the first difference on, each to its log's own end. Records from ``stop`` on are not
            compared; they only serve to explain missing ones.
        again: ``again(side, before)`` reads a side (0 or 1) again, from the log's start up to ``before``.
    """
    with _Missing() as missing:
        found = _first_difference(a, b, stop, missing)
        for side in (0, 1):
            before = missing.last_tombstone(side)
            for offset, record in again(side, before) if before is not None else ():
                kept = missing.tombstone_after(side, record.key, offset)
                if kept is not None:
                    found = kept if found is None else min(found, kept)
        return found


def _first_difference(a: Records, b: Records, stop: int, missing: _Missing) -> int | None:
    found: int | None = None
    for offset, here, there in pairs(a, b):
        for record in (here, there):
            if record is not None:
                missing.explain(record.key)
        one = here or there
        if found is None and offset < stop and here != there and one is not None:
            if (here is not None and there is not None) or one.key is None:
                found = offset  # compaction changes no content and removes no record without a key
            else:
                missing.add(0 if here is None else 1, one.key, offset, tombstone=one.value is None)
        if (found is not None or offset >= stop) and not missing.count:
            break
    first = missing.first_record()
    return found if first is None else first if found is None else min(first, found)


class _Missing:
    """The records that one side (0 or 1) lacks, until a later record with the same key explains them.

    Keys are stored as digests.
    """

    def __init__(self) -> None:
        self.count = 0
        self._db = sqlite3.connect("", isolation_level=None)  # a temporary file, used when the cache is full
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute(
            "CREATE TABLE missing (key BLOB PRIMARY KEY, side INTEGER, first INTEGER, tombstone INTEGER) WITHOUT ROWID"
        )

    def __enter__(self) -> _Missing:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def add(self, side: int, key: bytes, offset: int, *, tombstone: bool) -> None:
        """Add a record that ``side`` lacks. Call ``explain`` with its key first: a key is stored once."""
        self._db.execute("INSERT INTO missing VALUES (?, ?, ?, ?)", (_digest(key), side, offset, tombstone))
        self.count += 1

    def explain(self, key: bytes | None) -> None:
        """Remove the missing record that a later record with this key explains."""
        if self.count and key is not None:
            self.count -= self._db.execute("DELETE FROM missing WHERE key = ?", (_digest(key),)).rowcount

    def first_record(self) -> int | None:
        """Return the first offset of a missing record that is not a tombstone."""
        return self._number("SELECT min(first) FROM missing WHERE NOT tombstone")

    def last_tombstone(self, side: int) -> int | None:
        """Return the last offset of a tombstone that this side lacks."""
        return self._number("SELECT max(first) FROM missing WHERE tombstone AND side = ?", side)

    def tombstone_after(self, side: int, key: bytes | None, offset: int) -> int | None:
        """Return the offset above ``offset`` at which this side lacks a tombstone of the key; None if there is none."""
        if key is None:
            return None
        return self._number(
            "SELECT min(first) FROM missing WHERE key = ? AND tombstone AND side = ? AND first > ?",
            _digest(key),
            side,
            offset,
        )

    def _number(self, question: str, *values: int | bytes) -> int | None:
        found = self._db.execute(question, values).fetchone()[0]
        return None if found is None else int(found)


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()
