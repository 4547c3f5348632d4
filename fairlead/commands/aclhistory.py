"""``fairlead acl history``: every change of access that was made at a site, by whom, and what came of it."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from acl.apply import at_once
from acl.entries import Change, Entry, QuotaChange, RulesChange, UserChange, changes
from acl.history import Damaged, read
from acl.show import together
from fairlead.commands.aclshared import SitesOption, named, print_lines
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit, errors
from fairlead.errors import ExitCode, FairleadError
from topologies.users import ADMIN


def history(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    last: Annotated[int, typer.Option("--last", help="So many changes; 0 for all.", min=0)] = 20,
    rules: Annotated[bool, typer.Option("--rules", help="Also which rules were added and removed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show who changed access, when, by which plan, and what came of it. Oldest first; --json has everything.

    Example: fairlead acl history --site tokyo --rules
    """
    context = open_topology(topology)
    entries: list[Entry] = []
    damaged: list[dict[str, Any]] = []
    away: list[str] = []
    sites = named(context, site)
    for name, answer in zip(sites, at_once(partial(_read, context), sites), strict=True):
        if isinstance(answer, FairleadError):
            away.append(name)
            errors.print(f"[yellow]{name}: not read, {escape(answer.what)}[/]")
            continue
        found, bad = answer
        entries += found
        damaged += [{"site": name, **msgspec.to_builtins(one)} for one in bad]
    every = changes(entries)
    chosen = every[-last:] if last else every
    body = {"changes": [_builtins(change) for change in chosen], "damaged": damaged, "unread": away}
    emit(body, as_json=as_json, render=lambda: _render(chosen, len(every), damaged, rules=rules))
    if away:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _read(context: Context, site: str) -> tuple[tuple[Entry, ...], tuple[Damaged, ...]] | FairleadError:
    try:
        return read(context.directory.kafka(site, ADMIN))
    except FairleadError as error:
        return error


def _render(chosen: tuple[Change, ...], count: int, damaged: list[dict[str, Any]], *, rules: bool) -> None:
    table = Table("time (UTC)", "site", "who", "what", "outcome")
    for change in chosen:
        first = change.first
        error = change.outcome.error if change.outcome else ""
        ended = f"{change.state}: {error}" if error else change.state
        when = f"{first.at:%Y-%m-%d %H:%M:%S}"
        table.add_row(when, first.site, escape(f"{first.by}@{first.host}"), escape(_what(change)), escape(ended))
    console.print(table)
    if rules:
        for change in chosen:
            console.print(f"{change.first.at:%Y-%m-%d %H:%M:%S} {change.first.site}:")
            for entry in change.intent:
                if isinstance(entry, RulesChange):
                    print_lines((f"  + {line}", "add") for line in together(entry.add))
                    print_lines((f"  - {line}", "remove") for line in together(entry.remove))
    if count > len(chosen):
        console.print(f"{count - len(chosen)} older ones: --last 0")
    for one in damaged:
        console.print(f"[yellow]{one['site']}: entry at offset {one['offset']} cannot be read[/]")


def _what(change: Change) -> str:
    match change.first:
        case RulesChange(plan=plan):
            parts = [entry for entry in change.intent if isinstance(entry, RulesChange)]
            add, remove = sum(len(entry.add) for entry in parts), sum(len(entry.remove) for entry in parts)
            return f"plan {plan}: {add} to add, {remove} to remove"
        case UserChange(action=action, detail=detail):
            users = ", ".join(entry.user for entry in change.intent if isinstance(entry, UserChange))
            return " ".join([action, "user", users, *(f"{key}={value}" for key, value in detail.items())])
        case QuotaChange(user=user, quotas=quotas):
            return f"quotas of {user}: " + ", ".join(f"{key}={value}" for key, value in quotas.items())


def _builtins(change: Change) -> dict[str, Any]:
    return {
        "state": change.state,
        "intent": [msgspec.to_builtins(entry) for entry in change.intent],
        "outcome": msgspec.to_builtins(change.outcome),
    }
