"""``fairlead link resolve``: resolve the trouble of a log that is not mirrored."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.markup import escape

from fairlead.cli.commands.context import DryRunOption, JsonOption, TopologyOption, YesOption, site_option
from fairlead.cli.console import Consent, console, emit, errors, print_notes, print_plan
from fairlead.errors import OptionError, UnavailableError
from fairlead.kafka.endpoint import KafkaEndpoint
from replication.operations.links.access import open_access, read_status
from replication.operations.resolve.facts import gather_facts, parse_checked, trouble_of
from replication.operations.resolve.plan import ResolveChoice, ResolvePlan, plan_resolution
from replication.operations.resolve.steps import resolve_log
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology
from topologies.model import check_sites
from topologies.users import ADMIN, upstream_user


def resolve(
    log: Annotated[str, typer.Argument(help="The log in trouble: TOPIC, or TOPIC/PARTITION.", metavar="LOG")],
    at: Annotated[str, site_option("The site whose copy is in trouble.")],
    skip: Annotated[
        bool, typer.Option("--skip", help="Fill the offsets that cannot be copied, and mark them.")
    ] = False,
    refill: Annotated[
        bool, typer.Option("--refill", help="Keep this copy under another name and copy the log again.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Check the log again.")] = False,
    shorter: Annotated[
        bool,
        typer.Option("--shorter", help="Refill although the sources begin later; older records stay in the kept copy."),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Resolve a log's trouble; without an option the way depends on its state.

    Nothing is lost: before a log is copied again, the old copy is kept as fairlead.kept.LOG.TIME at the same site, with
    the same offsets, and compared batch by batch. Fairlead never deletes it.

    Example: fairlead link resolve ships.9074729.location --site tokyo --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    check_sites(context.topology, [at])
    plan = asyncio.run(_plan(context, at, log, _choice(skip=skip, refill=refill, retry=retry), shorter=shorter))
    applied = consent.given(lambda on: print_plan(plan.lines(), on))
    if applied:
        if not as_json:
            errors.print(f"{plan.log} at {plan.site} is {plan.state}", soft_wrap=True)
        asyncio.run(_execute(context, plan, quiet=as_json))
    emit(
        {**plan.to_builtins(), "applied": applied},
        as_json=as_json,
        render=lambda: _render(plan, consent, applied=applied),
    )


def _choice(**options: bool) -> ResolveChoice | None:
    given = [ResolveChoice(name) for name, is_given in options.items() if is_given]
    if len(given) > 1:
        raise OptionError(
            f"{' and '.join(f'--{each}' for each in given)} contradict each other", hint="give one of them, or none"
        )
    return given[0] if given else None


async def _plan(context: Context, site: str, log: str, choice: ResolveChoice | None, *, shorter: bool) -> ResolvePlan:
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
    state, facts = await gather_facts(
        context.topology,
        context.resolver.kafka(site, ADMIN),
        lambda source: context.resolver.kafka(source, user),
        status.snapshot,
        log,
        running=status.running,
    )
    return plan_resolution(state, facts, choice, shorter=shorter)


async def _execute(context: Context, plan: ResolvePlan, *, quiet: bool) -> None:
    user = upstream_user(plan.site)

    def admin(site: str) -> KafkaEndpoint:
        return context.resolver.kafka(site, ADMIN)

    def upstream(source: str) -> KafkaEndpoint:
        return context.resolver.kafka(source, user)

    def tell(text: str) -> None:
        if not quiet:
            errors.print(f"  {escape(text)}", soft_wrap=True)

    async with open_access(admin, context.folder) as access:
        await resolve_log(plan, admin(plan.site), upstream, access, tell)


def _render(plan: ResolvePlan, consent: Consent, *, applied: bool) -> None:
    if not applied:
        consent.unchanged(lambda on: print_plan(plan.lines(), on))
        return
    console.print(f"[green]done[/]: {escape(plan.log)} at {plan.site} was {plan.state}", soft_wrap=True)
    print_notes(plan.notes)
