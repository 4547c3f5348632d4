"""What is so now, before custody is moved by hand: who holds the log by the ledgers, and what the acting site has."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edge.orders.ground import Ground
from fairlead.custody_chain import Chain, UnknownLogError, chain
from fairlead.errors import FairleadError, UnavailableError
from fairlead.ledgers import Ledgers
from fairlead.wire.sweep import Extent
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a plan is made of.

    Args:
        chain: The log's chain of custody as ``told_by`` has it, the newest that was found.
        site: The site whose bridge is to act. Of a grant the holder; None when there is none, or it is not in the
            topology.
        known_there: The chain as the acting site's own ledgers tell it; None when they do not know the log.
        complete: False when entries of the ledgers at the acting site are damaged or gone.
        copy: Of a seizure: the acting site's copy of the log.
        holder_answers: Of a seizure: whether the holder's Kafka answers.
        by: Who orders it. at: When.
    """

    topology: Topology
    kind: Literal["grant", "seize"]
    log: str
    to_site: str
    chain: Chain
    told_by: str
    site: str | None
    known_there: Chain | None
    complete: bool
    copy: Extent | None
    holder_answers: bool
    by: str
    at: dt.datetime
    reason: str
    order_id: str


@dataclass(frozen=True, slots=True)
class Wish:
    """What an operator asks for."""

    log: str
    to_site: str
    by: str
    reason: str = ""


async def look_at_grant(topology: Topology, ground: Ground, wish: Wish, ask: Sequence[str]) -> Facts:
    """Find the holder, and what its own ledgers say.

    Args:
        ask: Sites to ask for the holder, in this order, until one knows the log.

    Raises:
        UnknownLogError: no site that answers knows the log.
        UnavailableError: no site answers, or the holder does not.
    """
    ledgers, found = await _first_that_knows(ground, wish.log, ask)
    told_by = ledgers.site
    known_there: Chain | None = found
    while (holder := found.holder) in topology.sites and holder is not None and holder != ledgers.site:
        ledgers = await ground.ledgers(holder, about=wish.log)
        known_there = chain(wish.log, ledgers.entries) if ledgers.entries else None
        if known_there is None or _term(known_there) <= _term(found):
            break  # it holds the log, or has not heard of it yet
        found, told_by = known_there, holder  # it has given the log away: terms only rise, so this comes to an end
    site = found.holder if found.holder in topology.sites else None
    complete = not (ledgers.damaged or ledgers.missing)
    return Facts(
        topology, "grant", wish.log, wish.to_site, found, told_by, site, known_there, complete, None, True, wish.by,
        dt.datetime.now(dt.UTC), wish.reason, uuid.uuid4().hex,
    )  # fmt: skip


async def look_at_seizure(topology: Topology, ground: Ground, wish: Wish) -> Facts:
    """Look at the ledgers and the copy at the site that is to seize (``wish.to_site``), and whether the holder answers.

    Raises:
        UnknownLogError: the ledgers at that site do not know the log.
        UnavailableError: the site does not answer.
    """
    site = wish.to_site
    ledgers = await ground.ledgers(site, about=wish.log)
    found = chain(wish.log, ledgers.entries, known=ledgers.logs, at=site)
    copy = await ground.copy(site, wish.log)
    holder = found.holder
    answers = holder in topology.sites and holder != site and await ground.answers(str(holder))
    complete = not (ledgers.damaged or ledgers.missing)
    return Facts(
        topology, "seize", wish.log, site, found, site, site, found, complete, copy, answers, wish.by,
        dt.datetime.now(dt.UTC), wish.reason, uuid.uuid4().hex,
    )  # fmt: skip


async def _first_that_knows(ground: Ground, log: str, ask: Sequence[str]) -> tuple[Ledgers, Chain]:
    unknown: UnknownLogError | None = None
    away: tuple[str, FairleadError] | None = None
    for site in ask:
        try:
            ledgers = await ground.ledgers(site, about=log)
        except FairleadError as error:
            away = away or (site, error)
            continue
        try:
            return ledgers, chain(log, ledgers.entries, known=ledgers.logs, at=site)
        except UnknownLogError as error:
            unknown = unknown or error
    if unknown is not None:
        raise unknown
    raise nobody_answers(ask, away)


def nobody_answers(asked: Sequence[str], first: tuple[str, FairleadError] | None) -> UnavailableError:
    """The error when no site could be asked."""
    why = f", {first[0]}: {first[1].what}" if first is not None else ""
    return UnavailableError(
        f"none of these sites could be asked about custody: {', '.join(asked)}{why}",
        hint=first[1].hint if first is not None and first[1].hint else "fairlead up, or fairlead status",
        sites=list(asked),
    )


def _term(found: Chain) -> int:
    return found.newest.term if found.newest is not None else 0
