"""``fairlead acl plan`` and ``drift``: what each site would change, and what someone else changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from acl import apply as applying
from acl import show
from acl.compile import all_left_out
from acl.guard import TooManyRemovals, check_removals
from acl.saved import save
from fairlead.commands.aclshared import SitesOption, named, print_lines
from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit
from fairlead.errors import ExitCode


def plan(
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the plan to a file, for fairlead acl apply FILE.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each site would change, and change nothing.

    Example: fairlead acl plan --out rules.plan
    """
    context = open_topology(topology)
    made = applying.plan_topology(context.topology, applying.admin_stores(context.directory), site or None)

    def render() -> None:
        print_lines(show.tell(made))
        for note in dict.fromkeys(
            note for name in named(context, site) for note in all_left_out(context.topology, name)
        ):
            console.print(f"[yellow]no rule for[/] {note.user}, {escape(note.where)}: {escape(note.why)}")
        for one in made.sites:
            try:
                check_removals(one, one.keep + len(one.remove))
            except TooManyRemovals:
                console.print(
                    f"[yellow]{one.site}: removes {len(one.remove)} of {one.keep + len(one.remove)} rules:[/] "
                    "fairlead acl apply does that only with --allow-removals",
                    soft_wrap=True,
                )
        for refused in made.lockouts:
            console.print(
                f"[red]{refused.site}: refused:[/] after this plan {refused.why}; fairlead acl apply changes nothing "
                f"there ({refused.hint})",
                soft_wrap=True,
            )
        console.print(show.totals(made))
        if out:
            console.print(f"to do exactly this: fairlead acl apply {escape(str(out))}", soft_wrap=True)

    if out:
        save(made, out)
    emit(made.to_builtins(), as_json=as_json, render=render)
    if made.unread:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def drift(topology: TopologyOption = DEFAULT_TOPOLOGY, site: SitesOption = None, as_json: JsonOption = False) -> None:
    """Find rules that are missing or that someone else made. Ends with 1 when there are any, 4 when a site is away.

    Example: fairlead acl drift --json
    """
    context = open_topology(topology)
    found = applying.plan_topology(context.topology, applying.admin_stores(context.directory), site or None)
    emit(
        {"drift": not found.is_empty, **found.to_builtins()},
        as_json=as_json,
        render=lambda: print_lines(show.tell_drift(found)),
    )
    if not found.is_empty:
        raise typer.Exit(ExitCode.FAILED)
    if found.unread:
        raise typer.Exit(ExitCode.UNAVAILABLE)
