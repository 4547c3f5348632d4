"""Readings that this site may not append to their log: kept in ``strays.<site>``, found again when custody comes.

In memory stand the offsets per log, not the readings; they are read back from the strays log when they are drained.
Only this site's own strays are looked at. Draining the strays of other sites, and an alert for strays that wait too
long, are not built yet.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Set

import msgspec

from edge import records
from edge.lane import Entry, Lane, Outcome, Sink
from edge.messages import Identity
from edge.repeats import Repeats, Verdict
from fairlead.wire.record import Record

StrayKey = tuple[str, Identity]


class _Kept:
    """The strays of one log: their offsets in the strays log, ascending, and what they are."""

    __slots__ = ("offsets", "repeats")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.repeats = Repeats(complete=True)


class StrayIndex:
    """Which strays wait for which log. Pure."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._ever: set[str] = set()
        self.end = 0  # the offset after the last stray this index knows of
        self.waiting = 0

    def add(self, log: str, offset: int, identity: Identity) -> None:
        kept = self._kept.get(log)
        if kept is None:
            kept = self._kept[log] = _Kept()
            self._ever.add(log)
        kept.offsets.append(offset)
        kept.repeats.add(identity)
        self.waiting += 1
        self.end = max(self.end, offset + 1)

    def has(self, log: str) -> bool:
        return log in self._kept

    def logs(self) -> Set[str]:
        return self._kept.keys()

    def offsets(self, log: str) -> Iterable[int]:
        kept = self._kept.get(log)
        return kept.offsets if kept is not None else ()

    def ever_had(self, log: str) -> bool:
        """Whether this site has had strays of this log since the bridge started (or found some then)."""
        return log in self._ever

    def drained(self, log: str, *, upto: int) -> None:
        """Every stray of the log before offset ``upto`` is in the log now."""
        kept = self._kept.get(log)
        if kept is None:
            return
        left = array("q", (offset for offset in kept.offsets if offset >= upto))
        self.waiting -= len(kept.offsets) - len(left)
        if left:
            kept.offsets = left
        else:
            del self._kept[log]

    # -- the memory of the strays lane

    def check(self, key: StrayKey, *, redelivered: bool = False) -> Verdict:
        kept = self._kept.get(key[0])
        # What this memory has forgotten is kept twice; draining recognises it.
        known = kept is not None and kept.repeats.check(key[1]) is Verdict.REPEAT
        return Verdict.REPEAT if known else Verdict.NEW


class _StrayMemory:
    """``StrayIndex`` as a lane's memory; offsets are added when they are known, by ``Strays``."""

    only_redelivered = False

    def __init__(self, index: StrayIndex) -> None:
        self._index = index

    def check(self, key: StrayKey, *, redelivered: bool = False) -> Verdict:
        return self._index.check(key, redelivered=redelivered)

    def add(self, key: StrayKey) -> None:
        return


class Strays:
    """Keeps strays and remembers where."""

    def __init__(
        self,
        log: str,
        sink: Sink,
        *,
        settle: Callable[[Entry[StrayKey], Outcome], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.log = log
        self.index = StrayIndex()
        self._settle = settle
        self._on_the_way: Counter[str] = Counter()
        self.lane: Lane[StrayKey] = Lane(log, sink, _StrayMemory(self.index), settle=self._settled, fail=fail)

    def keep(self, log: str, entry: Entry[Identity]) -> None:
        """Keep a reading of a log that is not held here; its message is acknowledged when the stray is stored."""
        wrapped = records.stray(log, entry.record)
        self._on_the_way[log] += 1
        self.lane.put(Entry(wrapped, (log, entry.key), entry.redelivered, entry.ticket))

    def wait_for(self, log: str) -> bool:
        """Whether there are strays of this log, stored or on their way."""
        return self.index.has(log) or log in self._on_the_way

    def found(self, record: Record, drained_before: Callable[[str], int]) -> None:
        """Take in a record of the strays log at start. ``drained_before`` tells what a log has already got."""
        self.index.end = max(self.index.end, record.offset + 1)
        try:
            stray = records.read_stray(record)
        except msgspec.DecodeError:
            return  # not written by a bridge; nothing to drain
        if stray is None or record.offset < drained_before(stray.log):
            return
        identity = records.identity(stray.payload)
        if identity is not None:
            self.index.add(stray.log, record.offset, identity)

    def _settled(self, entry: Entry[StrayKey], outcome: Outcome) -> None:
        log, identity = entry.key
        self._on_the_way[log] -= 1
        if not self._on_the_way[log]:
            del self._on_the_way[log]
        if outcome is Outcome.APPENDED:
            self.index.add(log, entry.offset, identity)
        self._settle(entry, outcome)
