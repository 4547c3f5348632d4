"""How every verb of ``fairlead link`` goes: look, plan, show, ask, carry out, tell."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from rich.markup import escape

from fairlead.commands import linkshow
from fairlead.commands.context import Context
from fairlead.console import asked, console, emit, errors, telling, unchanged
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import ConfigurationError, FairleadError, UnavailableError
from replication.foreign import check_link
from replication.verbs.build import build, merge
from replication.verbs.choose import Scope, find_link, may_have
from replication.verbs.execute import Executor, Outcome
from replication.verbs.explain import tell
from replication.verbs.ground import Ground, standing
from replication.verbs.look import PATIENCE, look
from replication.verbs.plan import Plan, Verb
from replication.verbs.report import list_links, logs_of, probe, releases_of
from topologies.model import Link
from topologies.users import ADMIN, upstream_user


def run_verb(
    context: Context,
    verb: Verb,
    links: Sequence[Link],
    scope: Scope,
    *,
    reason: str,
    yes: bool,
    wait: float,
    as_json: bool,
    every: bool = False,
) -> None:
    """Show the plan; carry it out with ``yes``, or when a person at the terminal says so."""
    plan, away = asyncio.run(_plan(context, verb, links, scope, reason, every=every, patience=min(PATIENCE, wait)))
    wanted = yes or (not as_json and not plan.is_empty and asked(lambda: linkshow.show_plan(tell(plan), errors)))
    outcome = Outcome()
    if wanted:
        outcome = asyncio.run(_execute(context, plan, wait, quiet=as_json))
    emit(
        {
            **plan.to_builtins(),
            "applied": wanted and not plan.is_empty,
            "done": outcome.done,
            "pending": outcome.pending,
            "away": [{"link": name, "error": error.what} for name, error in away],
        },
        as_json=as_json,
        render=lambda: _render(context, plan, outcome, applied=wanted),
    )
    if away:
        name, error = away[0]
        raise UnavailableError(
            f"{len(away)} of {len(links)} links could not be asked, first {name}: {error.what}",
            hint=error.hint,
            links=[each for each, _ in away],
        )


async def _plan(
    context: Context,
    verb: Verb,
    links: Sequence[Link],
    scope: Scope,
    reason: str,
    *,
    every: bool,
    patience: float,
) -> tuple[Plan, list[tuple[str, FairleadError]]]:
    by = getpass.getuser()
    away: list[tuple[str, FairleadError]] = []
    plans: list[Plan] = []
    async with ground_of(context) as ground:
        for link in links:
            try:
                facts = await look(
                    verb, context.topology, link, scope, ground, by=by, reason=reason, every=every, patience=patience
                )
            except UnavailableError as error:
                if len(links) == 1:
                    raise
                away.append((link.name, error))
                continue
            plans.append(build(verb, facts))
    if not plans:
        return Plan(verb, tuple(link.name for link in links), (), ()), away
    return merge(plans) if len(plans) > 1 else plans[0], away


async def _execute(context: Context, plan: Plan, wait: float, *, quiet: bool) -> Outcome:
    async with ground_of(context) as ground:
        with telling(quiet=quiet) as progress:
            return await Executor(ground, wait=wait, progress=progress).run(plan)


def _render(context: Context, plan: Plan, outcome: Outcome, *, applied: bool) -> None:
    if not applied or plan.is_empty:
        linkshow.show_plan(tell(plan), console)
        if not plan.is_empty:
            unchanged()
        return
    for text in outcome.done:
        console.print(escape(text), soft_wrap=True)
    for text in plan.notes:
        console.print(f"[yellow]note:[/] {escape(text)}", soft_wrap=True)
    if plan.verb in (Verb.PROMOTE, Verb.FAILOVER, Verb.REVERSE):
        linkshow.show_writers(context.topology, plan, console)


def choose_links(
    context: Context, link: str | None, source: str | None, target: str | None, scope: Scope, *, all_: bool
) -> Sequence[Link]:
    if not all_:
        return [find_link(context.topology, link, source, target)]
    if link or source or target:
        raise ConfigurationError("one link and --all", hint="give LINK, or --all")
    links = [each for each in context.topology.directed_links() if may_have(each, scope)]
    if not links:
        raise ConfigurationError(f"no link carries {scope}", hint="fairlead link list shows what each carries")
    return links


def ground_of(context: Context) -> AbstractAsyncContextManager[Ground]:
    processes = context.local.status()

    def kafka(site: str) -> KafkaEndpoint:
        here = context.topology.sites[site].is_local
        if here and site in processes and not processes[site].kafka_up:  # a dead port is known without asking it
            raise UnavailableError(f"the Kafka of {site} does not run", hint=f"fairlead up {site}", site=site)
        return context.directory.kafka(site, ADMIN)

    return standing(kafka, context.folder)


async def describe_link(context: Context, link: Link) -> dict[str, Any]:
    """All that is known of a link, as ``linkshow.show_one`` prints it. ``checks`` are what should be otherwise at the
    two ends, null when they could not be looked at; ``checks_error`` says why."""

    def source() -> KafkaEndpoint:
        return context.directory.kafka(link.from_, upstream_user(link.to))

    def target() -> KafkaEndpoint:
        return context.directory.kafka(link.to, "replicator")

    async with ground_of(context) as ground:
        (found,) = await list_links(context.topology, ground, [link])
        status = ground.status(link.to)
    ends = await asyncio.gather(probe(source), probe(target))
    checks: list[dict[str, str]] | None = None
    error = next((each["error"] for each in ends if not each["reachable"]), None)
    if error is None:
        try:
            admins = {"source_admin": _admin(context, link.from_), "target_admin": _admin(context, link.to)}
            checks = [each.as_json() for each in await check_link(context.topology, link, source(), target(), **admins)]
        except FairleadError as trouble:
            error = trouble.what
    return {
        **found,
        "source": {"site": link.from_, **ends[0]},
        "target": {"site": link.to, **ends[1]},
        "logs_in_trouble": dict(logs_of(link, status)),
        "released_logs": dict(releases_of(link, status)),
        "checks": checks,
        "checks_error": error,
    }


def _admin(context: Context, site: str) -> KafkaEndpoint | None:
    """A site's administrator; None where this machine does not know it."""
    try:
        return context.directory.kafka(site, ADMIN)
    except FairleadError:
        return None
