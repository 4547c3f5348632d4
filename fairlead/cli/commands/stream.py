"""``fairlead stream``: show streams with records, bytes, retention, access and groups; set and delete them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from rich.table import Table

from fairlead.cli.commands.context import DryRunOption, JsonOption, SitesOption, TopologyOption, YesOption
from fairlead.cli.console import Consent, console, emit, errors, number, print_notes, print_plan, size, telling
from fairlead.errors import ExitCode, FairleadError, OptionError
from fairlead.plan import Plan, execute
from fairlead.streams.delete import (
    DeletionRun,
    check_not_declared,
    check_workers,
    plan_deletion,
)
from fairlead.streams.inventory import (
    Inventory,
    StreamPositions,
    check_stream,
    describe_stream,
    list_streams,
    measure_usage,
    read_positions,
    take_inventory,
    unreached_as_json,
)
from fairlead.streams.settings import SettingsChange, SettingsRun, plan_settings
from topologies.context import DEFAULT_TOPOLOGY, open_topology, running_kafka
from topologies.loader.load import load
from topologies.model import PERMISSIONS, Priority, check_sites

BIGGEST: Final = 10  # logs that usage names, unless --biggest says otherwise

app = typer.Typer(
    help="Show streams with their records, bytes, retention, access and consumer groups; set, delete.",
    epilog="A stream's topics are STREAM.KEY. Commands that change something show their plan and ask; --yes does not "
    "ask, --dry-run only shows.\n\nExample: fairlead stream show containers",
    no_args_is_help=True,
)


def complete_stream(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the streams of the topology named before the cursor; none if it cannot be loaded."""
    try:
        topology = load(ctx.params.get("topology") or DEFAULT_TOPOLOGY)
    except FairleadError:
        return []
    return [stream for stream in topology.streams if stream.startswith(incomplete)]


StreamArgument = Annotated[
    str, typer.Argument(help="The stream's name.", metavar="STREAM", autocompletion=complete_stream)
]


@app.command("list")
def list_(topology: TopologyOption = DEFAULT_TOPOLOGY, site: SitesOption = None, as_json: JsonOption = False) -> None:
    """List streams: topics, records, bytes, sites, retention, insert point, priority.

    A topic counts once, with the most records that a site has of it; bytes add up all sites. Sites that do not answer
    are named, and everything else is shown without them. Ends with 4 when no site answers.

    Example: fairlead stream list
    """
    context = open_topology(topology)
    sites = check_sites(context.topology, site or None)
    inventory = asyncio.run(take_inventory(running_kafka(context), sites))
    found = list_streams(context.topology, inventory)
    body = {"streams": found, "unreached": unreached_as_json(inventory.unreached)}
    emit(body, as_json=as_json, render=lambda: _show_list(found, inventory))
    _require_one(inventory)


@app.command()
def show(
    stream: StreamArgument,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one stream: what each site has of it, its links, who may do what, and its consumer groups with their lag.

    Sites that do not answer are named, and everything else is shown without them.

    Example: fairlead stream show containers
    """
    context = open_topology(topology)
    sites = check_sites(context.topology, site or None)
    kafka = running_kafka(context)

    async def gather() -> tuple[Inventory, StreamPositions]:
        inventory = await take_inventory(kafka, sites, only=stream if stream in context.topology.streams else None)
        return inventory, await read_positions(kafka, inventory, stream)

    inventory, positions = asyncio.run(gather())
    check_stream(context.topology, inventory, stream)
    found = describe_stream(context.topology, inventory, positions, stream)
    body = {**found, "unreached": unreached_as_json(inventory.unreached)}
    emit(body, as_json=as_json, render=lambda: _show_one(found, inventory))
    _require_one(inventory)


@app.command()
def usage(
    stream: Annotated[
        str | None,
        typer.Argument(help="Only this stream.", metavar="[STREAM]", autocompletion=complete_stream),
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    biggest: Annotated[int, typer.Option("--biggest", help="Name this many of the biggest topics.", min=0)] = BIGGEST,
    as_json: JsonOption = False,
) -> None:
    """Show how many records and bytes each stream has at each site, and the biggest topics.

    Bytes are those of one copy, on the disk of each topic's leader.

    Example: fairlead stream usage --site tokyo
    """
    context = open_topology(topology)
    sites = check_sites(context.topology, site or None)
    known = stream if stream in context.topology.streams else None
    inventory = asyncio.run(take_inventory(running_kafka(context), sites, only=known))
    if stream is not None:
        check_stream(context.topology, inventory, stream)
    found = measure_usage(context.topology, inventory, stream, biggest=biggest)
    body = {**found, "unreached": unreached_as_json(inventory.unreached)}
    emit(body, as_json=as_json, render=lambda: _show_usage(found, inventory))
    _require_one(inventory)


@app.command("set")
def set_(
    stream: StreamArgument,
    retention: Annotated[
        list[str] | None,
        typer.Option("--retention", help="How long a site keeps records; may be repeated.", metavar="SITE=DURATION"),
    ] = None,
    permission: Annotated[
        list[str] | None,
        typer.Option(
            "--permission",
            help=f"Who has one of {', '.join(PERMISSIONS)}; '' for nobody; may be repeated.",
            metavar="NAME=EXPR",
        ),
    ] = None,
    priority: Annotated[
        str | None,
        typer.Option("--priority", help=f"Its class on links: {', '.join(Priority)}.", metavar="CLASS"),
    ] = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Change a stream in your topology's file: retention, permissions, priority.

    Comments, order and everything else in the file stay. The plan also shows what follows at the sites: ACLs that
    fairlead acl apply changes, and retention that the next sweep applies.

    Example: fairlead stream set orders --retention tokyo=90d --permission consume='g:analysts' -t my-fleet.yaml --yes
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    change = SettingsChange(
        stream,
        _pairs("--retention", "SITE=DURATION", retention),
        _pairs("--permission", "NAME=EXPR", permission),
        priority,
    )
    context = open_topology(topology)
    plan = plan_settings(topology, context.topology, change)
    applied = not plan.is_empty and consent.given(lambda on: print_plan(plan.lines(), on))
    if applied:
        asyncio.run(execute(plan.steps, SettingsRun()))

    done = [f"{plan.file} is changed"] if applied else []
    emit({**plan.to_builtins(), "applied": applied}, as_json=as_json, render=lambda: _show_done(plan, done, consent))


@app.command()
def delete(
    stream: StreamArgument,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    site: SitesOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the topics of a stream that the topology no longer has.

    Refused while the topology has the stream, while a bridge or replicator runs with an older topology, and while
    somebody writes to one of its topics. Ends with 4 when a site does not answer; its topics stay.

    Example: fairlead stream delete orders --site tokyo --dry-run
    """
    consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
    context = open_topology(topology)
    sites = check_sites(context.topology, site or None)
    check_not_declared(context.topology, stream)
    check_workers(context.folder, topology, context.topology.sites)
    kafka = running_kafka(context)
    plan = asyncio.run(plan_deletion(context.topology, kafka, stream, sites))
    applied = not plan.is_empty and consent.given(lambda on: print_plan(plan.lines(), on))
    run: DeletionRun | None = None
    if applied:
        with telling(quiet=as_json) as tell:
            run = DeletionRun(kafka, tell)
            asyncio.run(execute(plan.steps, run))

    done = run.done if run else []
    body = {**plan.to_builtins(), "applied": applied, "done": done}
    emit(body, as_json=as_json, render=lambda: _show_done(plan, done, consent))
    if plan.unreached:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _require_one(inventory: Inventory) -> None:
    if not inventory.sites:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _pairs(option: str, form: str, given: Sequence[str] | None) -> dict[str, str]:
    """Split values of an option, which have this form; the last one of a name counts."""
    pairs: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise OptionError(
                f"{option} {each!r} has no {'name before its ' if equals else ''}'='", hint=f"{option} {form}"
            )
        pairs[name.strip()] = value.strip()
    return pairs


def _show_done(plan: Plan[Any], done: Sequence[str], consent: Consent) -> None:
    """Print what was done and the plan's notes; or the plan, if nothing was."""
    if plan.is_empty:
        print_plan(plan.lines(), console)
    elif not done:
        consent.unchanged(lambda on: print_plan(plan.lines(), on))
    else:
        for text in done:
            console.print(escape(text), soft_wrap=True)
        print_notes(plan.notes)


def _show_list(streams: Sequence[Mapping[str, Any]], inventory: Inventory) -> None:
    heads = ("stream", "insert point", "priority", "topics", "records", "bytes", "sites", "retention")
    table = _table(*heads, numbers=("topics", "records", "bytes", "sites"))
    for each in streams:
        kept = dict.fromkeys(filter(None, (each["shortest_retention"], each["longest_retention"])))
        table.add_row(
            each["stream"],
            each["insert_point"] or "-",
            each["priority"] or "[yellow]not in the topology[/]",
            number(each["logs"]),
            number(each["records"]),
            size(each["bytes"]),
            str(len(each["sites"])),
            " to ".join(kept) or "-",
        )
    console.print(table)
    _show_unreached(inventory)


def _show_one(stream: Mapping[str, Any], inventory: Inventory) -> None:
    title = f" {escape(stream['title'])}" if stream["title"] else ""
    console.print(f"[bold]{stream['stream']}[/]{title}", soft_wrap=True)
    if stream["declared"]:
        owners = f", owners {', '.join(stream['owners'])}" if stream["owners"] else ""
        console.print(f"insert point {stream['insert_point']}, priority {stream['priority']}{owners}", soft_wrap=True)
    else:
        console.print(
            f"[yellow]not in the topology:[/] fairlead stream delete {stream['stream']} deletes its topics",
            soft_wrap=True,
        )
    table = _table("site", "topics", "records", "bytes", "retention", numbers=("topics", "records", "bytes"))
    for site, has in stream["sites"].items():
        counts = (number(has["logs"]), number(has["records"]), size(has["bytes"]))
        table.add_row(site, *counts, has["retention"] or "-")
    console.print(table)
    if stream["links"]:
        table = _table("link", "takes", "priority")
        for link in stream["links"]:
            taken = link["takes"] if isinstance(link["takes"], str) else ", ".join(link["takes"])
            table.add_row(escape(link["link"]), escape(taken), link["priority"])
        console.print(table)
    if stream["declared"]:
        table = _table("permission", "expression")
        for each in stream["permissions"]:
            name = each["permission"] if each["key"] is None else f"{each['permission']} of {each['key']}"
            table.add_row(escape(name), escape(each["expression"]) or "[dim]nobody[/]")
        console.print(table)
    if stream["access"]:
        table = _table("user", "may", "topics", "at", "because")
        for each in stream["access"]:
            operations, sites = ", ".join(each["operations"]), ", ".join(each["sites"])
            table.add_row(escape(each["user"]), operations, escape(each["logs"]), sites, escape(each["because"]))
        console.print(table)
    if stream["groups"]:
        table = _table("group", "site", "topics", "lag", "members", numbers=("topics", "lag"))
        for each in stream["groups"]:
            members = "yes" if each["active"] else "none"
            table.add_row(escape(each["group"]), each["site"], f"{each['logs']:,}", f"{each['lag']:,}", members)
        console.print(table)
    else:
        console.print("no consumer group has offsets in it")
    for each in stream["groups_unread"]:
        console.print(f"[yellow]{each['site']}: groups not read, {escape(each['why'])}[/]", soft_wrap=True)
    _show_unreached(inventory)


def _show_usage(found: Mapping[str, Any], inventory: Inventory) -> None:
    table = _table("stream", "site", "topics", "records", "bytes", numbers=("topics", "records", "bytes"))
    for each in found["usage"]:
        table.add_row(each["stream"], each["site"], *_counts(each))
    table.add_section()
    table.add_row("all", "", *_counts(found["total"]))
    console.print(table)
    if found["biggest_logs"]:
        table = _table("biggest topics", "site", "records", "bytes", numbers=("records", "bytes"))
        for each in found["biggest_logs"]:
            table.add_row(escape(each["log"]), each["site"], number(each["records"]), size(each["bytes"]))
        console.print(table)
    _show_unreached(inventory)


def _show_unreached(inventory: Inventory) -> None:
    for each in inventory.unreached:
        errors.print(f"[yellow]{each.site} was not reached:[/] {escape(each.why)}", soft_wrap=True)


def _counts(each: Mapping[str, int | None]) -> tuple[str, str, str]:
    return number(each["logs"]), number(each["records"]), size(each["bytes"])


def _table(*heads: str, numbers: Sequence[str] = ()) -> Table:
    table = Table(*heads, box=None, pad_edge=False)
    for head, column in zip(heads, table.columns, strict=True):
        column.justify = "right" if head in numbers else "left"
    table.columns[0].no_wrap = True
    return table
