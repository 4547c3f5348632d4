"""The ledger of custody: entries of ``custody.<site>``, the marker that opens a term, and orders that move it by hand.

Only the site itself appends to ``custody.<site>``. What is ordered by hand is a record of ``fairlead.custody`` in the
Kafka of the site that is to act; its bridge answers in its ledger. See docs/custody.md.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from fairlead.records.reading import Count, Dated, Time

Term = Annotated[int, msgspec.Meta(ge=1, le=32767)]
"""A holder's number: it is the producer epoch of its batches."""

CustodyEvent = Literal["GTIN", "GTOT", "LOAD", "DISC", "HAND", "SEIZURE"]
"""What moved custody: DCSA's equipment events, a grant by hand, or the seizure of a lost holder's log."""

CUSTODY_ORDERS: Final = "fairlead.custody"
"""Topic of ``CustodyOrder`` at each site; no log of any stream, written by whoever administers the site."""


class Marker(Dated, frozen=True, kw_only=True):
    """The first record of a term, written by the granting holder at the end of its own log (sequence 0).

    Its value is this JSON; its header ``fairlead`` is ``marker``. ``nonce`` makes it unique, so that two markers never
    have the same CRC. ``to_site`` is null when the box leaves the system (GTOT). ``drained`` tells per strays log the
    offset before which this log's strays are in it, so that a later holder neither repeats nor forgets any. What was
    drained beyond that is in this log after ``drained_since`` (after this marker, where it is null: a site that seizes
    a log does not know how far the lost holder had come, so it names an earlier marker).
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


class CustodyEntry(Dated, frozen=True, kw_only=True, tag_field="entryType", tag="grant"):
    """Who gave the right to append in ``log`` to whom, and at which offset: an opening, a grant, or a seizure.

    ``marker_offset`` is *m*: the old holder stopped before it, the new one continues at ``m + 1``. ``marker_batch`` is
    the marker's batch as stored (base64 in JSON), so that a receiver without history can position its log; ``drained``
    and ``drained_since`` are the marker's.

    Args:
        from_site: The holder before; None at an opening, and where a box comes in again at the site that it left. In a
            seizure the holder that was lost.
        granted_by: The site that wrote the marker and this entry.
        ordered_by: Who ordered it, where it was done by hand.
        reason: Why, where it was done by hand.
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
    """This site had records of ``log`` beyond the offset where another site seized it; they are kept as strays.

    From then on its copy may be deleted and rebuilt from the seizing site's.

    Args:
        term: The term of the seizure.
        marker_offset: Where the seizure's marker is: this site's records from here on are not part of the log.
        end_offset: The end of this site's copy when they were kept.
        kept: How many readings were kept; markers and fillers are not.
        strays_log: Where they are kept; before ``strays_end``.
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
    """An order by hand that this site did not carry out, and why."""

    log: str
    order_id: str
    code: str  # the error's class
    reason: str
    refused_date_time: Time
    refused_by: str


class ClaimEntry(Dated, frozen=True, kw_only=True, tag_field="entryType", tag="claim"):
    """A box that had left the system came in here (GTIN), and not where it left: asks that site for its log.

    Args:
        term: The term in which the box left; in any other the claim is void.
        left_site: Where it left (GTOT). Only that site opens the next term: two that did would split the log.
        event_id: The gate-in's; the grant that answers has it.
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
"""Everything that a ledger holds."""

ledger_entries: Final[msgspec.json.Decoder[LedgerEntry]] = msgspec.json.Decoder(LedgerEntry)
"""Decodes any of them; raises ``msgspec.ValidationError`` or ``msgspec.DecodeError``."""


class CustodyOrder(Dated, frozen=True, kw_only=True):
    """What an operator asks of the bridge of one site: to grant a log that it holds, or to seize one that it does not.

    ``order_id`` becomes the ``event_id`` of the entry that carries it out, or the ``order_id`` of its refusal.

    Args:
        at_site: The site that is to act: of a grant the holder, of a seizure the one that seizes.
        to_site: Who is to hold the log: of a seizure the site itself.
        term: The newest term of the log when the order was given; in any other term it is refused. None: in any term.
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
