"""How ``fairlead link`` prints: tables of links, one link whole, plans, and who may write where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from acl.explain import explain
from acl.rules import Operation
from replication.foreign import Severity
from replication.verbs.explain import Line
from replication.verbs.plan import Plan, Verb, WriteOrders
from topologies.model import Topology
from topologies.users import Role, service_users

_STATES: Final = {"mirroring": "green", "closed": "dim", "stopped": "dim", "unavailable": "bold red"}
_NAMED: Final = 2  # streams that are named in the list; of more only the number
_STYLES: Final = {"step": "bold", "detail": "", "note": "yellow", "plain": ""}


def show_list(links: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Every link in a line."""
    table = Table("link", "policy", "state", "logs", "lag", "paused", "in trouble", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[3:5]:
        column.justify = "right"
    for link in links:
        trouble = ", ".join(f"{count} {state}" for state, count in link["in_trouble"].items())
        table.add_row(
            escape(link["link"]),
            escape(_policy(link["policy"])),
            _state(link["state"]),
            _number(link["logs"]),
            _number(link["lag"]),
            _paused(link),
            f"[red]{escape(trouble)}[/]" if trouble else "",
        )
    console.print(table)
    for site, error in {link["to"]: link["orders_error"] for link in links if link["orders_error"]}.items():
        console.print(f"[yellow]orders of {site}:[/] {escape(error)}", soft_wrap=True)


def show_one(link: Mapping[str, Any], console: Console) -> None:
    """One link with all that is known of it."""
    console.print(f"[bold]{escape(link['link'])}[/] {_state(link['state'])} {escape(link['cause'])}", soft_wrap=True)
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    policy = link["policy"]
    for stream, taken in policy["streams"].items():
        which = taken if isinstance(taken, str) else ", ".join(taken)
        urgent = policy["priority"].get(stream)
        table.add_row("stream", escape(f"{stream}: {which}" + (f", priority {urgent}" if urgent else "")))
    table.add_row("used", policy["when"])
    table.add_row("rate", "as fast as it goes" if policy["rate"] is None else f"{policy['rate']:,} bytes per second")
    table.add_row("starts at", escape(policy["start"]))
    table.add_row("groups", escape(", ".join(policy["groups"]) or "none follow"))
    table.add_row("logs", f"{_number(link['logs'])}, {_number(link['followed'])} followed, lag {_number(link['lag'])}")
    for end in ("source", "target"):
        table.add_row(end, _reach(link[end]))
    console.print(table)
    if link["orders_error"]:
        console.print(f"[yellow]its orders cannot be read:[/] {escape(link['orders_error'])}", soft_wrap=True)
    for order in (*([link["paused"]] if isinstance(link["paused"], dict) else ()), *link["parts_paused"]):
        console.print(f"[yellow]paused:[/] {escape(_order(order))}", soft_wrap=True)
    for log, release in link["released_logs"].items():
        console.print(
            f"{escape(log)} is written at {link['to']}: {release['verb']} by {escape(release['by'])} "
            f"at {release['since']}, end {release['end']}",
            soft_wrap=True,
        )
    for log, trouble in link["logs_in_trouble"].items():
        console.print(
            f"[yellow]{escape(log)}: {trouble['state']}[/] since {trouble['since']} {escape(trouble['cause'])}",
            soft_wrap=True,
        )
        console.print(f"  [bold]what to do:[/] {escape(trouble['what_to_do'])}", soft_wrap=True)
    if link["checks"] is None:
        console.print(f"[yellow]the ends were not checked:[/] {escape(str(link['checks_error']))}", soft_wrap=True)
    for finding in link["checks"] or ():
        style = "red" if finding["severity"] == Severity.BREAKS else "yellow"
        what = f"{finding['subject']} at {finding['site']}: {finding['setting']} is {finding['found']}, needed is "
        console.print(f"[{style}]{finding['severity']}[/] {escape(what + finding['needed'])}", soft_wrap=True)
        console.print(f"  why: {escape(finding['why'])}", soft_wrap=True)
        console.print(f"  [bold]what to do:[/] {escape(finding['change'])}", soft_wrap=True)


def show_plan(lines: Iterable[Line], console: Console) -> None:
    """A plan's lines."""
    for text, style in lines:
        console.print(escape(text), style=_STYLES[style], soft_wrap=True)


def show_writers(topology: Topology, plan: Plan, console: Console) -> None:
    """Who may write to the released logs, by the topology's produce expressions; and what else is needed."""
    for text in writers(topology, plan):
        console.print(escape(text), soft_wrap=True)


def writers(topology: Topology, plan: Plan) -> list[str]:
    """What stands between a released log and its writers: one sentence per stream."""
    if plan.verb not in (Verb.PROMOTE, Verb.FAILOVER, Verb.REVERSE):
        return []
    site = next(step.site for step in plan.steps if isinstance(step, WriteOrders))
    people = [name for name, user in service_users(topology, site).items() if user.role in (Role.CUSTOMER, Role.USER)]
    said: dict[str, str] = {}
    for topic in plan.logs:
        stream = topic.partition(".")[0]
        if stream in said:
            continue
        may = [name for name in people if explain(topology, name, topic, Operation.WRITE, site)[0].allowed]
        if may:
            said[stream] = f"may write {topic} at {site}: {', '.join(may)} (fairlead acl apply, if they are new)"
        else:
            said[stream] = (
                f"no user of the topology may write {topic} at {site} (fairlead acl explain USER {topic} WRITE): "
                f"streams.{stream}.permissions.produce reaches only logs that are named after the site; give the "
                "writer's own user WRITE on the topic there"
            )
    return list(said.values())


def _policy(policy: Mapping[str, Any]) -> str:
    taken = [
        stream if which == "all" else f"{stream} ({which if which == 'aboard' else ', '.join(which)})"
        for stream, which in policy["streams"].items()
    ]
    shown = ", ".join(taken) if len(taken) <= _NAMED else f"{len(taken)} streams"
    rate = "" if policy["rate"] is None else f", {policy['rate']:,} B/s"
    return shown + ("" if policy["when"] == "always" else f", {policy['when']}") + rate


def _paused(link: Mapping[str, Any]) -> str:
    if link["paused"]:
        by = f" by {link['paused']['by']}" if isinstance(link["paused"], dict) else ""
        return f"[yellow]yes{escape(by)}[/]"
    names = [order.get("log") or order.get("stream") for order in link["parts_paused"]]
    return f"[yellow]{escape(', '.join(map(str, names)))}[/]" if names else ""


def _order(order: Mapping[str, Any]) -> str:
    what = order.get("log") or order.get("stream") or "the whole link"
    why = f": {order['reason']}" if order.get("reason") else ""
    return f"{what}, by {order['by']} at {order['at']}{why}"


def _reach(end: Mapping[str, Any]) -> str:
    if end["reachable"]:
        return f"[green]{end['site']} answers[/] {escape(str(end['user']))} in {end['milliseconds']} ms"
    return f"[red]{end['site']} does not answer:[/] {escape(str(end['error']))}"


def _state(state: str) -> str:
    return f"[{_STATES.get(state, 'yellow')}]{state}[/]"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
