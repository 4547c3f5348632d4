"""Custody ledgers as correct sites write them: four containers with their grants and claims."""

from __future__ import annotations

import datetime as dt
from typing import Any

from fairlead.names import container_check_digit
from fairlead.records.custody import ClaimEntry, CustodyEntry, LedgerEntry

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def log(n: int, stream: str = "containers", owner: str = "BIGU") -> str:
    """Return the log name of the n-th container, with a valid check digit."""
    ten = f"{owner}{n:06d}"
    return f"{stream}.{ten}{container_check_digit(ten)}"


ASHORE, ABOARD, OUTSIDE, NEW = log(1), log(2), log(3), log(4)


def grant(site: str, of: str, term: int, to: str | None, **more: Any) -> CustodyEntry:
    """Return the entry by which a site grants a log in a term; ``to`` None means that nobody holds it afterwards."""
    given: dict[str, Any] = {
        "log": of,
        "term": term,
        "marker_offset": 10 * term,
        "from_site": None if term == 1 else site,
        "to_site": to,
        "event": "GTIN" if term == 1 else "GTOT" if to is None else "LOAD",
        "event_id": f"e{term}-{of}",
        "event_date_time": NOW,
        "granted_date_time": NOW,
        "granted_by": site,
        "marker_batch": b"",
    }
    return CustodyEntry(**{**given, **more})


HONEST: tuple[tuple[str, LedgerEntry], ...] = (
    ("tokyo", grant("tokyo", ASHORE, 1, "tokyo")),
    ("tokyo", grant("tokyo", ASHORE, 2, "star")),
    ("star", grant("star", ASHORE, 3, "sydney", event="DISC", drained={"strays.star": 5})),
    ("tokyo", grant("tokyo", ABOARD, 1, "tokyo")),
    ("tokyo", grant("tokyo", ABOARD, 2, "star", drained={"strays.tokyo": 7})),
    ("tokyo", grant("tokyo", OUTSIDE, 1, "tokyo")),
    ("tokyo", grant("tokyo", OUTSIDE, 2, None)),
)


def claim(by: str) -> ClaimEntry:
    """Return the entry by which a site claims the container, which has left the last site."""
    return ClaimEntry(
        log=OUTSIDE,
        term=2,
        left_site="tokyo",
        event_id="in",
        event_date_time=NOW,
        claimed_date_time=NOW,
        claimed_by=by,
    )
