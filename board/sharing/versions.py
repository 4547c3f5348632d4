"""The versions of one customer's table, as Parquet files with nothing else in them.

A version is made when somebody asks and the tables that it comes from have changed; the same rows are the same version.
Its file has the name of its content's SHA-256. Older versions stay for a day, twenty at most, and go at once when
anything may have been taken from the customer since: a version never has what the feed has taken back.

What changed from one version to the next is there as long as both are: changes do not show what was taken back either.

Versions count up. The first has the number of the second in which it was made, so numbers go on upwards even if
somebody removes the folder.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from board.sharing.content import Content
from board.sharing.protocol import ApiError, Moment, VersionSpan
from board.sharing.tokens import Clock
from fairlead.home import private_folder
from fairlead.local.files import explained, write_file

KEPT: Final = 20
KEPT_FOR: Final = dt.timedelta(days=1)


class Version(msgspec.Struct, frozen=True):
    """One version. ``digest`` names its file; empty: it has no rows, and so no file."""

    number: int
    made: dt.datetime
    digest: str
    rows: int
    size: int


class ChangedRows(msgspec.Struct, frozen=True):
    """What changed from one version to the next. ``digest`` names its file."""

    digest: str
    rows: int
    size: int


class History(msgspec.Struct, frozen=True):
    """The versions that are kept, the newest last.

    Args:
        inputs: What the newest was made from: the kind of feed, the columns, the tables with their versions.
        taken: See ``Content``.
    """

    inputs: dict[str, str]
    taken: str
    versions: tuple[Version, ...]

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    def at(self, moment: Moment) -> Version:
        """Return the version of a moment.

        Raises:
            ApiError: it is not kept, or there was none yet.
        """
        if moment.version is not None:
            found = [each for each in self.versions if each.number == moment.version]
        elif moment.timestamp is not None:
            found = [each for each in self.versions if each.made <= moment.timestamp]
        else:
            found = [self.newest]
        if not found:
            raise ApiError(400, f"that version is not kept: the oldest is {self._said(self.versions[0])}")
        return found[-1]

    def steps(self, asked: VersionSpan) -> list[tuple[Version, Version]]:
        """Return the versions of a span, each with the one before it.

        Raises:
            ApiError: one of them is not kept with the one before it, or the end is before the start.
        """
        known = {each.number: at for at, each in enumerate(self.versions)}
        if asked.start.timestamp is not None:
            first = known[self.since(asked.start.timestamp).number]
        else:
            number = asked.start.version or 0
            if number > self.newest.number:
                raise ApiError(400, f"no version is that new: the newest is {self._said(self.newest)}")
            first = known.get(number, 0)
        if first == 0:
            oldest = self.versions[0]
            raise ApiError(
                400,
                f"what changed before version {oldest.number + 1} is not kept: read the table, then its later changes. "
                f"The oldest version that is kept is {self._said(oldest)}",
            )
        last = known[self.at(asked.end).number]
        if last < first:
            raise ApiError(400, "the end is before the start")
        return [(self.versions[at - 1], self.versions[at]) for at in range(first, last + 1)]

    def since(self, timestamp: dt.datetime) -> Version:
        """Return the first version made at this time or later.

        Raises:
            ApiError: the newest is older.
        """
        for each in self.versions:
            if each.made >= timestamp:
                return each
        raise ApiError(400, f"no version is that new: the newest is {self._said(self.newest)}")

    def _said(self, version: Version) -> str:
        return f"{version.number}, of {version.made.isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"


def _to_millisecond(moment: dt.datetime) -> dt.datetime:
    """Return the first whole millisecond that is not before a moment."""
    return moment + dt.timedelta(microseconds=-moment.microsecond % 1000)


class Versions:
    """The folder of one customer's table. One thread uses it at a time."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._index = folder / "history.json"
        self._clock = clock

    def history(self) -> History | None:
        """Return what is kept; None when there is nothing, or nothing that can be read or served."""
        try:
            found = msgspec.json.decode(self._index.read_bytes(), type=History)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        there = all(self.file(each.digest).is_file() for each in found.versions if each.digest)
        return found if there and found.versions else None

    def file(self, digest: str) -> Path:
        """Return the file with this content, whether it is there or not."""
        return self._folder / f"{digest}.parquet"

    def add(self, before: History | None, inputs: dict[str, str], content: Content, schema: pa.Schema) -> History:
        """Write a content, as a new version if it is another than the newest one's. Return what is kept now.

        Raises:
            UnavailableError: the disk is full.
            RefusedError: this user may not write there.
        """
        digest, rows, size = self._write(content, schema)
        now = _to_millisecond(self._clock())  # as clients hear of it, and ask for it
        number = int(now.timestamp()) if before is None else before.newest.number + 1
        kept = () if before is None else before.versions
        if before is not None and (before.taken != content.taken or before.inputs["kind"] != inputs["kind"]):
            kept = kept[-1:] if kept[-1].digest == digest else ()
        if not kept or kept[-1].digest != digest:
            kept = (*kept, Version(number, now, digest, rows, size))
        kept = (*(each for each in kept[-KEPT:-1] if each.made > now - KEPT_FOR), kept[-1])
        history = History(inputs, content.taken, kept)
        write_file(self._index, msgspec.json.encode(history))
        used = {self.file(each.digest) for each in kept}
        used |= {self.file(changes_digest(each, after)) for each, after in pairwise(kept)}
        for old in set(self._folder.glob("*.parquet")) - used:
            old.unlink(missing_ok=True)
        return history

    def _write(self, content: Content, schema: pa.Schema) -> tuple[str, int, int]:
        """Write a file. Return the digest of its bytes, its rows and its size; without rows there is no file."""
        with self._written(content.batches, schema) as (new, rows):
            if rows == 0:
                return "", 0, 0
            with new.open("rb") as written:
                digest = hashlib.file_digest(written, "sha256").hexdigest()
            size = new.stat().st_size
            new.replace(self.file(digest))
            return digest, rows, size

    def dataset(self, version: Version, schema: pa.Schema) -> pads.Dataset:
        """Return the rows of a version.

        Raises:
            ApiError: it was made by another release, with other columns.
        """
        if not version.digest:
            return pads.dataset(schema.empty_table())
        found = pads.dataset(self.file(version.digest), format="parquet")
        if not found.schema.equals(schema):
            raise ApiError(400, f"the columns changed after version {version.number}: read the table")
        return found

    def add_changes(self, digest: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Write the changes between two versions, under the name ``changes_digest``.

        Raises:
            UnavailableError: the disk is full.
            RefusedError: this user may not write there.
        """
        with self._written(batches, schema) as (new, _):
            new.replace(self.file(digest))

    @contextlib.contextmanager
    def _written(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[tuple[Path, int]]:
        """Write a file that is gone at the end unless it was moved. Yield it and the number of its rows."""
        new = self._folder / ".new.parquet"
        with explained(new):
            private_folder(self._folder)
            with contextlib.ExitStack() as stack:
                stack.callback(new.unlink, missing_ok=True)
                descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                rows = 0
                with os.fdopen(descriptor, "wb") as stream:
                    with pq.ParquetWriter(stream, schema) as writer:
                        for batch in batches:
                            writer.write_batch(batch)
                            rows += batch.num_rows
                    stream.flush()
                    os.fsync(stream.fileno())
                yield new, rows


def changes_digest(before: Version, after: Version) -> str:
    """Return what names the file with the changes from one version to another: it follows from what both have."""
    return hashlib.sha256(f"{before.digest} {after.digest}".encode()).hexdigest()
