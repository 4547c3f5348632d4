"""The state of custody at this site: which logs it may append to. Pure.

    ELSEWHERE --(ledger gives it to us)--> INCOMING --(our copy ends at the marker)--> HELD --(we grant it)--> ELSEWHERE
        |                                                                                |
        +----(a box enters here: GTIN)----> HELD                     (an append is refused for good)----> BROKEN

The ledgers (``fairlead.custody.view.CustodyView``) alone decide which site a log is granted to. INCOMING and BROKEN are
this site's own knowledge: its copy is not complete yet, or appends fail. Readings of a log that is not HELD are strays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from enum import StrEnum

from fairlead.custody.view import CustodyView, Grant


class CustodyState(StrEnum):
    ELSEWHERE = "elsewhere"
    INCOMING = "incoming"
    HELD = "held"
    BROKEN = "broken"


class Holdings:
    """The states of the logs that were granted to this site; every other log is ELSEWHERE.

    Args:
        on_release: Called with each log that this site passes on or loses, for whatever reason.
        on_hold: Called with each log that this site takes over or opens.
    """

    def __init__(
        self,
        site: str,
        view: CustodyView,
        on_release: Callable[[str], None] = lambda _log: None,
        on_hold: Callable[[str], None] = lambda _log: None,
    ) -> None:
        self.site = site
        self.view = view
        self._states: dict[str, CustodyState] = {}
        self._terms: dict[str, int] = {}
        self._incoming: set[str] = set()
        self._broken: set[str] = set()
        self._unserved: Set[str] = frozenset()
        self._on_release = on_release
        self._on_hold = on_hold

    def state(self, log: str) -> CustodyState:
        return self._states.get(log, CustodyState.ELSEWHERE)

    def term(self, log: str) -> int:
        """Return the term in which this site holds a log; 0 when it does not hold it."""
        return self._terms.get(log, 0)  # only logs that are held have one

    @property
    def incoming(self) -> Set[str]:
        """Logs that the ledger gives to this site and that it has not taken over yet."""
        return self._incoming

    @property
    def unserved(self) -> Set[str]:
        """Incoming logs whose copy here no broker serves."""
        return self._unserved & self._incoming

    def note_unserved(self, logs: Set[str]) -> None:
        """Set which of the incoming logs no broker serves."""
        self._unserved = logs

    @property
    def broken(self) -> Set[str]:
        """Logs that the ledger gives to this site, but that it cannot append to."""
        return self._broken

    def apply_grant(self, grant: Grant) -> CustodyState:
        """Apply the newest grant of a log, and return the state that the log had before."""
        before = self.state(grant.log)
        if grant.to_site == self.site:
            if before is not CustodyState.HELD or self._terms[grant.log] < grant.term:
                self._set(grant.log, CustodyState.INCOMING)
        elif before is not CustodyState.HELD or self._terms[grant.log] < grant.term:
            self._set(grant.log, CustodyState.ELSEWHERE)
            if before is not CustodyState.ELSEWHERE:
                self._on_release(grant.log)
        return before

    def hold(self, log: str, term: int) -> None:
        """Set a log to HELD: this site appends to it in this term from now on."""
        self._set(log, CustodyState.HELD)
        self._terms[log] = term
        self._on_hold(log)

    def release(self, log: str) -> None:
        """Set a log to ELSEWHERE: it belongs to another site, or the box has left the system."""
        self._set(log, CustodyState.ELSEWHERE)
        self._on_release(log)

    def mark_broken(self, log: str) -> None:
        """Set a log to BROKEN: appends are refused for good, although the ledger gives the log to this site."""
        self._set(log, CustodyState.BROKEN)

    def counts(self) -> dict[str, int]:
        """Return the number of logs by state. ELSEWHERE counts logs that the ledger gives to other sites or to none."""
        here = Counter(self._states.values())
        counts = {state.value: here[state] for state in (CustodyState.HELD, CustodyState.INCOMING, CustodyState.BROKEN)}
        counts[CustodyState.ELSEWHERE.value] = max(0, len(self.view) - sum(counts.values()))
        return counts

    def _set(self, log: str, state: CustodyState) -> None:
        self._incoming.discard(log)
        self._broken.discard(log)
        self._terms.pop(log, None)
        if state is CustodyState.ELSEWHERE:
            self._states.pop(log, None)
            return
        self._states[log] = state
        if state is CustodyState.INCOMING:
            self._incoming.add(log)
        elif state is CustodyState.BROKEN:
            self._broken.add(log)
