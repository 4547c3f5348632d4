"""The chain of custody of one log: its holders, their offset ranges, and the events that moved it. Pure.

A chain is made of the entries of all ledgers, in any order and with repeats; the same entries always give the same
chain. The valid terms follow each other without a gap: each ends before the marker of the next. A term that a seizure
cut off (its marker is at or beyond the seizure's marker) is ``lost``: its records are no part of the log, and sites
that have them keep them as strays.
"""

from __future__ import annotations

import datetime as dt
import difflib
import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from operator import eq
from typing import Final

from fairlead.errors import ConfigurationError
from fairlead.records.custody import ClaimEntry, CustodyEntry, CustodyEvent, LedgerEntry, RefusalEntry, ReturnEntry

_NEAREST: Final = 3
_LIKELY: Final = 50  # number of names to compare closely: very many logs differ in only a digit or two


class UnknownLogError(ConfigurationError):
    """No ledger that was read names this log; carries the nearest names."""

    def __init__(self, log: str, known: Collection[str], *, at: str) -> None:
        near = difflib.get_close_matches(log, heapq.nlargest(_LIKELY, known, key=partial(_in_common, log)), n=_NEAREST)
        what = f"did you mean {' or '.join(near)}? " if near else ""
        super().__init__(
            f"no ledger at {at} names {log}: custody of it has never been given, or news of it has not come there",
            hint=f"{what}'fairlead custody list --site SITE' lists the {len(known):,} logs that are known at a site",
            log=log,
            at=at,
            nearest=near,
            known=len(known),
        )


@dataclass(frozen=True, slots=True)
class TermInterval:
    """One term of a log.

    Args:
        holder: The site that may append in it; None when the box had left the system (GTOT).
        from_site: The holder before; None at an opening.
        from_offset: The holder's first record: the one after the marker.
        to_offset: Where it ends, exclusive: at the next term's marker. None while it runs. For a lost term: the next
            lost term's marker, or the end of a returned site's copy; None when it is not known.
        to_date_time: The time of the event that ended it; None while it runs.
        cut_by: The term of the seizure that cut this one off; None for valid terms.
    """

    term: int
    holder: str | None
    from_site: str | None
    marker_offset: int
    from_offset: int
    to_offset: int | None
    event: CustodyEvent
    event_id: str
    event_date_time: dt.datetime
    to_date_time: dt.datetime | None
    granted_by: str
    granted_date_time: dt.datetime
    ordered_by: str
    reason: str
    cut_by: int | None = None

    @property
    def lost(self) -> bool:
        """Whether a seizure cut this term off; its records are then no part of the log."""
        return self.cut_by is not None


@dataclass(frozen=True, slots=True)
class Split:
    """A term that was granted twice; the chain uses the first grant."""

    term: int
    grants: tuple[CustodyEntry, ...]


@dataclass(frozen=True)
class Chain:
    """The history of one log, from all ledger entries about it.

    Args:
        intervals: Every known term, in order, including lost ones.
        missing: Terms (first, last) whose entries are not in the ledgers that were read.
        returns: The records that sites had beyond a seizure's marker, by (term, site, end).
        refusals: Operators' orders that were not carried out, oldest first.
        claims: Unanswered claims of the log of a box that has left, the earliest gate-in first.
    """

    log: str
    intervals: tuple[TermInterval, ...]
    missing: tuple[tuple[int, int], ...]
    splits: tuple[Split, ...]
    returns: tuple[ReturnEntry, ...]
    refusals: tuple[RefusalEntry, ...]
    claims: tuple[ClaimEntry, ...] = ()

    @cached_property
    def standing(self) -> tuple[TermInterval, ...]:
        """The terms that are part of the log; each begins where the one before it ends."""
        return tuple(each for each in self.intervals if not each.lost)

    @property
    def past_sites(self) -> list[str | None]:
        """Every site that held the log or gave it away, the last one first; None for one outside the system."""
        return [site for each in reversed(self.standing) for site in (each.holder, each.from_site)]

    @property
    def newest(self) -> TermInterval | None:
        """The current term; None when only refusals name the log."""
        return self.intervals[-1] if self.intervals else None

    @property
    def holder(self) -> str | None:
        """The site that may append now; None when no site may, or when it is not known."""
        return self.intervals[-1].holder if self.intervals else None


def chain(log: str, entries: Iterable[LedgerEntry], *, known: Collection[str] = (), at: str = "this site") -> Chain:
    """Build the chain of one log from entries of any ledgers; entries of other logs are ignored.

    Args:
        known: Names of logs for the error, besides those that the entries name.
        at: The site whose ledgers these are, for the error.

    Raises:
        UnknownLogError: no entry is about this log.
    """
    own: list[LedgerEntry] = []
    others = set(known)
    for entry in entries:
        if entry.log == log:
            own.append(entry)
        else:
            others.add(entry.log)
    if not own:
        raise UnknownLogError(log, others, at=at)
    return _chain(log, own)


def chains(entries: Iterable[LedgerEntry]) -> Iterator[Chain]:
    """Yield the chain of every log that an entry names, sorted by name."""
    by_log: dict[str, list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        by_log[entry.log].append(entry)
    return (_chain(log, by_log[log]) for log in sorted(by_log))


def _chain(log: str, entries: Sequence[LedgerEntry]) -> Chain:
    grants: dict[int, list[CustodyEntry]] = defaultdict(list)
    returns: set[ReturnEntry] = set()
    refusals: set[RefusalEntry] = set()
    claims: set[ClaimEntry] = set()
    for entry in entries:
        match entry:
            case CustodyEntry():
                grants[entry.term].append(entry)
            case ReturnEntry():
                returns.add(entry)
            case RefusalEntry():
                refusals.add(entry)
            case ClaimEntry():
                claims.add(entry)
    chosen: list[CustodyEntry] = []
    splits: list[Split] = []
    for term in sorted(grants):
        if len(grants[term]) == 1:
            chosen += grants[term]
            continue
        different = {_identity(each): each for each in sorted(grants[term], key=_rank, reverse=True)}
        ranked = sorted(different.values(), key=_rank)
        chosen.append(ranked[0])
        if len(ranked) > 1:
            splits.append(Split(term, tuple(ranked)))
    back = tuple(sorted(returns, key=lambda each: (each.term, each.returned_by, each.end_offset, each.strays_end)))
    return Chain(
        log=log,
        intervals=_intervals(chosen, back),
        missing=tuple(_missing(chosen)),
        splits=tuple(splits),
        returns=back,
        refusals=tuple(sorted(refusals, key=lambda each: (each.refused_date_time, each.order_id, each.refused_by))),
        claims=tuple(_unanswered(claims, chosen)),
    )


def _unanswered(claims: Iterable[ClaimEntry], grants: Sequence[CustodyEntry]) -> Iterator[ClaimEntry]:
    """Yield the claims of the newest term if the box is outside the system, without repeats. All others are void."""
    newest = grants[-1] if grants else None
    if newest is None or newest.to_site is not None:
        return
    told: set[tuple[str, str]] = set()
    for claim in sorted(claims, key=lambda each: (each.event_date_time, each.claimed_by, each.claimed_date_time)):
        if claim.term == newest.term and (claim.claimed_by, claim.event_id) not in told:
            told.add((claim.claimed_by, claim.event_id))
            yield claim


def _in_common(name: str, other: str) -> int:
    """Count the positions where two names have the same character, from the front and from the back."""
    shared: int = sum(map(eq, name, other)) + sum(map(eq, reversed(name), reversed(other)))
    return shared


def _identity(entry: CustodyEntry) -> tuple[str | None, int, str]:
    """Return the fields in which two different grants of one term differ."""
    return entry.to_site, entry.marker_offset, entry.event_id


def _rank(entry: CustodyEntry) -> tuple[object, ...]:
    """Return a sort key for a term's entries that does not depend on the order in which they were read."""
    return (
        entry.marker_offset,
        entry.to_site or "",
        entry.event_id,
        entry.granted_date_time,
        entry.granted_by,
        entry.ordered_by,
        entry.reason,
    )


def _intervals(grants: Sequence[CustodyEntry], returns: Sequence[ReturnEntry]) -> tuple[TermInterval, ...]:
    standing: list[int] = []
    cut: dict[int, int] = {}  # index in ``grants`` to the index of the seizure that cut it off
    for place, grant in enumerate(grants):
        while standing and grants[standing[-1]].marker_offset >= grant.marker_offset:
            cut[standing.pop()] = place
        standing.append(place)
    following = dict(pairwise(standing))
    reached: dict[int, int] = {}  # term of a seizure to the end of the longest copy that was returned
    for each in returns:
        reached[each.term] = max(each.end_offset, reached.get(each.term, 0))
    found: list[TermInterval] = []
    for place, grant in enumerate(grants):
        if place in cut:
            cutter = cut[place]
            after = place + 1 if place + 1 < cutter and cut.get(place + 1) == cutter else None
            to_offset = grants[after].marker_offset if after is not None else reached.get(grants[cutter].term)
            ended = grants[after if after is not None else cutter].event_date_time
            found.append(_interval(grant, to_offset, ended, grants[cutter].term))
        elif place in following:
            successor = grants[following[place]]
            found.append(_interval(grant, successor.marker_offset, successor.event_date_time, None))
        else:
            found.append(_interval(grant, None, None, None))
    return tuple(found)


def _interval(
    grant: CustodyEntry, to_offset: int | None, to_date_time: dt.datetime | None, cut_by: int | None
) -> TermInterval:
    return TermInterval(
        term=grant.term,
        holder=grant.to_site,
        from_site=grant.from_site,
        marker_offset=grant.marker_offset,
        from_offset=grant.marker_offset + 1,
        to_offset=to_offset,
        event=grant.event,
        event_id=grant.event_id,
        event_date_time=grant.event_date_time,
        to_date_time=to_date_time,
        granted_by=grant.granted_by,
        granted_date_time=grant.granted_date_time,
        ordered_by=grant.ordered_by,
        reason=grant.reason,
        cut_by=cut_by,
    )


def _missing(grants: Sequence[CustodyEntry]) -> Iterator[tuple[int, int]]:
    """Yield gaps (first, last) in the terms; a seizure skips terms on purpose, so gaps before it do not count."""
    before = 0
    for grant in grants:
        if grant.event != "SEIZURE" and grant.term > before + 1:
            yield before + 1, grant.term - 1
        before = grant.term
