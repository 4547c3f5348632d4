"""``fairlead audit``: are two sites' logs the same?"""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption, TopologyOption, open_topology
from fairlead.console import console, emit, errors
from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import ConfigurationError, ExitCode, UnknownNameError
from fairlead.wire.cluster import Cluster
from replication.audit import Audit, Difference, OnProgress, compare, plan_audit
from replication.audit_full import compare_records
from topologies.model import Topology
from topologies.users import ADMIN


def audit(
    a: Annotated[str, typer.Argument(help="A site.", metavar="SITE")],
    b: Annotated[str, typer.Argument(help="Another site.", metavar="SITE")],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    full: Annotated[
        bool, typer.Option("--full", help="Compare record by record through an independent client: slower.")
    ] = False,
    stream: Annotated[list[str] | None, typer.Option("--stream", help="Only this stream; may be repeated.")] = None,
    user: Annotated[str, typer.Option(help="Kafka user that may read the logs at both sites.")] = ADMIN,
    as_json: JsonOption = False,
) -> None:
    """Compare every log that two sites have in common, over the offsets that both have.

    Quick by default: offsets and checksums of the stored batches. Ends with 1 when something differs, and shows the
    first difference of each log.

    Example: fairlead audit tokyo singapore
    """
    context = open_topology(topology)
    for site in (a, b):
        if site not in context.topology.sites:
            raise UnknownNameError("site", site, context.topology.sites)
    for name in stream or ():
        if name not in context.topology.streams:
            raise UnknownNameError("stream", name, context.topology.streams)
    if a == b:
        raise ConfigurationError(f"{a} is always equal to itself", hint="name two different sites")
    ends = context.directory.kafka(a, user), context.directory.kafka(b, user)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("comparing", total=None)

        def show(done: int, of: int) -> None:
            progress.update(task, completed=done, total=of)

        work = _full if full else _quick
        result = asyncio.run(work(context.topology, *ends, streams=stream, on_progress=show))
    emit(result.as_json(), as_json=as_json, render=lambda: _render(result))
    if not result.ok:
        raise typer.Exit(ExitCode.FAILED)


async def _quick(
    topology: Topology, a: KafkaEndpoint, b: KafkaEndpoint, *, streams: list[str] | None, on_progress: OnProgress
) -> Audit:
    return await compare(topology, a, b, streams=streams, on_progress=on_progress)


async def _full(
    topology: Topology, a: KafkaEndpoint, b: KafkaEndpoint, *, streams: list[str] | None, on_progress: OnProgress
) -> Audit:
    async with await Cluster.open(a, client_id="fairlead-audit") as at_a:
        async with await Cluster.open(b, client_id="fairlead-audit") as at_b:
            plan = await plan_audit(topology, at_a, at_b, streams)
    result = Audit(
        a.site,
        b.site,
        behind=plan.behind,
        apart=list(plan.apart),
        only_a=list(plan.only_a),
        only_b=list(plan.only_b),
    )
    return await asyncio.to_thread(compare_records, result, a, b, plan.common, on_progress=on_progress)


def _render(result: Audit) -> None:
    table = Table("", "logs", box=None, pad_edge=False)
    table.add_row("compared", str(result.compared))
    table.add_row("differing", f"[{'green' if result.ok else 'bold red'}]{len(result.differences)}")
    table.add_row("one site has more", str(result.behind))
    table.add_row("no offset in common, not compared", str(len(result.apart)))
    table.add_row(f"only at {result.a}", str(len(result.only_a)))
    table.add_row(f"only at {result.b}", str(len(result.only_b)))
    console.print(table)
    console.print(f"{result.records} records" + (f" in {result.batches} batches" if result.batches else ""))
    for each in result.differences:
        _render_difference(result, each)


def _render_difference(result: Audit, each: Difference) -> None:
    console.print(f"\n[bold red]{escape(each.log)}[/] differs first at offset {each.offset}:")
    table = Table("", result.a, result.b, box=None, pad_edge=False)
    for field in dict.fromkeys([*(each.a or {}), *(each.b or {})]):
        one, other = (str((side or {}).get(field, "-")) for side in (each.a, each.b))
        style = "" if one == other else "red"
        table.add_row(field, escape(one), escape(other), style=style)
    console.print(table)
