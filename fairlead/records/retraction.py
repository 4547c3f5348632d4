"""What takes back a record of a customer's feed, in ``feeds.<customer>``."""

from __future__ import annotations

from fairlead.records.reading import Base


class Retraction(Base, frozen=True, kw_only=True):
    """The customer has a record that a booking, as it is now, does not entitle it to: it should be forgotten.

    Args:
        retracts: What is taken back, as its header ``origin`` names it: ``<log>@<offset>``. Header ``retracts`` says it
            too.
        feed_offset: Where it stands in this feed.
    """

    retracts: str
    feed_offset: int
    equipment_reference: str
