"""Records of custody: ledger entries in ``custody.<site>``, the marker that opens a term, and operators' orders.

Only the site itself appends to ``custody.<site>``. An operator's order is a record of ``fairlead.custody`` in the Kafka
of the site that must act; that site's bridge answers in its ledger. See docs/custody.md.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Annotated, Final, Literal

import msgspec

from fairlead.records.reading import Count, Dated, Time

Term = Annotated[int, msgspec.Meta(ge=1, le=32767)]
"""The number of a holder's term: the producer epoch of its batches."""

CustodyEvent = Literal["GTIN", "GTOT", "LOAD", "DISC", "HAND", "SEIZURE"]
"""The event that moved custody: a DCSA equipment event, a grant by hand, or the seizure of a lost holder's log."""

CUSTODY_ORDERS: Final = "fairlead.custody"
"""Topic of ``CustodyOrder`` at each site. It is not the log of any stream; the site's administrators write it."""


class Marker(Dated, frozen=True, kw_only=True):
    """The first record of a term, written by the granting holder at the end of its own log (sequence 0).

    Its value is this JSON; its header ``fairlead`` is ``marker``. ``nonce`` makes it unique, so that two markers never
    have the same CRC. ``to_site`` is null when the box leaves the system (GTOT).

    ``drained`` maps each strays log to an offset: this log already has its strays from before that offset. So a later
    holder neither repeats nor forgets any. Strays drained beyond that offset are in this log after ``drained_since``
    (null: after this marker). A site that seizes a log does not know how far the lost holder had drained, so it names
    an earlier marker.
    """

    log: str
    term: Term
    from_site: str | None
    to_site: str | None
    event: CustodyEvent
    event_id: str
    event_date_time: Time
    nonce: str
    drained: dict[str, Count] = msgspec.field(default_factory=dict)
    drained_since: Count | None = None
    reason: str = ""

    @classmethod
    def opening(cls, log: str, site: str, at: dt.datetime, *, term: int = 1, from_site: str | None = None) -> Marker:
        """Return the marker by which a site opens a log that no event moves.

        Args:
            from_site: The site that held the log in the term before; None for the first term.
        """
        return cls(
            log=log,
            term=term,
            from_site=from_site,
            to_site=site,
            event="HAND",
            event_id=f"open-{log}-{term}",
            event_date_time=at,
            nonce=uuid.uuid4().hex,
        )


class CustodyEntry(Dated, frozen=True, kw_only=True, tag_field="entryType", tag="grant"):
    """A change of the right to append to ``log``: an opening, a grant, or a seizure.

    ``marker_offset`` is *m*: the old holder stopped before it, the new one continues at ``m + 1``. ``marker_batch`` is
    the marker's batch as stored (base64 in JSON), so that a receiver without history can position its log; ``drained``
    and ``drained_since`` are the marker's.

    Args:
        from_site: The holder before; None at an opening, and where a box comes in again at the site that it left. In a
            seizure, the holder that was lost.
        granted_by: The site that wrote the marker and this entry.
        ordered_by: The operator who ordered it; empty if nobody did.
        reason: The operator's reason; empty if nobody ordered it.
    """

    log: str
    term: Term
    marker_offset: Count
    from_site: str | None
    to_site: str | None
    event: CustodyEvent
    event_id: str
    event_date_time: Time
    granted_date_time: Time
    granted_by: str
    marker_batch: bytes
    drained: dict[str, Count] = msgspec.field(default_factory=dict)
    drained_since: Count | None = None
    ordered_by: str = ""
    reason: str = ""


class ReturnEntry(Dated, frozen=True, kw_only=True, tag_field="entryType", tag="return"):
    """This site had records of ``log`` beyond the offset where another site seized it; it keeps them as strays.

    From then on its copy may be deleted and rebuilt from the seizing site's copy.

    Args:
        term: The term of the seizure.
        marker_offset: Offset of the seizure's marker: this site's records from here on are not part of the log.
        end_offset: The end of this site's copy when the strays were kept.
        kept: How many readings were kept; markers and fillers are not.
        strays_log: The log that has them, before ``strays_end``.
        returned_by: The site that writes this.
    """

    log: str
    term: Term
    marker_offset: Count
    end_offset: Count
    kept: Count
    strays_log: str
    strays_end: Count
    returned_date_time: Time
    returned_by: str


class RefusalEntry(Dated, frozen=True, kw_only=True, tag_field="entryType", tag="refusal"):
    """An operator's order that this site did not carry out, and the reason."""

    log: str
    order_id: str
    code: str  # the error's class
    reason: str
    refused_date_time: Time
    refused_by: str


class ClaimEntry(Dated, frozen=True, kw_only=True, tag_field="entryType", tag="claim"):
    """Asks the site that a box left for the box's log: the box had left the system and came in again here (GTIN).

    Args:
        term: The term in which the box left; in any other term the claim is void.
        left_site: The site that it left (GTOT). Only that site opens the next term: if two did, the log would split.
        event_id: The gate-in's id; the grant that answers the claim has the same.
        claimed_by: The site that writes this.
    """

    log: str
    term: Term
    left_site: str
    event_id: str
    event_date_time: Time
    claimed_date_time: Time
    claimed_by: str


LedgerEntry = CustodyEntry | ReturnEntry | RefusalEntry | ClaimEntry
"""Any entry of a ledger."""

ledger_entries: Final[msgspec.json.Decoder[LedgerEntry]] = msgspec.json.Decoder(LedgerEntry)
"""Decodes any ledger entry; raises ``msgspec.ValidationError`` or ``msgspec.DecodeError``."""


class CustodyOrder(Dated, frozen=True, kw_only=True):
    """An operator's order to the bridge of one site: grant a log that it holds, or seize one that it does not hold.

    ``order_id`` becomes the ``event_id`` of the entry that carries the order out, or the ``order_id`` of its refusal.

    Args:
        at_site: The site that must act: the holder for a grant, the seizing site for a seizure.
        to_site: The next holder; for a seizure the seizing site itself.
        term: The newest term of the log when the order was given; the site refuses it in any other term. None: any
            term.
    """

    order_id: str
    kind: Literal["grant", "seize"]
    log: str
    at_site: str
    to_site: str
    ordered_date_time: Time
    ordered_by: str
    reason: str = ""
    term: Term | None = None
