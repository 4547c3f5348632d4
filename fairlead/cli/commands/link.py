"""``fairlead link``: show links and their lag; pause, resume, promote, fail over, reverse, restore.

Every verb looks at both ends, makes a plan, shows it, asks, carries it out, and reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from acl.explain import explain
from acl.rules import Operation
from fairlead.cli.commands.context import DryRunOption, JsonOption, TopologyOption, WaitOption, YesOption, complete_site
from fairlead.cli.commands.resolve import resolve
from fairlead.cli.console import Consent, console, emit, number, print_notes, print_plan, telling
from fairlead.errors import ConfigurationError, ExitCode, FairleadError, OptionError, UnavailableError
from replication.check.rules import Severity
from replication.operations.links.access import ClusterAccess, open_access
from replication.operations.links.facts import PATIENCE, LinkOperation, LinkScope, find_link, may_have
from replication.operations.links.plan import LinkPlan, plan_links
from replication.operations.links.report import describe_link, list_links
from replication.operations.links.steps import WAIT, LinkRun, WriteLinkOrders, carry_out
from replication.states import ELSEWHERE
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology, running_kafka
from topologies.model import Link, Topology
from topologies.users import Role, service_users
from topologies.values import format_rate


def run_verb(
    context: Context,
    verb: LinkOperation,
    links: Sequence[Link],
    scope: LinkScope,
    *,
    reason: str,
    consent: Consent,
    wait: float,
    as_json: bool,
    every: bool = False,
) -> None:
    """Make the plan, and carry it out with consent."""

    async def make_plan() -> tuple[LinkPlan, list[tuple[str, FairleadError]]]:
        async with access_of(context) as access:
            return await plan_links(
                context.topology,
                access,
                verb,
                links,
                scope,
                reason=reason,
                every=every,
                patience=min(PATIENCE, wait),
            )

    async def execute_plan() -> LinkRun:
        async with access_of(context) as access:
            with telling(quiet=as_json) as tell:
                return await carry_out(plan, LinkRun(access, wait, tell))

    plan, away = asyncio.run(make_plan())
    applied = not plan.is_empty and consent.given(lambda on: print_plan(plan.lines(), on))
    run = asyncio.run(execute_plan()) if applied else None
    emit(
        {
            **plan.to_builtins(),
            "applied": applied,
            "done": run.done if run else [],
            "pending": run.pending if run else [],
            "away": [{"link": name, "error": error.what} for name, error in away],
        },
        as_json=as_json,
        render=lambda: _render(context, plan, run, consent),
    )
    if away:
        name, error = away[0]
        raise UnavailableError(
            f"{len(away)} of {len(links)} links could not be asked, first {name}: {error.what}",
            hint=error.hint,
            links=[each for each, _ in away],
        )


def _render(context: Context, plan: LinkPlan, run: LinkRun | None, consent: Consent) -> None:
    if plan.is_empty:
        print_plan(plan.lines(), console)
        return
    if run is None:
        consent.unchanged(lambda on: print_plan(plan.lines(), on))
        return
    for text in run.done:
        console.print(escape(text), soft_wrap=True)
    print_notes(plan.notes)
    if plan.verb in (LinkOperation.PROMOTE, LinkOperation.FAILOVER, LinkOperation.REVERSE):
        show_writers(context.topology, plan, console)


def choose_links(
    context: Context, link: str | None, source: str | None, target: str | None, scope: LinkScope, *, all_: bool
) -> Sequence[Link]:
    if not all_:
        return [find_link(context.topology, link, source, target)]
    if link or source or target:
        raise OptionError("LINK and --all exclude each other", hint="give LINK, or --all")
    links = [each for each in context.topology.directed_links() if may_have(each, scope)]
    if not links:
        raise ConfigurationError(f"no link carries {scope}", hint="fairlead link list shows what each carries")
    return links


def access_of(context: Context) -> AbstractAsyncContextManager[ClusterAccess]:
    return open_access(running_kafka(context), context.folder)


_STATES: Final = {"mirroring": "green", "closed": "dim", "stopped": "dim", "unavailable": "bold red"}
_OPEN: Final = ("connecting", "mirroring", "unavailable")  # the policy allows the link
_NAMED: Final = 2  # streams to name in the list; of the rest show the number


def show_list(links: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print every link in a line."""
    open_by = {each["link"]: each["berth"] for each in links if each.get("berth") and each["state"] in _OPEN}
    headings = ("link", "policy", "state", *(("open by",) if open_by else ()), "logs", "lag", "paused", "in trouble")
    table = Table(*headings, box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[-4:-2]:
        column.justify = "right"
    for link in links:
        trouble = ", ".join(f"{count} {state}" for state, count in link["in_trouble"].items())
        table.add_row(
            escape(link["link"]),
            escape(_policy(link["policy"])),
            _state(link["state"]),
            *((escape(open_by.get(link["link"], "")),) if open_by else ()),
            number(link["logs"]),
            number(link["lag"]),
            _paused(link),
            f"[red]{escape(trouble)}[/]" if trouble else "",
        )
    console.print(table)
    for site, error in {link["to"]: link["orders_error"] for link in links if link["orders_error"]}.items():
        console.print(f"[yellow]orders of {site}:[/] {escape(error)}", soft_wrap=True)


def show_one(link: Mapping[str, Any], console: Console) -> None:
    """Print one link with all its known state."""
    console.print(f"[bold]{escape(link['link'])}[/] {_state(link['state'])} {escape(link['cause'])}", soft_wrap=True)
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    policy = link["policy"]
    for stream, taken in policy["streams"].items():
        which = taken if isinstance(taken, str) else ", ".join(taken)
        urgent = policy["priority"].get(stream)
        table.add_row("stream", escape(f"{stream}: {which}" + (f", priority {urgent}" if urgent else "")))
    table.add_row("used", escape(policy["when"] + (f": {link['berth']}" if link.get("berth") else "")))
    table.add_row("rate", "unlimited" if policy["rate"] is None else format_rate(policy["rate"]))
    table.add_row("starts at", escape(policy["start"]))
    table.add_row("groups", escape(", ".join(policy["groups"]) or "none follow"))
    table.add_row("logs", f"{number(link['logs'])}, {number(link['followed'])} followed, lag {number(link['lag'])}")
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
    for text in _consumer_groups(link.get("consumer_groups")):
        console.print(escape(text), soft_wrap=True)
    if link["checks"] is None:
        console.print(f"[yellow]the ends were not checked:[/] {escape(str(link['checks_error']))}", soft_wrap=True)
    for finding in link["checks"] or ():
        style = "red" if finding["severity"] == Severity.BREAKS else "yellow"
        what = f"{finding['subject']} at {finding['site']}: {finding['setting']} is {finding['found']}, needed is "
        console.print(f"[{style}]{finding['severity']}[/] {escape(what + finding['needed'])}", soft_wrap=True)
        console.print(f"  why: {escape(finding['why'])}", soft_wrap=True)
        console.print(f"  [bold]what to do:[/] {escape(finding['change'])}", soft_wrap=True)


def _consumer_groups(shown: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a line for each consumer group that follows a link, and one for each of its logs in a special state."""
    if shown is None:
        return
    if shown["state"] == ELSEWHERE:
        yield "a replicator on another machine copies its consumer groups: it leads the members"
    if shown["cause"]:
        yield f"its consumer groups are {shown['state']}: {shown['cause']}"
    for name, group in shown["groups"].items():
        yield f"group {name}: {group['state']}, behind: {group['behind']}" + (
            f": {group['reason']}" if group["reason"] else ""
        )
        for log, state in group["not_plain"].items():
            yield f"  {log}: {state}"
    for pattern in shown["unmatched"]:
        yield f"group {pattern}: no such group at the source"


def show_writers(topology: Topology, plan: LinkPlan, console: Console) -> None:
    """Print who may write to the released logs, by the topology's produce expressions, and missing permissions."""
    for text in writers(topology, plan):
        console.print(escape(text), soft_wrap=True)


def writers(topology: Topology, plan: LinkPlan) -> list[str]:
    """Return one sentence per stream: who may write to its released logs, or which permission is missing."""
    if plan.verb not in (LinkOperation.PROMOTE, LinkOperation.FAILOVER, LinkOperation.REVERSE):
        return []
    site = next(step.site for step in plan.steps if isinstance(step, WriteLinkOrders))
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
    rate = "" if policy["rate"] is None else f", {format_rate(policy['rate'])}"
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


app = typer.Typer(
    help="Show links and their lag; pause, resume, promote, fail over, reverse.",
    epilog="A link is named 'SOURCE->TARGET' (in quotes: the shell would write to a file), or by --from and --to. "
    "Commands that change something show their plan and ask; --yes does not ask, --dry-run only shows.\n\n"
    "Example: fairlead link list",
    no_args_is_help=True,
)

LinkArgument = Annotated[str | None, typer.Argument(help="The link: 'SOURCE->TARGET', in quotes.", metavar="LINK")]
FromOption = Annotated[
    str | None, typer.Option("--from", help="The link's source.", metavar="SITE", autocompletion=complete_site)
]
ToOption = Annotated[
    str | None, typer.Option("--to", help="The link's target.", metavar="SITE", autocompletion=complete_site)
]
StreamOption = Annotated[str | None, typer.Option("--stream", help="Every topic of this stream.")]
LogOption = Annotated[str | None, typer.Option("--topic", help="This topic, with all its partitions.", metavar="TOPIC")]
AllOption = Annotated[bool, typer.Option("--all", help="Every link of the topology.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept with the order.")]


@app.command("list")
def list_(topology: TopologyOption = DEFAULT_TOPOLOGY, as_json: JsonOption = False) -> None:
    """List links: policy, state, topics, lag, pauses, trouble.

    Example: fairlead link list
    """
    context = open_topology(topology)

    async def gather() -> list[dict[str, Any]]:
        async with access_of(context) as access:
            return await list_links(context.topology, access)

    found = asyncio.run(gather())
    emit(found, as_json=as_json, render=lambda: show_list(found, console))


@app.command()
def describe(
    link: LinkArgument = None,
    source: FromOption = None,
    target: ToOption = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Show one link: policy, both ends, and every topic that is not mirrored.

    Checks whether both ends answer and have the settings that the link needs. Shows the cause of each log's trouble and
    what to do, and how far behind each consumer group is. Ends with 4 when an end does not answer, with 1 when a check
    finds that copies cannot be equal.

    Example: fairlead link describe 'tokyo->sydney'
    """
    context = open_topology(topology)
    chosen = find_link(context.topology, link, source, target)

    async def gather() -> dict[str, Any]:
        async with access_of(context) as access:
            return await describe_link(context.topology, context.resolver, access, chosen)

    found = asyncio.run(gather())
    emit(found, as_json=as_json, render=lambda: show_one(found, console))
    if not (found["source"]["reachable"] and found["target"]["reachable"]):
        raise typer.Exit(ExitCode.UNAVAILABLE)
    if any(finding["severity"] == Severity.BREAKS for finding in found["checks"] or ()):
        raise typer.Exit(ExitCode.FAILED)


def _pausing(verb: LinkOperation, text: str) -> Callable[..., None]:
    def command(
        link: LinkArgument = None,
        source: FromOption = None,
        target: ToOption = None,
        stream: StreamOption = None,
        log: LogOption = None,
        all_: AllOption = False,
        reason: ReasonOption = "",
        dry_run: DryRunOption = False,
        yes: YesOption = False,
        wait: WaitOption = WAIT,
        topology: TopologyOption = DEFAULT_TOPOLOGY,
        as_json: JsonOption = False,
    ) -> None:
        consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
        context, scope = open_topology(topology), LinkScope(stream, log)
        links = choose_links(context, link, source, target, scope, all_=all_)
        every = verb is LinkOperation.RESUME and all_ and scope.is_whole
        run_verb(context, verb, links, scope, reason=reason, consent=consent, wait=wait, as_json=as_json, every=every)

    command.__doc__ = text
    return command


app.command("pause")(
    _pausing(
        LinkOperation.PAUSE,
        """Stop copying over one link, or one stream or topic of it.

        Nothing is lost: copying resumes where it stopped, as long as the source keeps its records.

        Example: fairlead link pause 'tokyo->sydney' --stream containers --reason 'satellite is down' --yes
        """,
    )
)
app.command("resume")(
    _pausing(
        LinkOperation.RESUME,
        """Resume copying.

        Name the same link, stream or log that was paused; --all ends every pause on every link.

        Example: fairlead link resume 'tokyo->sydney' --stream containers --yes
        """,
    )
)


def _about_logs(verb: LinkOperation, text: str) -> Callable[..., None]:
    def command(
        link: LinkArgument = None,
        source: FromOption = None,
        target: ToOption = None,
        stream: StreamOption = None,
        log: LogOption = None,
        reason: ReasonOption = "",
        dry_run: DryRunOption = False,
        yes: YesOption = False,
        wait: WaitOption = WAIT,
        topology: TopologyOption = DEFAULT_TOPOLOGY,
        as_json: JsonOption = False,
    ) -> None:
        consent = Consent(yes=yes, dry_run=dry_run, as_json=as_json)
        context = open_topology(topology)
        if stream is None and log is None:
            raise OptionError(f"{verb} which topics?", hint="--topic TOPIC, or --stream STREAM for all of its topics")
        links = [find_link(context.topology, link, source, target)]
        run_verb(
            context, verb, links, LinkScope(stream, log), reason=reason, consent=consent, wait=wait, as_json=as_json
        )

    command.__doc__ = text
    return command


app.command("promote")(
    _about_logs(
        LinkOperation.PROMOTE,
        """Make mirror topics writable at the link's target, with nothing missing.

        Both ends must be equal, and nobody may write at the source: stop its writers first. Refused when the source
        cannot be reached, when the target lacks a record, and for logs whose name or custody decides who writes them.

        Example: fairlead link promote 'old->new' --topic orders.europe --yes
        """,
    )
)
app.command("failover")(
    _about_logs(
        LinkOperation.FAILOVER,
        """Make mirror topics writable at the link's target at once, even without the source.

        Says from which offset on the source may have records that the target lacks.

        Example: fairlead link failover 'old->new' --stream orders --yes
        """,
    )
)
app.command("reverse")(
    _about_logs(
        LinkOperation.REVERSE,
        """Swap the direction: the target writes, the source mirrors it.

        Promotes logs at the link's target and lets its source follow from there on. Needs a link the other way that
        carries them, and both ends equal and quiet.

        Example: fairlead link reverse 'old->new' --topic orders.europe --yes
        """,
    )
)
app.command("restore")(
    _about_logs(
        LinkOperation.RESTORE,
        """Undo a promotion or failover: the target mirrors again.

        Refused when the target has records that the source lacks.

        Example: fairlead link restore 'old->new' --topic orders.europe --yes
        """,
    )
)
app.command()(resolve)
