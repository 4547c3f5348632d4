"""``fairlead link resolve``: the way out of a log's trouble, shown first, and carried out with ``--yes``."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, YesOption, open_topology
from fairlead.console import confirmed, console, emit, errors, unchanged
from fairlead.errors import ConfigurationError, UnavailableError, UnknownNameError
from replication.orders import Order
from replication.resolve.execute import Executor
from replication.resolve.explain import as_json as plan_as_json
from replication.resolve.explain import explain
from replication.resolve.look import look, parse_checked, trouble_of
from replication.resolve.plan import Choice, Plan, plan_resolution
from replication.verbs.status import read_status
from replication.verbs.topic import append_orders
from topologies.users import ADMIN, upstream_user


def resolve(
    log: Annotated[str, typer.Argument(help="The log in trouble: TOPIC, or TOPIC/PARTITION.", metavar="LOG")],
    at: Annotated[str, typer.Option("--at", help="The site whose copy is in trouble.", metavar="SITE")],
    skip: Annotated[
        bool, typer.Option("--skip", help="Fill the offsets that cannot be copied, and mark them.")
    ] = False,
    refill: Annotated[
        bool, typer.Option("--refill", help="Keep this copy under another name and let it be made again.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Look at the log anew.")] = False,
    shorter: Annotated[
        bool,
        typer.Option("--shorter", help="Refill although the sources begin later; what is older is kept apart only."),
    ] = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Resolve a log's trouble; what happens without an option depends on its state.

    Nothing is lost by it: a copy that is made again is first kept as fairlead.kept.LOG.TIME at the same site, with the
    same offsets, compared batch by batch, and never deleted by Fairlead.

    Example: fairlead link resolve ships.9074729.location --at tokyo --yes
    """
    context = open_topology(topology)
    if at not in context.topology.sites:
        raise UnknownNameError("site", at, context.topology.sites)
    plan = asyncio.run(_plan(context, at, log, _choice(skip=skip, refill=refill, retry=retry), shorter=shorter))
    yes = confirmed(lambda: _show(plan, errors), yes=yes, as_json=as_json)
    if yes:
        if not as_json:
            errors.print(f"{plan.log} at {plan.site} is {plan.state}", soft_wrap=True)
        asyncio.run(_execute(context, plan, quiet=as_json))
    emit({**plan_as_json(plan), "applied": yes}, as_json=as_json, render=lambda: _render(plan, applied=yes))


def _choice(**options: bool) -> Choice | None:
    given = [Choice(name) for name, is_given in options.items() if is_given]
    if len(given) > 1:
        raise ConfigurationError(
            f"{' and '.join(f'--{each}' for each in given)} contradict each other", hint="give one of them, or none"
        )
    return given[0] if given else None


async def _plan(context: Context, site: str, log: str, choice: Choice | None, *, shorter: bool) -> Plan:
    status = read_status(context.folder, site)
    if status is None:
        raise UnavailableError(
            f"no replicator of {site} has run on this machine, so nothing is known about its logs",
            hint="run this where it runs; the status file is below FAIRLEAD_HOME",
            site=site,
        )
    parse_checked(log)
    trouble_of(status.snapshot, site, log)
    user = upstream_user(site)
    state, facts = await look(
        context.topology,
        context.directory.kafka(site, ADMIN),
        lambda source: context.directory.kafka(source, user),
        status.snapshot,
        log,
        running=status.running,
    )
    return plan_resolution(state, facts, choice, shorter=shorter)


async def _execute(context: Context, plan: Plan, *, quiet: bool) -> None:
    target, user = context.directory.kafka(plan.site, ADMIN), upstream_user(plan.site)

    async def write(order: Order) -> int:
        return await asyncio.to_thread(append_orders, target, [order])

    def status() -> Any:
        now = read_status(context.folder, plan.site)
        return now.snapshot if now is not None and now.running else None

    def say(text: str) -> None:
        if not quiet:
            errors.print(f"  {escape(text)}", soft_wrap=True)

    executor = Executor(
        target, lambda source: context.directory.kafka(source, user), write=write, status=status, say=say
    )
    await executor.run(plan)


def _render(plan: Plan, *, applied: bool) -> None:
    if applied:
        console.print(f"[green]done[/]: {escape(plan.log)} at {plan.site} was {plan.state}", soft_wrap=True)
        _notes(plan, console)
    else:
        _show(plan, console)
        unchanged()


def _show(plan: Plan, on: Console) -> None:
    on.print(f"{escape(plan.log)} at {plan.site} is [yellow]{plan.state}[/]; this resolves it:", soft_wrap=True)
    for number, step in enumerate(plan.steps, start=1):
        on.print(f"  {number}. {escape(explain(step))}", soft_wrap=True)
    _notes(plan, on)


def _notes(plan: Plan, on: Console) -> None:
    for note in plan.notes:
        on.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)
