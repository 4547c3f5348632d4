"""The current holder of every log: a pure view over the entries of all ``custody.*`` logs.

``edge`` grants and accepts custody by this view, ``replication`` selects a ship's logs by it. Entries of one log come
from several ledgers (each site writes only its own) and may arrive in any order and more than once: the entry with the
highest term counts. The view shows which grants exist; only the receiver knows whether it already appends.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from fairlead.errors import FairleadError
from fairlead.records.custody import CustodyEntry, CustodyEvent

_NOTHING_DRAINED: Final[Mapping[str, int]] = MappingProxyType({})


class SplitCustodyError(FairleadError):
    """Two different entries grant the same term of one log: two sites opened or seized it at once."""


BY_HAND: Final = ("HAND", "SEIZURE")
"""Grants that an operator has made. Their time is the operator's and not a device's."""

SEIZING_TERMS: Final = 16
"""A seizure's term is at least this much above the last known one, so the lost holder's later terms are older."""


class Grant(msgspec.Struct, frozen=True, gc=False):
    """The newest entry of one log. ``to_site`` is None when the box left the system (GTOT).

    There is one for each of very many logs, and none is part of a reference cycle, so the garbage collector skips them.
    """

    log: str
    term: int
    marker: int  # offset of the term's marker; the holder's first own record is marker + 1
    from_site: str | None
    to_site: str | None
    event: CustodyEvent
    event_id: str
    at: dt.datetime  # time of the event
    drained: Mapping[str, int]  # by strays log: this log already has its strays from before this offset
    drained_since: int  # strays drained beyond that are in the log after this offset
    granted_by: str = ""


class Seizure(NamedTuple):
    """A seizure of one log: older terms end before ``marker``."""

    term: int
    marker: int
    to_site: str | None


class Moved(NamedTuple):
    """An event that moved a log: the term that it made, and its id."""

    term: int
    event_id: str


class CustodyView:
    """Holder, term and marker offset per log. Not thread safe; ``apply`` is idempotent and needs no order."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._counts: Counter[str] = Counter()  # number of logs by holder
        self._seizures: dict[str, tuple[Seizure, ...]] = {}
        self._before_hand: dict[str, Moved] = {}  # by log: the newest event that moved it, before one by hand
        self._rivals: dict[str, set[str]] = {}  # other sites that the newest term was granted to: a split

    def apply(self, entry: CustodyEntry) -> bool:
        """Apply one ledger entry; return True when it changes the view.

        Raises:
            SplitCustodyError: the same term of the log was granted differently before; the first entry stays.
        """
        if entry.event == "SEIZURE":
            self._seize(entry)
        known = self._grants.get(entry.log)
        if known is not None:
            self._note_event(known, entry)
        if known is not None and known.term >= entry.term:
            if known.term == entry.term and _differs(known, entry):
                if entry.to_site is not None:
                    self._rivals.setdefault(entry.log, set()).add(entry.to_site)
                raise SplitCustodyError(
                    f"term {entry.term} of {entry.log} was granted twice: to {known.to_site} at offset {known.marker} "
                    f"(event {known.event_id}) and to {entry.to_site} at offset {entry.marker_offset} "
                    f"(event {entry.event_id})",
                    hint="both sites opened or seized the log; compare the two copies with 'fairlead audit'",
                    log=entry.log,
                    term=entry.term,
                )
            return False
        if known is not None and known.to_site is not None:
            self._counts[known.to_site] -= 1
        log = known.log if known is not None else entry.log
        to_site = _interned(entry.to_site)
        self._rivals.pop(log, None)
        self._grants[log] = Grant(
            log=log,
            term=entry.term,
            marker=entry.marker_offset,
            from_site=_interned(entry.from_site),
            to_site=to_site,
            event=entry.event,
            event_id=entry.event_id,
            at=entry.event_date_time,
            drained=entry.drained or _NOTHING_DRAINED,
            drained_since=entry.marker_offset if entry.drained_since is None else entry.drained_since,
            granted_by=sys.intern(entry.granted_by),
        )
        if to_site is not None:
            self._counts[to_site] += 1
        return True

    def _seize(self, entry: CustodyEntry) -> None:
        seizure = Seizure(entry.term, entry.marker_offset, entry.to_site)
        known = self._seizures.get(entry.log, ())
        if seizure not in known:
            self._seizures[entry.log] = tuple(sorted((*known, seizure), key=_by_term))

    def _note_event(self, known: Grant, entry: CustodyEntry) -> None:
        """Keep the event that one of two grants is of, if the newer one is by hand."""
        if known.term > entry.term:
            newer, older, moved = known.event, entry.event, Moved(entry.term, entry.event_id)
        else:
            newer, older, moved = entry.event, known.event, Moved(known.term, known.event_id)
        if newer in BY_HAND and older not in BY_HAND:
            self._before_hand[known.log] = max(moved, self._before_hand.get(known.log, moved))

    def moved_before_hand(self, log: str) -> Moved | None:
        """Return the newest event that moved a log before its newest grant, if that one is by hand; None: neither."""
        grant = self._grants.get(log)
        return self._before_hand.get(log) if grant is not None and grant.event in BY_HAND else None

    def seized(self) -> Set[str]:
        """Return the logs that were ever seized, as a live view."""
        return self._seizures.keys()

    def seizures(self, log: str) -> tuple[Seizure, ...]:
        """Return every seizure of a log, ordered by term."""
        return self._seizures.get(log, ())

    def grant(self, log: str) -> Grant | None:
        """Return the newest grant of a log; None when no ledger seen so far names the log."""
        return self._grants.get(log)

    def holder(self, log: str) -> str | None:
        """Return the site that the newest entry gives the log to; None when unknown, or the box left the system."""
        grant = self._grants.get(log)
        return grant.to_site if grant is not None else None

    def could_hold(self, log: str) -> Set[str]:
        """Return the sites that the newest term was granted to: more than one if it was granted twice."""
        holder = self.holder(log)
        return self._rivals.get(log, set()) | ({holder} if holder is not None else set())

    def term(self, log: str) -> int | None:
        """Return the newest term of a log; None when unknown."""
        grant = self._grants.get(log)
        return grant.term if grant is not None else None

    def marker(self, log: str) -> int | None:
        """Return the offset of the newest term's marker; None when unknown."""
        grant = self._grants.get(log)
        return grant.marker if grant is not None else None

    def held_by(self, site: str) -> Set[str]:
        """Return the logs that a site holds by the newest entries, as a live view.

        Copy it to keep it. Iterating over it iterates over all logs.
        """
        return _Held(site, self._grants, self._counts)

    def granted_to(self, site: str) -> Iterator[Grant]:
        """Yield the newest grants of the logs in ``held_by(site)``."""
        return (grant for grant in tuple(self._grants.values()) if grant.to_site == site)

    def holders(self) -> Mapping[str, Set[str]]:
        """Return every site that holds a log by the newest entries, with the logs that it holds."""
        found: dict[str, set[str]] = defaultdict(set)
        for log, grant in self._grants.items():
            if grant.to_site is not None:
                found[grant.to_site].add(log)
        return dict(found)

    def logs(self) -> Set[str]:
        """Return every log that some ledger names, as a live view."""
        return self._grants.keys()

    def __len__(self) -> int:
        return len(self._grants)


class _Held(Set[str]):
    """The logs of one holder. It stores no set of its own, which would be as large as the view itself."""

    def __init__(self, site: str, grants: Mapping[str, Grant], counts: Mapping[str, int]) -> None:
        self._site = site
        self._grants = grants
        self._counts = counts

    def __contains__(self, log: object) -> bool:
        grant = self._grants.get(log) if isinstance(log, str) else None
        return grant is not None and grant.to_site == self._site

    def __iter__(self) -> Iterator[str]:
        return (log for log, grant in self._grants.items() if grant.to_site == self._site)

    def __len__(self) -> int:
        return self._counts.get(self._site, 0)


def _by_term(seizure: Seizure) -> tuple[int, int, str]:
    return seizure.term, seizure.marker, seizure.to_site or ""


def _differs(known: Grant, entry: CustodyEntry) -> bool:
    return (known.to_site, known.marker, known.event_id) != (entry.to_site, entry.marker_offset, entry.event_id)


def _interned(site: str | None) -> str | None:
    return sys.intern(site) if site is not None else None
