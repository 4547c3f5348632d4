"""Build entries of custody ledgers: grants, seizures, claims, refusals, diverged copies that return, and histories of
them.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import strategies as st

from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry, RefusalEntry, ReturnEntry

T = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
LOG = "containers.BIGU0000016"
SITES = ("tokyo", "duck-star", "sydney")


def entry(
    term: int, marker: int, to: str | None, event: Any = "HAND", *, by: str = "tokyo", **more: Any
) -> CustodyEntry:
    """Return a grant of ``LOG`` to a site from offset ``marker`` on; ``to`` None means that nobody holds it
    afterwards."""
    given: dict[str, Any] = {
        "log": LOG,
        "term": term,
        "marker_offset": marker,
        "from_site": None if term == 1 else by,
        "to_site": to,
        "event": event,
        "event_id": f"e{term}",
        "event_date_time": T + dt.timedelta(hours=term),
        "granted_date_time": T + dt.timedelta(hours=term, minutes=1),
        "granted_by": by,
        "marker_batch": b"m",
    }
    return CustodyEntry(**{**given, **more})


def came_back(term: int, marker: int, end: int, by: str = "duck-star") -> ReturnEntry:
    """Return the entry about a lost holder's copy that came back with extra records from ``marker`` (inclusive) to
    ``end`` (exclusive).
    """
    return ReturnEntry(
        log=LOG,
        term=term,
        marker_offset=marker,
        end_offset=end,
        kept=end - marker,
        strays_log=f"strays.{by}",
        strays_end=9,
        returned_date_time=T,
        returned_by=by,
    )


def refused(order: str) -> RefusalEntry:
    """Return the entry that an order was refused."""
    return RefusalEntry(
        log=LOG, order_id=order, code="NotHolderError", reason="no", refused_date_time=T, refused_by="tokyo"
    )


@st.composite
def histories(draw: st.DrawFn) -> list[LedgerEntry]:
    """Draw possible histories: grants at rising offsets, seizures at or before the end, and lost holders' copies that
    come back.
    """
    term, end = 1, 0
    done: list[LedgerEntry] = [entry(1, 0, "tokyo", "GTIN")]
    for _ in range(draw(st.integers(0, 8))):
        end += draw(st.integers(1, 9))
        to = draw(st.sampled_from((*SITES, None)))
        if draw(st.integers(0, 3)):
            term += 1
            done.append(entry(term, end, to, "HAND" if to else "GTOT"))
        else:
            reached = end
            term, end = term + 16 + draw(st.integers(0, 2)), draw(st.integers(1, end))
            done.append(entry(term, end, to or "sydney", "SEIZURE"))
            if draw(st.booleans()):
                done.append(came_back(term, end, reached + 1))
    return done


def claimed(by: str, term: int, *, after: int = 0, again: int = 0) -> ClaimEntry:
    """Return a site's claim to a container that left Tokyo in a term; ``again`` numbers repeated claims."""
    return ClaimEntry(
        log=LOG,
        term=term,
        left_site="tokyo",
        event_id=f"in-{by}",
        event_date_time=T + dt.timedelta(hours=after),
        claimed_date_time=T + dt.timedelta(days=1, minutes=again),
        claimed_by=by,
    )
