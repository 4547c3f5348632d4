"""Build the plan of a grant or a seizure from the ledgers, or refuse it with a reason.

``look_at_grant`` and ``look_at_seizure`` ask the sites; ``build`` is pure. It refuses whatever the acting site's bridge
would refuse for a reason that the ledger already shows, before anything is written. The bridge checks everything again
when it carries the order out.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from edge.custody.operator.execute import AwaitAnswer, CustodyRun, LedgerAccess, WriteCustodyOrder
from fairlead.custody.history import Chain, TermInterval, UnknownLogError, chain
from fairlead.custody.ledger import Ledgers
from fairlead.custody.view import SEIZING_TERMS
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError, UnknownNameError
from fairlead.kafka.client.reader import OffsetRange
from fairlead.kafka.convention import LAST_TERM
from fairlead.names import is_container_number, parse_log
from fairlead.plan import Plan
from fairlead.records.custody import CustodyOrder
from topologies.model import InsertPoint, SiteKind, Topology


@dataclass(frozen=True, slots=True)
class CustodyFacts:
    """The facts that ``build`` makes a plan from.

    Args:
        chain: The log's newest chain of custody that was found, in the ledgers of the site ``told_by``.
        site: The site whose bridge acts. For a grant, the holder; None when there is no holder, or when the holder is
            not in the topology.
        known_there: The chain of custody in the acting site's own ledgers; None when they do not know the log.
        complete: False when entries of the ledgers at the acting site are damaged or missing.
        copy: For a seizure: the offsets of the acting site's copy of the log.
        holder_answers: For a seizure: whether the holder's Kafka answers.
        by: The operator who gives the order.
        at: The time of the order.
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
    copy: OffsetRange | None
    holder_answers: bool
    by: str
    at: dt.datetime
    reason: str
    order_id: str


@dataclass(frozen=True, slots=True)
class CustodyRequest:
    """A grant or a seizure that an operator asks for."""

    log: str
    to_site: str
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustodyPlan(Plan[CustodyRun]):
    """The plan of one order: write it, then wait for its answer.

    Args:
        site: The site whose bridge acts.
        holder: The log's holder before the order.
        term: The log's newest term before the order.
    """

    site: str
    holder: str | None
    term: int
    order: CustodyOrder

    def heading(self) -> str:
        return f"{self.order.log} is held by {self.holder} in term {self.term}"


def named_log(topology: Topology, name: str) -> str:
    """Return the log that an operator names, by its own name or by a container's number.

    Raises:
        ConfigurationError: no stream of the topology has the boxes of the number's owner.
    """
    if not is_container_number(name):
        return name
    stream = topology.container_stream(name)
    if stream is None:
        owners = sorted(owner for each in topology.streams.values() for owner in each.owners)
        raise ConfigurationError(
            f"no stream of {topology.name} has boxes of owner {name[:4]}",
            hint=f"owners with a stream: {', '.join(owners) or '(none)'}; or give the log's name: STREAM.{name}",
            container=name,
            owners=owners,
        )
    return f"{stream}.{name}"


def check_names(topology: Topology, kind: str, log: str, to_site: str) -> None:
    """Check the log's and the receiver's names against the topology, without asking any site.

    Raises:
        UnknownNameError: the topology has no such site, or no such stream.
        RefusedError: custody of this log never moves, or never to a site of this kind.
    """
    if to_site not in topology.sites:
        raise UnknownNameError("site", to_site, sorted(_receivers(topology)))
    doing = f"{kind} {log}"
    if topology.sites[to_site].kind is SiteKind.CUSTOMER:
        raise RefusedError(
            f"cannot {doing}: {to_site} is a customer's site, which cannot hold a log",
            hint=f"sites that can hold a log: {', '.join(sorted(_receivers(topology)))}",
            log=log,
            site=to_site,
        )
    if kind == "seize" and topology.sites[to_site].kind is SiteKind.SHIP:
        raise RefusedError(
            f"cannot {doing}: {to_site} is a ship, and other sites reject a ship's seizure of another site's log",
            hint=f"seize it ashore ({', '.join(sorted(sites_ashore(topology)))}), "
            f"then: fairlead custody grant {log} --to {to_site}",
            log=log,
            site=to_site,
        )
    parsed = parse_log(log)
    stream = topology.streams.get(parsed.stream) if parsed is not None else None
    if parsed is not None and stream is None:
        raise UnknownNameError("stream", parsed.stream, topology.moving_streams)
    if stream is not None and stream.insert_point is not InsertPoint.MOVES:
        writer = topology.fixed_holder(log)
        raise RefusedError(
            f"cannot {doing}: {f'only {writer} may ever write to it' if writer else 'its custody never moves'}",
            hint=f"streams whose custody moves: {', '.join(topology.moving_streams) or '(none)'}; "
            "for other logs: fairlead link promote",
            log=log,
            site=to_site,
        )


async def look_at_grant(
    topology: Topology, access: LedgerAccess, request: CustodyRequest, ask: Sequence[str]
) -> CustodyFacts:
    """Find the log's holder, and read the holder's own ledgers.

    Args:
        ask: Sites to ask for the holder, in this order, until one knows the log.

    Raises:
        UnknownLogError: no site that answers knows the log.
        UnavailableError: no site answers, or the holder does not.
    """
    ledgers, found = await _first_that_knows(access, request.log, ask)
    told_by = ledgers.site
    known_there: Chain | None = found
    while (holder := found.holder) in topology.sites and holder is not None and holder != ledgers.site:
        ledgers = await access.ledgers(holder, about=request.log)
        known_there = chain(request.log, ledgers.entries) if ledgers.entries else None
        if known_there is None or _term(known_there) <= _term(found):
            break  # it holds the log, or its ledgers do not have the grant yet
        found, told_by = known_there, holder  # it has granted the log on; terms only rise, so the loop ends
    site = found.holder if found.holder in topology.sites else None
    complete = not (ledgers.damaged or ledgers.missing)
    return CustodyFacts(
        topology, "grant", request.log, request.to_site, found, told_by, site, known_there, complete, None, True,
        request.by, dt.datetime.now(dt.UTC), request.reason, uuid.uuid4().hex,
    )  # fmt: skip


async def look_at_seizure(topology: Topology, access: LedgerAccess, request: CustodyRequest) -> CustodyFacts:
    """Ask the site that is to seize (``request.to_site``) for its ledgers and copy, and the holder whether it answers.

    Raises:
        UnknownLogError: the ledgers at that site do not know the log.
        UnavailableError: the site does not answer.
    """
    site = request.to_site
    ledgers = await access.ledgers(site, about=request.log)
    found = chain(request.log, ledgers.entries, known=ledgers.logs, at=site)
    copy = await access.copy(site, request.log)
    holder = found.holder
    answers = holder in topology.sites and holder != site and await access.answers(str(holder))
    complete = not (ledgers.damaged or ledgers.missing)
    return CustodyFacts(
        topology, "seize", request.log, site, found, site, site, found, complete, copy, answers, request.by,
        dt.datetime.now(dt.UTC), request.reason, uuid.uuid4().hex,
    )  # fmt: skip


async def _first_that_knows(access: LedgerAccess, log: str, ask: Sequence[str]) -> tuple[Ledgers, Chain]:
    unknown: UnknownLogError | None = None
    away: tuple[str, FairleadError] | None = None
    for site in ask:
        try:
            ledgers = await access.ledgers(site, about=log)
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
    """Return the error for the case that no site could be asked."""
    why = f" ({first[0]}: {first[1].what})" if first is not None else ""
    return UnavailableError(
        f"none of these sites answered: {', '.join(asked)}{why}",
        hint=first[1].hint if first is not None and first[1].hint else "fairlead up, or fairlead status",
        sites=list(asked),
    )


def _term(found: Chain) -> int:
    return found.newest.term if found.newest is not None else 0


def build(facts: CustodyFacts) -> CustodyPlan:
    """Return the plan of a grant or a seizure.

    Raises:
        RefusedError: the ledger shows why the order must not be carried out, or would not be.
        UnknownNameError: the receiver is not in the topology.
    """
    check_names(facts.topology, facts.kind, facts.log, facts.to_site)
    newest = facts.chain.newest
    if newest is None:
        _refuse(facts, "no ledger names its holder", "a gate-in (GTIN) at a port opens a log")
    for split in facts.chain.splits:
        if split.term == newest.term:
            _refuse(
                facts,
                f"its newest term {split.term} was granted in {len(split.grants)} ways",
                f"fairlead custody show {facts.log} lists them; compare the copies with 'fairlead audit'",
            )
    notes = _grant_notes(facts, newest) if facts.kind == "grant" else _seizure_notes(facts, newest)
    if facts.site is None:
        raise AssertionError("a plan has a site that acts")
    if not facts.complete:
        notes.append(f"ledgers at {facts.site} have damaged or missing entries: fairlead custody show {facts.log}")
    if newest.event_date_time > facts.at:
        notes.append(
            f"its newest term {newest.term} is dated in the future ({newest.event_date_time:%Y-%m-%d %H:%M:%S} UTC): "
            f"check the clock of the device that published it at {newest.granted_by}"
        )
    order = CustodyOrder(
        order_id=facts.order_id,
        kind=facts.kind,
        log=facts.log,
        at_site=facts.site,
        to_site=facts.to_site,
        ordered_date_time=facts.at,
        ordered_by=facts.by,
        reason=facts.reason,
        term=newest.term,
    )
    steps = (WriteCustodyOrder(facts.site, order), AwaitAnswer(facts.site, order))
    return CustodyPlan(
        site=facts.site, holder=newest.holder, term=newest.term, order=order, steps=steps, notes=tuple(notes)
    )


def _grant_notes(facts: CustodyFacts, newest: TermInterval) -> list[str]:
    """Return a grant's notes. Raises RefusedError if the log cannot be granted."""
    holder = newest.holder
    if holder is None:
        _refuse(
            facts,
            f"no site holds it: the box left the system ({newest.event} at {newest.granted_by}, term {newest.term})",
            "a gate-in (GTIN) at a port opens it again",
        )
    if holder == facts.to_site:
        _refuse(
            facts,
            f"{holder} holds it already, since term {newest.term}",
            f"fairlead custody show {facts.log}; to give it to another site: --to SITE",
        )
    if facts.site is None:
        _refuse(
            facts,
            f"{holder} holds it, and the topology has no site of that name",
            f"if it was renamed, restore its name; if it is gone: {seize_command(facts.log, facts.to_site)}",
        )
    there = facts.known_there.newest if facts.known_there is not None else None
    if there is None or there.term < newest.term:
        known = f"term {there.term}" if there is not None else "no term"
        _refuse(
            facts,
            f"according to {facts.told_by}, {holder} holds it in term {newest.term}, but {holder} itself knows {known}",
            f"wait until {holder} has the entry of {newest.granted_by}'s ledger: fairlead status",
        )
    return []


def _seizure_notes(facts: CustodyFacts, newest: TermInterval) -> list[str]:
    """Return a seizure's notes. Raises RefusedError if the log cannot be seized."""
    site, copy = facts.to_site, facts.copy
    if not facts.reason.strip():
        _refuse(facts, "a seizure needs a reason", "--reason 'MV Duck Star sank off Sydney', for example")
    if newest.holder == site:
        _refuse(
            facts,
            f"{site} holds it already, since term {newest.term}",
            f"to give it to another site: fairlead custody grant {facts.log} --to SITE",
        )
    if copy is None or copy.start == copy.end:
        _refuse(
            facts,
            f"{site} has no copy of it",
            "seize it at a site that has one: fairlead audit, or fairlead status",
        )
    if not any(copy.start <= each.marker_offset < copy.end for each in facts.chain.standing):
        _refuse(
            facts,
            f"the copy at {site} has offsets {copy.start} to {copy.end - 1} and no marker of any term among them",
            "seize it at a site whose copy has one",
        )
    if newest.term + SEIZING_TERMS > LAST_TERM:
        _refuse(
            facts,
            f"its term {newest.term} is too close to the last possible one ({LAST_TERM})",
            "nobody can seize the log any more; its holder can still grant it",
        )
    notes = [
        f"{site} continues at offset {copy.end}, where its copy ends; records that another site has from there on are "
        "cut off, and its readings among them become strays when that site returns"
    ]
    if copy.end <= newest.marker_offset:
        notes.append(f"the copy at {site} does not reach term {newest.term}, which began at {newest.marker_offset}")
    if newest.holder is None:
        notes.append(
            f"no site holds it: the box left the system in term {newest.term}; a gate-in (GTIN) opens it again"
        )
    if facts.holder_answers:
        notes.append(
            f"{newest.holder} answers; it can grant the log itself, which cuts nothing off: "
            f"fairlead custody grant {facts.log} --to {site}"
        )
    return notes


def seize_command(log: str, site: str) -> str:
    """Return the command line that seizes a log at a site."""
    return f"fairlead custody seize {log} --site {site} --reason TEXT"


def sites_ashore(topology: Topology) -> list[str]:
    """Return the sites that may seize another site's logs."""
    return [name for name in _receivers(topology) if topology.sites[name].kind is not SiteKind.SHIP]


def _receivers(topology: Topology) -> list[str]:
    return [name for name, site in topology.sites.items() if site.kind is not SiteKind.CUSTOMER]


def _refuse(facts: CustodyFacts, why: str, hint: str) -> NoReturn:
    raise RefusedError(
        f"cannot {facts.kind} {facts.log}: {why}", hint=hint, log=facts.log, site=facts.site, holder=facts.chain.holder
    )
