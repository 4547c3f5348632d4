"""The ledger of custody: entries of ``custody.<site>``, and the marker that opens a term in a container's log.

Only the site itself appends to ``custody.<site>``. See the design, sections 5 and 7.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal

import msgspec

from fairlead.records.reading import Base

CustodyEvent = Literal["GTIN", "GTOT", "LOAD", "DISC", "HAND"]


class Marker(Base, frozen=True, kw_only=True):
    """The first record of a term, written by the granting holder at the end of its own log (sequence 0).

    Its value is this JSON; its header ``fairlead`` is ``marker``. ``nonce`` makes it unique, so that two markers never
    have the same CRC. ``to_site`` is null when the box leaves the system (GTOT). ``drained`` tells per strays log the
    offset before which this log's strays are in it, so that a later holder neither repeats nor forgets any.
    """

    log: str
    term: int
    from_site: str | None
    to_site: str | None
    event: CustodyEvent
    event_id: str
    event_date_time: dt.datetime
    nonce: str
    drained: dict[str, int] = msgspec.field(default_factory=dict)


class CustodyEntry(Base, frozen=True, kw_only=True):
    """One entry of the ledger: who gave the right to append in ``log`` to whom, and at which offset.

    ``marker_offset`` is *m*: the old holder stopped before it, the new one continues at ``m + 1``. ``marker_batch`` is
    the marker's batch as stored (base64 in JSON), so that a receiver without history can position its log.
    """

    log: str
    term: int
    marker_offset: int
    from_site: str | None
    to_site: str | None
    event: CustodyEvent
    event_id: str
    event_date_time: dt.datetime
    granted_date_time: dt.datetime
    granted_by: str
    marker_batch: bytes
