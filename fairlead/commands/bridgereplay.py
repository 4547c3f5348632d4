"""``fairlead bridge replay``: dead letters to the bridge again, after what was wrong has been set right."""

from __future__ import annotations

import asyncio
import datetime as dt
import getpass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edge.messages import Reason
from edge.replay.choose import Choice, Plan
from edge.replay.execute import replay as execute
from edge.replay.letters import log_of, look
from fairlead.clusters import Clusters
from fairlead.commands.context import DEFAULT_TOPOLOGY, Context, JsonOption, TopologyOption, YesOption, open_topology
from fairlead.console import confirmed, console, emit, errors
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import ConfigurationError, UnavailableError, UnknownNameError
from topologies.model import SiteKind
from topologies.users import ADMIN, publisher
from topologies.values import parse_duration


def replay(
    at: Annotated[str, typer.Option("--at", help="The site whose dead letters are replayed.", metavar="SITE")],
    reason: Annotated[
        list[str] | None, typer.Option("--reason", help="Only letters with this reason; may be repeated.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only those received since: a time (2026-09-01T00:00:00Z) or 24h, 7d ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only those received before: a time, or 24h, 7d ago.")] = None,
    device: Annotated[list[str] | None, typer.Option("--device", help="Only this device's; may be repeated.")] = None,
    log: Annotated[
        list[str] | None,
        typer.Option("--log", help="Only those about this log or container; may be repeated.", metavar="LOG"),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also those that were replayed before.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be replayed; do nothing.")] = False,
    yes: YesOption = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Give dead letters to the site's bridge again, after what was wrong has been set right.

    Their messages are published to the site's MQTT broker, the same bytes in the same order, each once; the letters
    stay. What is refused again becomes a new dead letter that names the first one. Asks first at a terminal; elsewhere
    --yes does it.

    Example: fairlead bridge replay --at tokyo --reason unknown-owner --since 7d
    """
    context = open_topology(topology)
    choice = Choice(
        reasons=_reasons(reason or []),
        since=_time("--since", since),
        until=_time("--until", until),
        devices=frozenset(device or ()),
        logs=frozenset(log or ()),
        again=again,
    )
    _check_site(context, at)
    asyncio.run(_replay(context, at, choice, dry_run=dry_run, yes=yes, as_json=as_json))


async def _replay(context: Context, site: str, choice: Choice, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    processes = context.local.status()

    def kafka(name: str) -> KafkaEndpoint:
        here = context.topology.sites[name].is_local
        if here and name in processes and not processes[name].kafka_up:
            raise UnavailableError(f"the Kafka of {name} does not run", hint=f"fairlead up {name}", site=name)
        return context.directory.kafka(name, ADMIN)

    async with Clusters(kafka, client_id="fairlead-replay") as clusters:
        cluster = await clusters.at(site)
        plan = await look(cluster, site, choice)
        wanted = bool(plan.offsets) and not dry_run
        wanted = wanted and confirmed(lambda: show(site, plan, errors), yes=yes, as_json=as_json)
        done = 0
        if wanted:
            mqtt = context.directory.mqtt(site, publisher(context.topology, site))
            done = await execute(cluster, kafka(site), mqtt, site, plan, getpass.getuser())
    emit(body(site, plan, done), as_json=as_json, render=lambda: _render(site, plan, done, dry_run=dry_run))


def body(site: str, plan: Plan, done: int) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "site": site,
        "log": log_of(site),
        "end": plan.end,
        "to_replay": len(plan.offsets),
        "replayed": done,
        "replayed_before": plan.before,
        "refused_again": plan.refused_again,
        "cut": plan.cut,
        "reasons": {
            name: {"letters": of.count, "bytes": of.size, "oldest": of.oldest, "newest": of.newest}
            for name, of in sorted(plan.reasons.items())
        },
        "offsets": plan.offsets,
    }


def show(site: str, plan: Plan, on: Console) -> None:
    """What would be replayed, and what is left out."""
    if plan.reasons:
        table = Table("reason", "letters", "bytes", "oldest (UTC)", "newest (UTC)", box=None, pad_edge=False)
        table.columns[1].justify = table.columns[2].justify = "right"
        for name, of in sorted(plan.reasons.items()):
            table.add_row(escape(name), f"{of.count:,}", f"{of.size:,}", _when(of.oldest), _when(of.newest))
        on.print(table)
    on.print(
        f"{escape(log_of(site))}: {len(plan.offsets):,} to replay, {plan.before:,} replayed before (--again sends them "
        f"once more), {plan.refused_again:,} refused again, {plan.cut:,} not kept whole",
        soft_wrap=True,
    )


def _render(site: str, plan: Plan, done: int, *, dry_run: bool) -> None:
    if done:
        console.print(
            f"[green]done[/]: {done:,} messages are with the MQTT broker of {escape(site)}. "
            "What the bridge refuses again is counted as 'refused again' by this command.",
            soft_wrap=True,
        )
        return
    show(site, plan, console)
    if plan.offsets:
        how = "without --dry-run" if dry_run else "with --yes"
        console.print(f"Nothing was replayed. To do it, run the same command {how}.")


def _when(moment: dt.datetime | None) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S") if moment is not None else "-"


def _check_site(context: Context, site: str) -> None:
    able = [name for name, each in context.topology.sites.items() if each.kind is not SiteKind.CUSTOMER]
    if site not in able:
        raise UnknownNameError("site with a way in", site, able)


def _reasons(names: list[str]) -> frozenset[str]:
    known = [reason.value for reason in Reason]
    for name in names:
        if name not in known:
            raise UnknownNameError("reason", name, known)
    return frozenset(names)


def _time(option: str, text: str | None) -> dt.datetime | None:
    """A time with its zone, or how long ago."""
    if text is None:
        return None
    try:
        return dt.datetime.now(dt.UTC) - parse_duration(text)
    except (ValueError, OverflowError):
        pass
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigurationError(
            f"{option} {text}: neither a time with its zone nor a duration",
            hint="for example 2026-09-01T00:00:00Z, or 30m, 24h, 7d ago",
        )
    return moment
