"""What ``fairlead custody`` answers to a program: JSON-ready bodies of chains, lists and strays. Pure.

Fields are stable: they are described in docs/cli.md. Times are ISO 8601 in UTC; what is not known, or not, is null.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from edge.orders.build import seize_command
from edge.orders.steps import Plan
from edge.waiting import WaitingLog
from fairlead.custody_chain import Chain, Interval, chains
from fairlead.ledgers import Ledgers
from fairlead.records.custody import CustodyEntry, CustodyOrder, LedgerEntry
from topologies.model import SiteKind, Topology


def chain_body(chain: Chain, ledgers: Ledgers) -> dict[str, Any]:
    """One log's chain."""
    return {
        "log": chain.log,
        "at": ledgers.site,
        "holder": chain.holder,
        "term": chain.newest.term if chain.newest is not None else None,
        "intervals": [interval_body(each) for each in chain.intervals],
        "missing_terms": [{"first": first, "last": last} for first, last in chain.missing],
        "splits": _splits(chain),
        "returns": [record_body(each) for each in chain.returns],
        "refusals": [record_body(each) for each in chain.refusals],
        "claims": [record_body(each) for each in chain.claims],
        "ledgers": ledgers_body(ledgers),
    }


def interval_body(each: Interval) -> dict[str, Any]:
    """One term."""
    return {
        "term": each.term,
        "holder": each.holder,
        "from_site": each.from_site,
        "marker_offset": each.marker_offset,
        "from_offset": each.from_offset,
        "to_offset": each.to_offset,
        "event": each.event,
        "event_id": each.event_id,
        "event_date_time": _time(each.event_date_time),
        "to_date_time": _time(each.to_date_time),
        "granted_by": each.granted_by,
        "granted_date_time": _time(each.granted_date_time),
        "ordered_by": each.ordered_by,
        "reason": each.reason,
        "lost": each.lost,
        "cut_by": each.cut_by,
    }


def record_body(record: LedgerEntry | CustodyOrder) -> dict[str, Any]:
    """An entry of a ledger or an order with all its fields, but for a marker's bytes."""
    return {
        name: _time(value) if isinstance(value, dt.datetime) else value
        for name, value in msgspec.structs.asdict(record).items()
        if name != "marker_batch"
    }


def plan_body(plan: Plan, entry: CustodyEntry | None, *, applied: bool) -> dict[str, Any]:
    """What a grant or seizure would do, and the entry that carried it out."""
    return {
        "kind": plan.order.kind,
        "log": plan.order.log,
        "site": plan.site,
        "holder": plan.holder,
        "term": plan.term,
        "to": plan.order.to_site,
        "order": record_body(plan.order),
        "steps": [{"step": type(step).__name__, "site": step.site} for step in plan.steps],
        "notes": list(plan.notes),
        "applied": applied,
        "entry": record_body(entry) if entry is not None else None,
    }


def list_body(topology: Topology, ledgers: Ledgers, held_by: str | None) -> dict[str, Any]:
    """Every log with its holder, or those of one holder; and what is wrong with any of them."""
    logs: list[dict[str, Any]] = []
    stranded: list[dict[str, Any]] = []
    splits: list[dict[str, Any]] = []
    for chain in chains(ledgers.entries):
        newest = chain.newest
        if newest is None or (held_by is not None and newest.holder != held_by):
            continue
        splits += [{"log": chain.log, **each} for each in _splits(chain)]
        logs.append(
            {
                "log": chain.log,
                "holder": newest.holder,
                "term": newest.term,
                "from_offset": newest.from_offset,
                "event": newest.event,
                "event_date_time": _time(newest.event_date_time),
                "from_site": newest.from_site,
            }
        )
        if newest.holder is not None and newest.holder not in topology.sites:
            site = _last_site(topology, chain) or ledgers.site
            command = seize_command(chain.log, site)
            stranded.append({"log": chain.log, "holder": newest.holder, "term": newest.term, "command": command})
    return {
        "at": ledgers.site,
        "held_by": held_by,
        "logs": logs,
        "stranded": stranded,
        "splits": splits,
        "ledgers": ledgers_body(ledgers),
    }


def holders_of(ledgers: Ledgers) -> set[str]:
    """Every site that a ledger names as a receiver."""
    return {each.holder for chain in chains(ledgers.entries) for each in chain.intervals if each.holder is not None}


def strays_body(waiting: Iterable[WaitingLog], ledgers: Ledgers, now: dt.datetime) -> dict[str, Any]:
    """What waits for each log."""
    logs = [
        {
            "log": each.log,
            "holder": each.holder,
            "term": each.term,
            "readings": len(each.readings),
            "events": [
                {"event_id": kept.name, "kept_at": kept.site, "received_date_time": _time(kept.received)}
                for kept in each.events
            ],
            "kept_at": each.kept_at,
            "oldest_date_time": _time(each.oldest),
            "oldest_age_seconds": max(0, round((now - each.oldest).total_seconds())),
        }
        for each in waiting
    ]
    return {"at": ledgers.site, "logs": logs, "ledgers": ledgers_body(ledgers)}


def ledgers_body(ledgers: Ledgers) -> dict[str, Any]:
    """Which ledgers were read, and what of them could not be."""
    return {
        "read": list(ledgers.ledgers),
        "damaged": [
            {"ledger": each.ledger, "offset": each.offset, "problem": each.problem} for each in ledgers.damaged
        ],
        "missing": [{"ledger": each.ledger, "from": each.start, "to": each.stop} for each in ledgers.missing],
    }


def _splits(chain: Chain) -> list[dict[str, Any]]:
    return [
        {
            "term": split.term,
            "grants": [
                {
                    "to_site": grant.to_site,
                    "marker_offset": grant.marker_offset,
                    "event": grant.event,
                    "event_id": grant.event_id,
                    "granted_by": grant.granted_by,
                    "granted_date_time": _time(grant.granted_date_time),
                }
                for grant in split.grants
            ],
        }
        for split in chain.splits
    ]


def _last_site(topology: Topology, chain: Chain) -> str | None:
    """The last holder that the topology still has: it has a copy of the log."""
    before: Sequence[str | None] = [site for each in reversed(chain.standing) for site in (each.holder, each.from_site)]
    for site in before:
        if site is not None and site in topology.sites and topology.sites[site].kind is not SiteKind.CUSTOMER:
            return site
    return None


def _time(value: dt.datetime | None) -> str | None:
    return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z") if value is not None else None
