"""Which logs this site may append to: the state of custody as seen here. Pure.

    ELSEWHERE --(ledger gives it to us)--> INCOMING --(our copy ends at the marker)--> HELD --(we grant it)--> ELSEWHERE
        |                                                                                |
        +----(a box enters here: GTIN)----> HELD                     (an append is refused for good)----> BROKEN

The ledger alone (``fairlead.custody.CustodyView``) says who was given what; INCOMING and BROKEN are this site's own
knowledge: whether its copy is complete, and whether it can append. Readings of a log that is not HELD are strays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from enum import StrEnum

from fairlead.custody import CustodyView, Grant


class Custody(StrEnum):
    ELSEWHERE = "elsewhere"
    INCOMING = "incoming"
    HELD = "held"
    BROKEN = "broken"


class Holdings:
    """The states of all logs that were ever given to this site; every other log is ELSEWHERE."""

    def __init__(self, site: str, view: CustodyView) -> None:
        self.site = site
        self.view = view
        self._states: dict[str, Custody] = {}
        self._terms: dict[str, int] = {}
        self._incoming: set[str] = set()
        self._on_gave: Callable[[str], None] | None = None

    def when_given(self, tell: Callable[[str], None]) -> None:
        """Have each log told that this site gives away, whatever made it do so."""
        self._on_gave = tell

    def state(self, log: str) -> Custody:
        return self._states.get(log, Custody.ELSEWHERE)

    def term(self, log: str) -> int:
        """The term in which this site holds a log; 0 when it does not."""
        return self._terms.get(log, 0) if self.state(log) is Custody.HELD else 0

    @property
    def incoming(self) -> Set[str]:
        """Logs that the ledger gives to this site and that are not taken over yet."""
        return self._incoming

    def news(self, grant: Grant) -> Custody:
        """The ledger has a new newest entry for a log; returns the state it had before."""
        before = self.state(grant.log)
        if grant.to_site == self.site:
            if before is not Custody.HELD or self._terms[grant.log] < grant.term:
                self._set(grant.log, Custody.INCOMING)
        elif before is not Custody.HELD or self._terms[grant.log] < grant.term:
            self._set(grant.log, Custody.ELSEWHERE)
        return before

    def hold(self, log: str, term: int) -> None:
        """This site appends to the log from now on."""
        self._set(log, Custody.HELD)
        self._terms[log] = term

    def gave(self, log: str) -> None:
        """This site has granted the log to another, or the box has left the system."""
        self._set(log, Custody.ELSEWHERE)
        if self._on_gave is not None:
            self._on_gave(log)

    def broke(self, log: str) -> None:
        """Appending is refused for good, though the ledger says that this site holds the log."""
        self._set(log, Custody.BROKEN)

    def counts(self) -> dict[str, int]:
        """How many logs are in which state; ELSEWHERE counts those that the ledger gives to others or to nobody."""
        here = Counter(self._states.values())
        counts = {state.value: here[state] for state in (Custody.HELD, Custody.INCOMING, Custody.BROKEN)}
        counts[Custody.ELSEWHERE.value] = max(0, len(self.view) - sum(counts.values()))
        return counts

    def _set(self, log: str, state: Custody) -> None:
        self._incoming.discard(log)
        self._terms.pop(log, None)
        if state is Custody.ELSEWHERE:
            self._states.pop(log, None)
            return
        self._states[log] = state
        if state is Custody.INCOMING:
            self._incoming.add(log)
