"""What asks for custody to move, and what is to be done about it at one site. Pure.

An equipment event from MQTT and an order by hand come down to the same ``Transfer``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container
from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge.errors import NotHolderError
from edge.holdings import Custody, Holdings
from edge.messages import EventMessage
from fairlead.records.custody import ClaimEntry, CustodyEvent, CustodyOrder

FUTURE: Final = dt.timedelta(hours=24)
"""How far ahead of the site's clock an event's time may be before it is not believed."""
_BY_HAND: Final = ("HAND", "SEIZURE")


class Move(Enum):
    """What a transfer asks of custody at this site."""

    NOTHING = "nothing"
    OPEN = "open"
    REOPEN = "reopen"
    CLAIM = "claim"
    GRANT = "grant"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Transfer:
    """Custody of one log is to go to ``to_site`` (None: the box leaves the system). ``event_id`` names it for ever."""

    log: str
    event: CustodyEvent
    event_id: str
    at: dt.datetime
    to_site: str | None
    reason: str = ""
    ordered_by: str = ""


def of_event(message: EventMessage) -> Transfer:
    """What an equipment event asks for. Raises ValueError for a transport event, which moves no custody."""
    code = message.event.payload.equipment_event_type_code
    if message.log is None or code is None:
        raise ValueError("a transport event moves no custody")
    event = message.event
    return Transfer(message.log, code, event.metadata.event_id, event.payload.event_date_time, message.to_site)


def of_order(order: CustodyOrder) -> Transfer:
    """What an order by hand asks for."""
    return Transfer(
        order.log,
        "SEIZURE" if order.kind == "seize" else "HAND",
        order.order_id,
        order.ordered_date_time,
        order.to_site,
        order.reason,
        order.ordered_by,
    )


def of_claim(claim: ClaimEntry) -> Transfer:
    """What the site where a box has come in asks of the one that it left."""
    return Transfer(claim.log, "GTIN", claim.event_id, claim.event_date_time, claim.claimed_by)


def plan(transfer: Transfer, holdings: Holdings, now: dt.datetime, sites: Container[str]) -> Move:
    """What a transfer asks for, given what is known now. WAIT: custody may be on its way to this site.

    A box that left elsewhere comes in by a CLAIM to the site that it left: who opens the next term is one site only. A
    site that is not among ``sites`` any more cannot answer, and the log is opened as if the box had left here.

    A transfer that happened before the newest grant has been overtaken: others have moved the log on since. (A grant by
    hand tells nothing about that: its time is a person's, that of events is a device's. Nor does one from the future:
    some clock was wrong, and what the box does now must not wait for that day.)

    Raises:
        NotHolderError: the transfer has been overtaken, and this site is not the holder or must not act on it any more.
    """
    grant = holdings.view.grant(transfer.log)
    if grant is not None and grant.event_id == transfer.event_id:
        return Move.NOTHING  # done before; the message came again
    state = holdings.state(transfer.log)
    if transfer.event == "GTIN" and state in (Custody.HELD, Custody.INCOMING):
        return Move.NOTHING
    dated = grant is not None and grant.event not in _BY_HAND and grant.at <= now + FUTURE
    if grant is not None and dated and grant.at > transfer.at:
        raise NotHolderError(transfer.log, holdings.site, grant.to_site, doing=f"carry out an older {transfer.event}")
    if transfer.event == "GTIN":
        if grant is None:
            return Move.OPEN
        if grant.to_site is not None:
            return Move.WAIT
        return Move.REOPEN if grant.from_site == holdings.site or grant.from_site not in sites else Move.CLAIM
    if state is not Custody.HELD:
        return Move.WAIT
    return Move.NOTHING if transfer.to_site == holdings.site else Move.GRANT
