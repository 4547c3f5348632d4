"""How ``fairlead custody grant`` and ``seize`` go: look, plan, show, ask, write the order, wait for its answer."""

from __future__ import annotations

import asyncio
import getpass
from typing import Literal

from rich.console import Console
from rich.markup import escape

from edge.orders.build import build, check_names, named_log
from edge.orders.execute import Executor
from edge.orders.explain import tell
from edge.orders.look import Wish, look_at_grant, look_at_seizure
from edge.orders.steps import Plan
from fairlead.commands.context import Context
from fairlead.commands.custodyask import ground_of, likely_sites
from fairlead.commands.custodybody import plan_body
from fairlead.console import confirmed, console, emit, errors, telling, unchanged
from fairlead.records.custody import CustodyEntry


def run_order(
    context: Context,
    kind: Literal["grant", "seize"],
    log: str,
    to_site: str,
    *,
    reason: str,
    dry_run: bool,
    yes: bool,
    wait: float,
    as_json: bool,
) -> None:
    """Refuse, or show the plan, or carry it out; ``yes``: without asking."""
    log = named_log(context.topology, log)
    check_names(context.topology, kind, log, to_site)
    plan = asyncio.run(_plan(context, kind, Wish(log, to_site, getpass.getuser(), reason)))
    wanted = confirmed(lambda: _show(plan, errors), yes=yes, as_json=as_json, dry_run=dry_run)
    entry = asyncio.run(_execute(context, plan, wait, quiet=as_json)) if wanted else None
    emit(
        plan_body(plan, entry, applied=wanted),
        as_json=as_json,
        render=lambda: _render(plan, entry, dry_run=dry_run),
    )


async def _plan(context: Context, kind: Literal["grant", "seize"], wish: Wish) -> Plan:
    async with ground_of(context) as ground:
        if kind == "grant":
            ask = likely_sites(context.topology, None)
            return build(await look_at_grant(context.topology, ground, wish, ask))
        return build(await look_at_seizure(context.topology, ground, wish))


async def _execute(context: Context, plan: Plan, wait: float, *, quiet: bool) -> CustodyEntry:
    async with ground_of(context) as ground:
        with telling(quiet=quiet) as tell:
            return await Executor(ground, wait=wait, progress=tell).run(plan)


def _render(plan: Plan, entry: CustodyEntry | None, *, dry_run: bool) -> None:
    if entry is None:
        _show(plan, console)
        unchanged(dry_run=dry_run)
        return
    console.print(
        f"[green]done[/]: {escape(str(entry.to_site))} holds {escape(entry.log)} in term {entry.term}, from offset "
        f"{entry.marker_offset + 1:,} (before: {escape(str(plan.holder))} in term {plan.term})",
        soft_wrap=True,
    )
    for note in plan.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


def _show(plan: Plan, on: Console) -> None:
    for text in tell(plan):
        on.print(escape(text), soft_wrap=True)
