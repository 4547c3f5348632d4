"""``fairlead audit``: check whether two sites' logs are identical."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from fairlead.cli.commands.context import JsonOption, TopologyOption, complete_site
from fairlead.cli.console import console, emit, errors
from fairlead.errors import ExitCode, OptionError, UnknownNameError
from replication.audit import Audit, AuditDifference, Marks, compare, compare_records, mark_file
from shore.report.wording import count
from topologies.context import DEFAULT_TOPOLOGY, Context, open_topology
from topologies.model import check_sites
from topologies.users import ADMIN
from topologies.values import parse_rate

_NAMED: Final = 5  # logs


def audit(
    a: Annotated[str, typer.Argument(help="A site.", metavar="SITE", autocompletion=complete_site)],
    b: Annotated[str, typer.Argument(help="Another site.", metavar="SITE", autocompletion=complete_site)],
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    stream: Annotated[list[str] | None, typer.Option("--stream", help="Only this stream; may be repeated.")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Compare checksums of stored batches; compare records only where they differ."),
    ] = False,
    rate: Annotated[
        str | None, typer.Option(help="Read no faster than this from each site, such as 8MB/s or '64 kbit/s'.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip what the last audit of these sites found equal.")
    ] = False,
    user: Annotated[str, typer.Option(help="Kafka user that may read the topics at both sites.")] = ADMIN,
    as_json: JsonOption = False,
) -> None:
    """Compare two sites' copies of every shared topic, offset by offset.

    Shows each topic's first differing offset with both records, and then ends with 1. Names topics that only one site
    has although links carry them. After Ctrl-C, continue with --resume.

    Example: fairlead audit tokyo singapore --stream containers
    """
    context = open_topology(topology)
    _check(context, a, b, stream or ())
    bytes_per_second = _rate(rate)
    ends = context.resolver.kafka(a, user), context.resolver.kafka(b, user)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("comparing", total=None)

        def show(done: int, of: int) -> None:
            progress.update(task, completed=done, total=of)

        work = compare if quick else compare_records
        mode = "quick" if quick else "full"
        running = work(
            context.topology,
            *ends,
            streams=stream,
            rate=bytes_per_second,
            marks=Marks(mark_file(context.folder, mode, a, b)),
            resume=resume,
            on_progress=show,
        )
        try:
            result = asyncio.run(running)
        except KeyboardInterrupt:
            errors.print("stopped; the same command with --resume skips what is already compared")
            raise
    emit(result.as_json(), as_json=as_json, render=lambda: _render(result))
    if not result.ok:
        raise typer.Exit(ExitCode.FAILED)


def _check(context: Context, a: str, b: str, streams: list[str] | tuple[str, ...]) -> None:
    check_sites(context.topology, (a, b))
    for name in streams:
        if name not in context.topology.streams:
            raise UnknownNameError("stream", name, context.topology.streams)
    if a == b:
        raise OptionError(f"{a} is always equal to itself", hint="name two different sites")


def _rate(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_rate(text)
    except ValueError as error:
        raise OptionError(f"--rate {text}: {error}", hint="for example --rate 8MB/s", rate=text) from error


def _render(result: Audit) -> None:
    table = Table("", "logs", box=None, pad_edge=False)
    table.add_row("compared", str(result.compared))
    table.add_row("differing", f"[{'green' if result.ok else 'bold red'}]{len(result.differences)}")
    table.add_row("one site has more", str(result.behind))
    if result.compacted:
        table.add_row("one site has compacted more", str(result.compacted))
    if result.resumed:
        table.add_row("compared before, in whole or in part", str(result.resumed))
    table.add_row("no offset in common, not compared", str(len(result.apart)))
    table.add_row(f"only at {result.a}", str(len(result.only_a)))
    table.add_row(f"only at {result.b}", str(len(result.only_b)))
    console.print(table)
    batches = f" in {result.batches} batches" if result.batches else ""
    rebuilt = f", {result.rebuilt} ranges of them compared by records" if result.rebuilt else ""
    console.print(f"{result.records} records{batches}{rebuilt}")
    _render_missing(result.a, result.b, result.missing_a)
    _render_missing(result.b, result.a, result.missing_b)
    for each in result.differences:
        _render_difference(result, each)


def _render_missing(site: str, other: str, logs: list[str]) -> None:
    if logs:
        more = f" and {len(logs) - _NAMED} more (--json)" if len(logs) > _NAMED else ""
        names = ", ".join(map(escape, logs[:_NAMED]))
        console.print(
            f"[yellow]{site} lacks {count(len(logs), 'log')} that links from {other} carry:[/] {names}{more}",
            soft_wrap=True,
        )


def _render_difference(result: Audit, each: AuditDifference) -> None:
    console.print(f"\n[bold red]{escape(each.log)}[/] differs first at offset {each.offset}:")
    table = Table("", result.a, result.b, box=None, pad_edge=False)
    for field in dict.fromkeys([*(each.a or {}), *(each.b or {})]):
        one, other = (_text(side, field) for side in (each.a, each.b))
        style = "" if one == other else "red"
        table.add_row(field, escape(one), escape(other), style=style)
    console.print(table)


def _text(side: dict[str, Any] | None, field: str) -> str:
    """Return a field for display; ``-`` where a site has nothing at the offset, ``null`` where the record has none."""
    if side is None:
        return "-"
    found = side[field]
    if field == "headers":
        return ", ".join(f"{name}={'null' if content is None else content}" for name, content in found)
    return "null" if found is None else str(found)
