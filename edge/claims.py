"""Claims: who asks for the log of a box that left the system elsewhere (docs/custody.md, rule 1). Pure.

Only the site that a box has left opens its next term, for itself or for a site that claims the log in its ledger. So
two sites where a box seems to come in cannot both open the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from fairlead.custody import CustodyView, Grant
from fairlead.records.custody import ClaimEntry


class Claims:
    """The claims that this site has made, and those that it is to answer; others are passed over."""

    def __init__(self, site: str, view: CustodyView) -> None:
        self._site = site
        self._view = view
        self._made: dict[str, tuple[int, str]] = {}  # of each log the newest: term and event
        self._asked: dict[str, list[ClaimEntry]] = defaultdict(list)

    def learn(self, entry: ClaimEntry) -> bool:
        """Take in a claim from any ledger; True when this site is the one to answer it."""
        if entry.claimed_by == self._site:
            self._made[entry.log] = (entry.term, entry.event_id)
        if entry.left_site != self._site or entry.claimed_by == self._site:
            return False
        self._asked[entry.log].append(entry)
        return True

    def is_made(self, log: str, term: int, event_id: str) -> bool:
        """Whether this site's newest claim to a log is this one."""
        return self._made.get(log) == (term, event_id)

    def logs(self) -> Collection[str]:
        """Logs that others claim of this site, those that were answered perhaps among them."""
        return tuple(self._asked)

    def next(self, log: str) -> ClaimEntry | None:
        """The claim to answer now: of those that are not void, the box that came in first. None: there is none."""
        grant = self._view.grant(log)
        open_still = [each for each in self._asked.get(log, ()) if grant is None or each.term >= grant.term]
        if not open_still:
            self._asked.pop(log, None)
            return None
        self._asked[log] = open_still
        valid = [each for each in open_still if grant is not None and left_here(grant, self._site, each.term)]
        return min(valid, key=lambda each: (each.event_date_time, each.claimed_by), default=None)


def left_here(grant: Grant, site: str, term: int) -> bool:
    """Whether a box is outside since it left a site in this term."""
    return grant.to_site is None and grant.from_site == site and grant.term == term
