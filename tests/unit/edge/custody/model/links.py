"""The model's links with their replicators, which copy logs, sometimes late and sometimes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge.messages import MessageId
from tests.unit.edge.custody.model.disk import Copy, Disk, Rec, Refused, Stray, Violation

if TYPE_CHECKING:
    from tests.unit.edge.custody.model.model import World

Flight = list[tuple[int, Rec]]


class Links:
    """Directed links between all sites."""

    def __init__(self, world: World, pairs: list[tuple[int, int]]) -> None:
        self.world = world
        self.pairs = pairs
        self.cut: set[tuple[int, int]] = set()
        self.flying: dict[tuple[int, int, str], Flight] = {}
        self._streams = len(world.logs) + 2 * len(world.sites)

    def toggle(self, n: int) -> None:
        """Cut a link or repair it; or cut off a site, or repair all links."""
        n, kind = divmod(n, 4)
        self.world.changes += 1
        if kind == 0:
            self.cut.clear()
        elif kind == 1:
            site = n % len(self.world.sites)
            self.cut.update(pair for pair in self.pairs if site in pair)
        else:
            self.cut ^= {self.pairs[n % len(self.pairs)]}

    def heal(self) -> None:
        self.cut.clear()

    def all(self) -> None:
        """Copy everything over every link."""
        for pair in self.pairs:
            for stream in range(self._streams):
                self._copy(pair, stream, 1_000, late=False)
                self._copy(pair, stream, 1_000, late=False)

    def copy(self, n: int) -> None:
        """Copy some records of one log over one link, or everything of all logs."""
        n, which = divmod(n, len(self.pairs))
        n, much = divmod(n, 4)
        n, stream = divmod(n, self._streams)
        n, late = divmod(n, 3)
        for turn in range(len(self.pairs)):
            pair = self.pairs[(which + turn) % len(self.pairs)]
            if pair in self.cut:
                continue
            if much == 0:
                moved = [self._copy(pair, each, 1_000, late=False) for each in range(self._streams)]
                if any(moved):
                    return
                continue
            for each in range(self._streams):
                if self._copy(pair, (stream + each) % self._streams, 1 + n % 5, late=late == 0):
                    return

    def _copy(self, pair: tuple[int, int], stream: int, count: int, *, late: bool) -> bool:
        source, target = self.world.disks[pair[0]], self.world.disks[pair[1]]
        sites, logs = self.world.sites, self.world.logs
        if stream < len(logs):
            return self._log(pair, source, target, logs[stream], count, late=late)
        site = sites[(stream - len(logs)) % len(sites)]
        if site == target.site:
            return False
        if stream < len(logs) + len(sites):
            entries, there = source.ledgers[site], target.ledgers[site]
            new = entries[len(there) : len(there) + count]
            for entry in new:
                target.take_entry(site, entry)
        else:
            strays, kept = source.strays[site], target.strays[site]
            new = strays[len(kept) : len(kept) + count]  # type: ignore[assignment]
            kept.extend(new)  # type: ignore[arg-type]
        self.world.changes += len(new)
        return bool(new)

    def _log(self, pair: tuple[int, int], source: Disk, target: Disk, log: str, count: int, *, late: bool) -> bool:
        key = (*pair, log)
        flight = self.flying.pop(key, None)
        if flight is not None:
            if late:
                self.flying[key] = flight  # it is copied a second time later
            return self._arrive(target, log, flight)
        ours, theirs = target.copies[log], source.copies[log]
        if self._rebuild(target, log, theirs):
            ours = target.copies[log]
        end = len(ours.records)
        if ours.misplaced or len(theirs.records) <= end or (end and theirs.records[end - 1] != ours.records[end - 1]):
            return False
        flight = list(enumerate(theirs.records[end : end + count], end))
        for place, (offset, record) in enumerate(flight):
            if any(offset >= at and record.term < term for term, at in target.seizures.get(log, ())):
                del flight[place:]
                break
        if late and flight:
            self.flying[key] = flight
            return True
        return self._arrive(target, log, flight)

    def _arrive(self, target: Disk, log: str, flight: Flight) -> bool:
        copy = target.copies[log]
        came = False
        for offset, record in flight:
            if offset < len(copy.records) and copy.records[offset] == record:
                continue
            try:
                landed = copy.append(record)
            except Refused:
                break
            self.world.changes += 1
            came = True
            if landed != offset:
                copy.misplaced = True
                break
            self.world.seen(log, offset, record)
        return came

    def _rebuild(self, target: Disk, log: str, theirs: Copy) -> bool:
        """Delete a copy whose diverged tail is kept and reported, if this source has the seizure."""
        seizures = target.seizures.get(log)
        copy = target.copies[log]
        if not seizures or (start := copy.stale_from(seizures)) is None:
            return False
        term, at = max(seizures)
        end = len(copy.records)
        if target.returned.get(log) != (term, start, end):
            return False
        if len(theirs.records) <= at or theirs.records[at].term < term:
            return False
        proven = start == 0 or theirs.records[start - 1] == copy.records[start - 1]
        if not proven:
            return False  # an earlier seizure that is not known here yet cut off more than was kept
        pairs = zip(copy.records, theirs.records, strict=False)
        differs = next((offset for offset, (ours, other) in enumerate(pairs) if ours != other), start)
        for record in copy.records[differs:]:
            if isinstance(record.body, MessageId) and Stray(log, record.body) not in target.kept:
                raise Violation(f"I2: {record.body} of {log} is thrown away at {target.site}")
        target.copies[log] = Copy()
        self.world.changes += 1
        for key in [key for key in self.flying if key[2] == log and self.world.sites[key[1]] == target.site]:
            del self.flying[key]
        return True
