"""``fairlead link``: what links do, and what operators do with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fairlead.commands import linkshow
from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption, YesOption, open_topology
from fairlead.commands.linkrun import choose_links, describe_link, ground_of, run_verb
from fairlead.commands.resolve import resolve
from fairlead.console import console, emit
from fairlead.errors import ConfigurationError, ExitCode
from replication.foreign import Severity
from replication.verbs.choose import Scope, find_link
from replication.verbs.execute import WAIT
from replication.verbs.plan import Verb
from replication.verbs.report import list_links

app = typer.Typer(
    help="Links: their state, pause and resume, promote, failover, reverse.",
    epilog="A link is named 'SOURCE->TARGET' (in quotes: the shell would write to a file), or by --from and --to. What "
    "changes something shows its plan first and does it with --yes.",
    no_args_is_help=True,
)

LinkArgument = Annotated[str | None, typer.Argument(help="The link: 'SOURCE->TARGET', in quotes.", metavar="LINK")]
FromOption = Annotated[str | None, typer.Option("--from", help="The link's source.", metavar="SITE")]
ToOption = Annotated[str | None, typer.Option("--to", help="The link's target.", metavar="SITE")]
StreamOption = Annotated[str | None, typer.Option("--stream", help="Every log of this stream.")]
LogOption = Annotated[str | None, typer.Option("--log", help="This log: a topic, with all its partitions.")]
AllOption = Annotated[bool, typer.Option("--all", help="Every link of the topology.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept with the order.")]
WaitOption = Annotated[
    float,
    typer.Option("--wait", help="Seconds to wait for records on their way, and for the replicator to act.", min=0),
]


@app.command("list")
def list_(topology: TopologyOption = DEFAULT_TOPOLOGY, as_json: JsonOption = False) -> None:
    """Every link: policy, state, logs, lag, whether it is paused, logs in trouble.

    Example: fairlead link list
    """
    context = open_topology(topology)

    async def gather() -> list[dict[str, Any]]:
        async with ground_of(context) as ground:
            return await list_links(context.topology, ground)

    found = asyncio.run(gather())
    emit(found, as_json=as_json, render=lambda: linkshow.show_list(found, console))


@app.command()
def describe(
    link: LinkArgument = None,
    source: FromOption = None,
    target: ToOption = None,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """One link: policy, both ends, and every log that is not mirrored.

    Tells whether both ends answer and are fit for it, and for each log in trouble its cause and what to do. Ends with
    4 when an end does not answer, 1 when a check finds that copies cannot be equal.

    Example: fairlead link describe 'tokyo->sydney'
    """
    context = open_topology(topology)
    found = asyncio.run(describe_link(context, find_link(context.topology, link, source, target)))
    emit(found, as_json=as_json, render=lambda: linkshow.show_one(found, console))
    if not (found["source"]["reachable"] and found["target"]["reachable"]):
        raise typer.Exit(ExitCode.UNAVAILABLE)
    if any(finding["severity"] == Severity.BREAKS for finding in found["checks"] or ()):
        raise typer.Exit(ExitCode.FAILED)


def _pausing(verb: Verb, text: str) -> Callable[..., None]:
    def command(
        link: LinkArgument = None,
        source: FromOption = None,
        target: ToOption = None,
        stream: StreamOption = None,
        log: LogOption = None,
        all_: AllOption = False,
        reason: ReasonOption = "",
        yes: YesOption = False,
        wait: WaitOption = WAIT,
        topology: TopologyOption = DEFAULT_TOPOLOGY,
        as_json: JsonOption = False,
    ) -> None:
        context, scope = open_topology(topology), Scope(stream, log)
        links = choose_links(context, link, source, target, scope, all_=all_)
        every = verb is Verb.RESUME and all_ and scope.is_whole
        run_verb(context, verb, links, scope, reason=reason, yes=yes, wait=wait, as_json=as_json, every=every)

    command.__doc__ = text
    return command


app.command("pause")(
    _pausing(
        Verb.PAUSE,
        """Stop fetching over a link, or one stream or log over it.

        It stays so until it is resumed, whatever restarts. Nothing is lost by it while the source keeps its records.

        Example: fairlead link pause 'tokyo->sydney' --stream containers --reason 'satellite is down' --yes
        """,
    )
)
app.command("resume")(
    _pausing(
        Verb.RESUME,
        """End a pause.

        Name the same link, stream or log that was paused; --all ends every pause on every link.

        Example: fairlead link resume 'tokyo->sydney' --stream containers --yes
        """,
    )
)


def _about_logs(verb: Verb, text: str) -> Callable[..., None]:
    def command(
        link: LinkArgument = None,
        source: FromOption = None,
        target: ToOption = None,
        stream: StreamOption = None,
        log: LogOption = None,
        reason: ReasonOption = "",
        yes: YesOption = False,
        wait: WaitOption = WAIT,
        topology: TopologyOption = DEFAULT_TOPOLOGY,
        as_json: JsonOption = False,
    ) -> None:
        context = open_topology(topology)
        if stream is None and log is None:
            raise ConfigurationError(f"{verb} which logs?", hint="--log LOG, or --stream STREAM for every log of it")
        links = [find_link(context.topology, link, source, target)]
        run_verb(context, verb, links, Scope(stream, log), reason=reason, yes=yes, wait=wait, as_json=as_json)

    command.__doc__ = text
    return command


app.command("promote")(
    _about_logs(
        Verb.PROMOTE,
        """Make logs writable at the link's target, with nothing missing.

        Both ends must be equal and quiet. Refused when the source cannot be reached, when anything is missing here,
        and for logs whose writer follows
        from their name or moves by custody. Stop the writers at the source first.

        Example: fairlead link promote 'old->new' --log orders.europe --yes
        """,
    )
)
app.command("failover")(
    _about_logs(
        Verb.FAILOVER,
        """Make logs writable at the link's target at once, even without its source.

        Tells from which offset on the source may have records that this site has not.

        Example: fairlead link failover 'old->new' --stream orders --yes
        """,
    )
)
app.command("reverse")(
    _about_logs(
        Verb.REVERSE,
        """Swap the direction: the target writes, the source follows.

        Promotes logs at the link's target and lets its source follow from there on. Needs a link the other way that
        carries them, and both ends equal and quiet.

        Example: fairlead link reverse 'old->new' --log orders.europe --yes
        """,
    )
)
app.command("restore")(
    _about_logs(
        Verb.RESTORE,
        """Take a promotion or failover back: the target follows again.

        Refused when it has records that the source has not.

        Example: fairlead link restore 'old->new' --log orders.europe --yes
        """,
    )
)
app.command()(resolve)
