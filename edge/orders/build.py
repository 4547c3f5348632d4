"""From the facts to a plan, or a refusal with its reason. Pure.

What the acting site's bridge would refuse for a reason that the ledger shows already is refused here, before anything
is written. The bridge decides for itself again when it carries the order out.
"""

from __future__ import annotations

from typing import Final, NoReturn

from edge.orders.look import Facts
from edge.orders.steps import AwaitAnswer, Plan, WriteOrder
from fairlead.custody import SEIZING_TERMS
from fairlead.custody_chain import Interval
from fairlead.errors import ConfigurationError, RefusedError, UnknownNameError
from fairlead.names import is_container_number, parse_log
from fairlead.records.custody import CustodyOrder
from topologies.model import InsertPoint, SiteKind, Topology

_LAST_TERM: Final = 32767  # the producer epoch of a batch is 16 bits


def named_log(topology: Topology, name: str) -> str:
    """The log that a person means: its own name, or a container's number.

    Raises:
        ConfigurationError: the number is of an owner whose boxes no stream of the topology has.
    """
    if not is_container_number(name):
        return name
    stream = topology.container_stream(name)
    if stream is None:
        owners = sorted(owner for each in topology.streams.values() for owner in each.owners)
        raise ConfigurationError(
            f"no stream of {topology.name} has boxes of owner {name[:4]}",
            hint=f"owners with a stream: {', '.join(owners) or '(none)'}; or name the log itself: STREAM.{name}",
            container=name,
            owners=owners,
        )
    return f"{stream}.{name}"


def check_names(topology: Topology, kind: str, log: str, to_site: str) -> None:
    """Refuse what needs no look at any site.

    Raises:
        UnknownNameError: the topology has no such site, or no such stream.
        RefusedError: custody of this log never moves, or never to such a site.
    """
    if to_site not in topology.sites:
        raise UnknownNameError("site", to_site, sorted(_receivers(topology)))
    doing = f"{kind} {log}"
    if topology.sites[to_site].kind is SiteKind.CUSTOMER:
        raise RefusedError(
            f"cannot {doing}: {to_site} is a customer's site, where no record enters a log",
            hint=f"sites that can hold a log: {', '.join(sorted(_receivers(topology)))}",
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
            f"cannot {doing}: {f'it is written at {writer} and nowhere else' if writer else 'its custody never moves'}",
            hint=f"it moves in: {', '.join(topology.moving_streams) or '(no stream)'}; "
            "for other logs: fairlead link promote",
            log=log,
            site=to_site,
        )


def build(facts: Facts) -> Plan:
    """The plan of a grant or a seizure.

    Raises:
        RefusedError: the ledger shows that it must not be done, or would not be; with the reason.
        UnknownNameError: the receiver is not in the topology.
    """
    check_names(facts.topology, facts.kind, facts.log, facts.to_site)
    newest = facts.chain.newest
    if newest is None:
        _refuse(facts, "no ledger tells who holds it", "a gate-in at a port opens a log")
    for split in facts.chain.splits:
        if split.term == newest.term:
            _refuse(
                facts,
                f"its newest term {split.term} was granted in {len(split.grants)} ways",
                f"fairlead custody show {facts.log} tells which; compare the copies with 'fairlead audit'",
            )
    notes = _grant_notes(facts, newest) if facts.kind == "grant" else _seizure_notes(facts, newest)
    if facts.site is None:
        raise AssertionError("a plan has a site that acts")
    if not facts.complete:
        notes.append(f"ledgers at {facts.site} have damaged or missing entries: fairlead custody show {facts.log}")
    if newest.event_date_time > facts.at:
        notes.append(
            f"its newest term {newest.term} is dated in the future ({newest.event_date_time:%Y-%m-%d %H:%M:%S} UTC): "
            f"is the clock right of whoever published it at {newest.granted_by}?"
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
    steps = (WriteOrder(facts.site, order), AwaitAnswer(facts.site, order))
    return Plan(facts.site, newest.holder, newest.term, order, steps, tuple(notes))


def _grant_notes(facts: Facts, newest: Interval) -> list[str]:
    """Refuses what cannot be granted."""
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
            f"if it was renamed, give it its name back; if it is gone: {seize_command(facts.log, facts.to_site)}",
        )
    there = facts.known_there.newest if facts.known_there is not None else None
    if there is None or there.term < newest.term:
        known = f"term {there.term}" if there is not None else "nothing of it"
        _refuse(
            facts,
            f"{facts.told_by} knows that {holder} holds it in term {newest.term}, {holder} itself knows {known}",
            f"wait until the ledger of {newest.granted_by} has come to {holder}: fairlead status",
        )
    return []


def _seizure_notes(facts: Facts, newest: Interval) -> list[str]:
    """Refuses what cannot be seized."""
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
            f"{site} has no copy of it to go on from",
            "seize it at a site that has one: fairlead audit, or fairlead status",
        )
    if not any(copy.start <= each.marker_offset < copy.end for each in facts.chain.standing):
        _refuse(
            facts,
            f"the copy at {site} has offsets {copy.start} to {copy.end - 1} and no marker of any term among them",
            "seize it at a site whose copy has one",
        )
    if newest.term + SEIZING_TERMS > _LAST_TERM:
        _refuse(
            facts,
            f"its term {newest.term} is too near the last one ({_LAST_TERM})",
            "the log cannot change hands by seizure any more; its holder can still grant it",
        )
    notes = [
        f"{site} goes on at offset {copy.end}, where its copy ends; what another site has of the log beyond that is no "
        "part of it, and comes back as strays when that site returns"
    ]
    if copy.end <= newest.marker_offset:
        notes.append(f"the copy at {site} does not reach term {newest.term}, which began at {newest.marker_offset}")
    if newest.holder is None:
        notes.append(
            f"no site holds it: the box left the system in term {newest.term}; a gate-in (GTIN) opens it again"
        )
    if facts.holder_answers:
        notes.append(
            f"{newest.holder} answers: nothing is cut off when it grants the log itself: "
            f"fairlead custody grant {facts.log} --to {site}"
        )
    return notes


def seize_command(log: str, site: str) -> str:
    """The command that seizes a log at a site."""
    return f"fairlead custody seize {log} --at {site} --reason TEXT"


def _receivers(topology: Topology) -> list[str]:
    return [name for name, site in topology.sites.items() if site.kind is not SiteKind.CUSTOMER]


def _refuse(facts: Facts, why: str, hint: str) -> NoReturn:
    raise RefusedError(
        f"cannot {facts.kind} {facts.log}: {why}", hint=hint, log=facts.log, site=facts.site, holder=facts.chain.holder
    )
