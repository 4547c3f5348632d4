"""What of a batch a log has already, and what is missing. Pure.

Every record that the sink appends has the header ``sink``: ``<app>@<batch>#<index>``, where ``index`` counts the
records of that batch in that log. Spark begins batch n + 1 of a query only when batch n was committed, so the last
record of an app in a log tells everything: of an earlier batch, nothing of this one is there; of this batch, those from
index 0 to it are. They are found again by their content, not by their place, since the rows of a repeated batch come in
another order where a shuffle is in the query.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.kafka.protocol.record import NewRecord, Record
from fairlead.records import headers as names
from shore.sink.errors import ChangedBatchError, StaleBatchError


class Stamp(NamedTuple):
    """The header ``sink`` in its parts."""

    app: str
    batch: int
    index: int  # type: ignore[assignment]  # a field shadows tuple.index on purpose

    def encode(self) -> bytes:
        return f"{self.app}@{self.batch}#{self.index}".encode()


def stamp_of(record: Record | NewRecord) -> Stamp | None:
    """Which record of which batch this is; None when no sink wrote it."""
    found = dict(record.headers).get(names.SINK)
    if found is None:
        return None
    app, _, rest = found.decode("utf-8", "replace").rpartition("@")
    batch, hash_, index = rest.partition("#")
    return Stamp(app, int(batch), int(index)) if app and hash_ and batch.isdecimal() and index.isdecimal() else None


def digest(record: Record | NewRecord, *, timed: bool) -> bytes:
    """What two records have in common that stand for the same row. Without ``timed`` their times may differ."""
    parts: list[bytes | None] = [b"%d" % record.timestamp_ms if timed else None, record.key, record.value]
    for name, value in record.headers:
        if name != names.SINK:
            parts += (name.encode(), value)
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(b"-" if part is None else b"%d:" % len(part) + part)
    return found.digest()


@dataclass(slots=True)
class Found:
    """What a log has of one batch, gathered from its end backwards.

    Args:
        last: Index of the batch's last record in the log; None until one of the app's records was met.
        records: The batch's records that were met, by index.
    """

    log: str
    app: str
    batch: int
    last: int | None = None
    records: dict[int, Record] = field(default_factory=dict)
    complete: bool = False

    def look(self, records: Iterable[Record]) -> bool:
        """Take over a piece of the log, which ends where the piece before began.

        Returns:
            Whether nothing before it can be of interest.

        Raises:
            StaleBatchError: the log has a later batch of this app.
        """
        for record in reversed(list(records)):
            stamp = stamp_of(record)
            if stamp is None or stamp.app != self.app:
                continue
            if stamp.batch > self.batch:
                raise StaleBatchError(
                    f"log {self.log} already has batch {stamp.batch} of app {self.app!r}, and now comes batch "
                    f"{self.batch}: the query has a new checkpoint, or runs twice",
                    hint="let a query with a new checkpoint have another name in option 'app'; its rows are appended "
                    "from the beginning then",
                    log=self.log,
                    batch=self.batch,
                )
            if stamp.batch == self.batch:
                self.last = stamp.index if self.last is None else self.last
                self.records[stamp.index] = record
            self.complete = stamp.batch < self.batch or stamp.index == 0
            if self.complete:
                return True
        return False


def missing(rows: Sequence[NewRecord], found: Found, *, timed: bool) -> list[NewRecord]:
    """The records of a batch that a log does not have yet, in the order of the rows, with their headers.

    Raises:
        ChangedBatchError: the log has records of this batch that are not among the rows.
    """
    there = Counter(digest(record, timed=timed) for record in found.records.values())
    count = 0 if found.last is None else found.last + 1
    left: list[NewRecord] = []
    for row in rows:
        key = digest(row, timed=timed)
        if there[key]:
            there[key] -= 1
        else:
            left.append(row)
    strange = there.total()
    if strange or len(found.records) < count:
        raise ChangedBatchError(
            f"log {found.log} has {count} records of batch {found.batch} of app {found.app!r}, of which "
            f"{strange + count - len(found.records)} are not among the batch's rows: the query gave other rows when "
            "the batch was repeated",
            hint="leave out of the rows what differs from try to try (the present time, random numbers); then start "
            "with a new checkpoint and another name in option 'app'",
            log=found.log,
            batch=found.batch,
        )
    return [
        NewRecord(
            row.value,
            row.key,
            (*row.headers, (names.SINK, Stamp(found.app, found.batch, index).encode())),
            timestamp_ms=row.timestamp_ms,
        )
        for index, row in enumerate(left, start=count)
    ]
