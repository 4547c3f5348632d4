"""Results of ``fairlead custody``: JSON-ready bodies of chains, lists and strays, and the same as tables. Pure.

The fields are stable (docs/cli-operations.md). Times are ISO 8601 in UTC; unknown values are null.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edge.custody.operator.plan import CustodyPlan, seize_command
from edge.custody.operator.takeover import TakeoverPlan, TakeoverRequest, TakeoverRun
from edge.strays.report import WaitingLog
from fairlead.cli.console import uncut, utc_text
from fairlead.custody.history import Chain, TermInterval, chains
from fairlead.custody.ledger import Ledgers
from fairlead.records.custody import CustodyEntry, CustodyOrder, LedgerEntry
from topologies.model import SiteKind, Topology


def chain_body(chain: Chain, ledgers: Ledgers) -> dict[str, Any]:
    """Return one log's chain."""
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


def interval_body(each: TermInterval) -> dict[str, Any]:
    """Return one term."""
    return _with_times({**asdict(each), "lost": each.lost})


def record_body(record: LedgerEntry | CustodyOrder) -> dict[str, Any]:
    """Return a ledger entry or an order with all its fields except a marker's bytes."""
    return _with_times({k: v for k, v in msgspec.structs.asdict(record).items() if k != "marker_batch"})


def _with_times(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _time(value) if isinstance(value, dt.datetime) else value for name, value in fields.items()}


def plan_body(plan: CustodyPlan, entry: CustodyEntry | None, *, applied: bool) -> dict[str, Any]:
    """Return the effects of a grant or seizure, and the entry that carried it out."""
    return {
        "kind": plan.order.kind,
        "log": plan.order.log,
        "site": plan.site,
        "holder": plan.holder,
        "term": plan.term,
        "to": plan.order.to_site,
        "order": record_body(plan.order),
        "steps": [{name: each[name] for name in ("step", "does", "site")} for each in plan.to_builtins()["steps"]],
        "notes": list(plan.notes),
        "applied": applied,
        "entry": record_body(entry) if entry is not None else None,
    }


def takeover_body(plan: TakeoverPlan, request: TakeoverRequest, run: TakeoverRun | None) -> dict[str, Any]:
    """Return a plan that takes over a holder's logs; and its results when it was carried out."""
    return {
        "kind": "seize",
        "holder": plan.holder,
        "site": request.at,
        "reason": request.reason,
        "orders": [
            {"log": each.log, "site": each.at_site, "term": each.term, "order_id": each.order_id}
            for each in plan.orders
        ],
        "standing": plan.standing,
        "already": dict(plan.already),
        "left": [{"log": each.log, "why": each.why} for each in plan.left],
        "notes": list(plan.notes),
        "applied": run is not None,
        "seized": [_seized(each) for each in run.seized] if run is not None else [],
        "refused": [record_body(each) for each in run.refused] if run is not None else [],
        "unanswered": [each.log for each in run.unanswered] if run is not None else [],
    }


def _seized(entry: CustodyEntry) -> dict[str, Any]:
    return {
        "log": entry.log,
        "holder": entry.to_site,
        "term": entry.term,
        "from_offset": entry.marker_offset + 1,
        "order_id": entry.event_id,
    }


def list_body(topology: Topology, ledgers: Ledgers, held_by: str | None) -> dict[str, Any]:
    """Return every log with its holder, or the logs of one holder, and the problems of each."""
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
    """Return every site that a ledger names as a receiver."""
    return {each.holder for chain in chains(ledgers.entries) for each in chain.intervals if each.holder is not None}


def strays_body(waiting: Iterable[WaitingLog], ledgers: Ledgers, now: dt.datetime) -> dict[str, Any]:
    """Return the strays that wait for each log."""
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
    """Return which ledgers were read, and which of their parts could not be read."""
    return {
        "read": list(ledgers.ledgers),
        "damaged": [
            {"ledger": each.ledger, "offset": each.offset, "problem": each.problem} for each in ledgers.damaged
        ],
        "missing": [{"ledger": each.ledger, "from": each.start, "to": each.stop} for each in ledgers.missing],
        "refused": list(ledgers.refused),
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
    """Return the last holder that the topology still has, which has a copy of the log."""
    for site in chain.past_sites:
        if site is not None and site in topology.sites and topology.sites[site].kind is not SiteKind.CUSTOMER:
            return site
    return None


def _time(value: dt.datetime | None) -> str | None:
    return utc_text(value) if value is not None else None


TABLE_ROWS: Final = 500
_NAMED: Final = 10  # problems of one kind to name; of the rest show the number


def show_chain(body: Mapping[str, Any], console: Console) -> None:
    """Print one log's chain, newest term last; then returned records, refusals and problems."""
    holder = body["holder"]
    held = f"held by [bold]{escape(holder)}[/] in term {body['term']}" if holder else "held by nobody"
    console.print(f"[bold]{escape(body['log'])}[/] is {held} (ledgers at {body['at']})", soft_wrap=True)
    if body["intervals"]:
        table = _table(
            "term", "holder", "from offset", "to offset", "event", "when (UTC)", "by", "reason", "", numbers=(0, 2, 3)
        )
        for each in body["intervals"]:
            table.add_row(
                str(each["term"]),
                escape(each["holder"] or "-"),
                f"{each['from_offset']:,}",
                _end(each),
                each["event"],
                _when(each["event_date_time"]),
                escape(each["granted_by"] + (f", ordered by {each['ordered_by']}" if each["ordered_by"] else "")),
                escape(each["reason"]),
                f"[red]lost: cut off by term {each['cut_by']}[/]" if each["lost"] else "",
            )
        console.print(table)
    for each in body["missing_terms"]:
        which = f"term {each['first']}" if each["first"] == each["last"] else f"terms {each['first']} to {each['last']}"
        _warn(console, f"{which}: the entries are in no ledger at {body['at']}")
    for each in body["returns"]:
        beyond = max(0, each["end_offset"] - each["marker_offset"])
        text = (
            f"{each['returned_by']} came back with {beyond:,} offsets beyond the seizure of term {each['term']} "
            f"({each['marker_offset']:,} to {each['end_offset'] - 1:,}); {each['kept']:,} readings are kept in "
            f"{each['strays_log']}, {_when(each['returned_date_time'])}"
        )
        console.print(f"returned: {escape(text)}", soft_wrap=True)
    for each in body["refusals"]:
        text = f"{each['refused_by']}, {_when(each['refused_date_time'])}: {each['reason']} (order {each['order_id']})"
        console.print(f"refused by {escape(text)}", soft_wrap=True)
    for each in body["claims"]:
        text = (
            f"{each['claimed_by']}: the box came in there, {_when(each['event_date_time'])} (event {each['event_id']})"
            f"; {each['left_site']}, which it had left, gives the log as soon as it hears of that"
        )
        console.print(f"claimed by {escape(text)}", soft_wrap=True)
    for each in body["splits"]:
        _show_split(body["log"], each, console)
    show_ledgers(body["ledgers"], console)


def show_list(body: Mapping[str, Any], console: Console) -> None:
    """Print every log in a line; then the problems."""
    console.print(f"ledgers at {body['at']}: {len(body['logs']):,} logs", soft_wrap=True)
    if body["logs"]:
        _show_logs(body, console)
    for holder, count in Counter(each["holder"] for each in body["stranded"]).items():
        logs = f"{count:,} logs" if count > 1 else "one log"
        console.print(
            f"[bold red]held by {escape(holder)}, which the topology does not have: {logs}[/]", soft_wrap=True
        )
        commands = [each["command"] for each in body["stranded"] if each["holder"] == holder]
        for command in commands:
            console.print(f"  {escape(command)}", soft_wrap=True)
    for each in body["splits"]:
        _show_split(each["log"], each, console)
    show_ledgers(body["ledgers"], console)


def _show_logs(body: Mapping[str, Any], console: Console) -> None:
    """Print a table, or plain lines for very many logs: rich needs most of a millisecond per row."""
    headers = ("log", "holder", "term", "from offset", "event", "when (UTC)")
    rows = [
        (
            each["log"],
            each["holder"] or "-",
            str(each["term"]),
            f"{each['from_offset']:,}",
            each["event"],
            _when(each["event_date_time"]),
        )
        for each in body["logs"]
    ]
    if len(rows) > TABLE_ROWS:
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        line = "  ".join(f"{{:{'>' if n in (2, 3) else '<'}{width}}}" for n, width in enumerate(widths))
        console.out("\n".join(line.format(*row).rstrip() for row in (headers, *rows)), highlight=False)
        return
    gone = {each["log"] for each in body["stranded"]}
    table = _table(*headers, numbers=(2, 3))
    for log, holder, *rest in rows:
        table.add_row(escape(log), f"[red]{escape(holder)}[/]" if log in gone else escape(holder), *rest)
    console.print(table)


def show_takeover(plan: TakeoverPlan, run: TakeoverRun, console: Console) -> None:
    """Print what a takeover did: logs by new holder, those taken over before, refusals by reason, and notes."""
    for site, count in Counter(each.to_site for each in run.seized).items():
        console.print(
            f"[green]done[/]: {escape(str(site))} holds {count:,} of the logs that {escape(plan.holder)} held",
            soft_wrap=True,
        )
    for site, count in plan.already.items():
        console.print(f"taken over already: {escape(site)} {count:,}", soft_wrap=True)
    for (site, code), count in Counter((each.refused_by, each.code) for each in run.refused).items():
        example = next(each for each in run.refused if (each.refused_by, each.code) == (site, code))
        _warn(console, f"{site} refused {count:,}, for example {example.log}: {example.reason}")
    for note in plan.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


def show_strays(body: Mapping[str, Any], console: Console) -> None:
    """Print the strays that wait, the longest waiting first."""
    if not body["logs"]:
        console.print(f"no strays wait (strays and ledgers at {body['at']})", soft_wrap=True)
    else:
        console.print(f"strays and ledgers at {body['at']}:", soft_wrap=True)
        table = _table("log", "held by", "readings", "events", "oldest", "kept at", numbers=(2, 3, 4))
        for each in body["logs"]:
            table.add_row(
                escape(each["log"]),
                escape(each["holder"] or "-"),
                f"{each['readings']:,}",
                f"{len(each['events']):,}",
                age(each["oldest_age_seconds"]),
                escape(", ".join(f"{site} {count:,}" for site, count in each["kept_at"].items())),
            )
        console.print(table)
        for each in body["logs"]:
            for event in each["events"]:
                text = f"{event['event_id']} for {each['log']} waits at {event['kept_at']}"
                console.print(f"event {escape(text)} since {_when(event['received_date_time'])}", soft_wrap=True)
    show_ledgers(body["ledgers"], console)


def show_ledgers(ledgers: Mapping[str, Any], console: Console) -> None:
    """Print which parts of the ledgers could not be read, because the other output may be incomplete without them."""
    if not ledgers["read"]:
        _warn(console, "this site has no ledger at all")
    for each in ledgers["missing"][:_NAMED]:
        count = each["to"] - each["from"]
        entries = "an entry is" if count == 1 else f"up to {count:,} entries are"
        _warn(console, f"{each['ledger']}: {entries} missing (offsets {each['from']:,} to {each['to'] - 1:,})")
    for each in ledgers["damaged"][:_NAMED]:
        _warn(console, f"{each['ledger']} at offset {each['offset']:,} is no entry that can be read: {each['problem']}")
    for text in ledgers["refused"][:_NAMED]:
        _warn(console, text)
    for kind in ("missing", "damaged", "refused"):
        if (more := len(ledgers[kind]) - _NAMED) > 0:
            _warn(console, f"and {more:,} more {kind}")


def age(seconds: int) -> str:
    """Format a time span in its largest units: ``3 d 4 h``."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def _show_split(log: str, split: Mapping[str, Any], console: Console) -> None:
    ways = " and ".join(
        f"to {each['to_site'] or 'nobody'} at offset {each['marker_offset']} by {each['granted_by']} "
        f"({each['event']} {each['event_id']})"
        for each in split["grants"]
    )
    console.print(f"[bold red]term {split['term']} of {escape(log)} was granted {escape(ways)}[/]", soft_wrap=True)
    console.print("  [bold]what to do:[/] compare the two copies with 'fairlead audit'", soft_wrap=True)


def _end(interval: Mapping[str, Any]) -> str:
    if interval["to_offset"] is not None:
        return f"{interval['to_offset']:,}"
    return "?" if interval["lost"] else "now"


def _when(text: str) -> str:
    return dt.datetime.fromisoformat(text).astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _warn(console: Console, text: str) -> None:
    console.print(f"[yellow]warning:[/] {escape(text)}", soft_wrap=True)


def _table(*headers: str, numbers: tuple[int, ...] = ()) -> Table:
    """Return an empty table; ``numbers`` are the places of the columns that are aligned to the right."""
    table = Table(*headers, box=None, pad_edge=False)
    for place, column in enumerate(table.columns):
        column.justify = "right" if place in numbers else "left"
    return uncut(table, "log", "holder", "held by", "when (UTC)")
