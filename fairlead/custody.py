"""Who may append to which log, as the ledger tells it: a pure view over the entries of all ``custody.*`` logs.

``edge`` grants and takes custody by this view, ``replication`` learns from it what is aboard a ship. Entries of one
log come from several ledgers (each site writes only its own) and may arrive in any order and more than once: the entry
with the highest term counts. The view knows what was granted; that a receiver really appends is its own knowledge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Set
from typing import NamedTuple

from fairlead.errors import FairleadError
from fairlead.records.custody import CustodyEntry, CustodyEvent

_NOBODY: frozenset[str] = frozenset()


class SplitCustodyError(FairleadError):
    """Two different entries grant the same term of one log: two sites opened or seized it at once."""


class Grant(NamedTuple):
    """The newest entry of one log. ``to_site`` is None when the box left the system (GTOT)."""

    log: str
    term: int
    marker: int  # offset of the term's marker; the holder's first own record is marker + 1
    from_site: str | None
    to_site: str | None
    event: CustodyEvent
    event_id: str
    marker_batch: bytes  # the marker's batch as stored, to position a log that has no history here


class CustodyView:
    """Holder, term and marker offset per log. Not thread safe; ``apply`` is idempotent and needs no order."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._held: dict[str, set[str]] = {}

    def apply(self, entry: CustodyEntry) -> bool:
        """Take one ledger entry in; True when it is news.

        Raises:
            SplitCustodyError: the same term of the log was granted differently before; the first entry stays.
        """
        known = self._grants.get(entry.log)
        if known is not None and known.term >= entry.term:
            if known.term == entry.term and _differs(known, entry):
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
            self._held[known.to_site].discard(entry.log)
        to_site = sys.intern(entry.to_site) if entry.to_site is not None else None
        self._grants[entry.log] = Grant(
            log=entry.log,
            term=entry.term,
            marker=entry.marker_offset,
            from_site=sys.intern(entry.from_site) if entry.from_site is not None else None,
            to_site=to_site,
            event=entry.event,
            event_id=entry.event_id,
            marker_batch=entry.marker_batch,
        )
        if to_site is not None:
            self._held.setdefault(to_site, set()).add(entry.log)
        return True

    def grant(self, log: str) -> Grant | None:
        """The newest grant of a log; None when no ledger seen so far names the log."""
        return self._grants.get(log)

    def holder(self, log: str) -> str | None:
        """The site that the newest entry gives the log to; None when unknown, or when the box left the system."""
        grant = self._grants.get(log)
        return grant.to_site if grant is not None else None

    def term(self, log: str) -> int | None:
        """The newest term of a log; None when unknown."""
        grant = self._grants.get(log)
        return grant.term if grant is not None else None

    def marker(self, log: str) -> int | None:
        """The offset of the newest term's marker; None when unknown."""
        grant = self._grants.get(log)
        return grant.marker if grant is not None else None

    def held_by(self, site: str) -> Set[str]:
        """The logs whose custody is, or is being given to, a site. A live view: copy it to keep it."""
        return self._held.get(site, _NOBODY)

    def granted_to(self, site: str) -> Iterator[Grant]:
        """The newest grants of the logs in ``held_by(site)``."""
        return (self._grants[log] for log in tuple(self._held.get(site, ())))

    def logs(self) -> Set[str]:
        """Every log that some ledger names. A live view."""
        return self._grants.keys()

    def __len__(self) -> int:
        return len(self._grants)


def _differs(known: Grant, entry: CustodyEntry) -> bool:
    return (known.to_site, known.marker, known.event_id) != (entry.to_site, entry.marker_offset, entry.event_id)
