"""``fairlead topology``: check a topology, draw it, list those that come with Fairlead."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fairlead.cli.commands.context import JsonOption, complete_topology, shared_data
from fairlead.cli.console import console, emit, output
from shore.report.wording import count
from topologies.context import DEFAULT_TOPOLOGY
from topologies.drawing.text import as_data, draw, mermaid
from topologies.loader.load import load, shipped
from topologies.model import Topology
from topologies.retention import KeeperGraph

app = typer.Typer(help="Check, draw and list topologies.", no_args_is_help=True)

TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="[NAME|FILE]",
        envvar="FAIRLEAD_TOPOLOGY",
        autocompletion=complete_topology,
        help="A shipped topology's name or a YAML file.",
    ),
]


@app.command()
def check(topology: TopologyArgument = DEFAULT_TOPOLOGY, json: JsonOption = False) -> None:
    """Check a topology with its local file and environment; list every mistake (exit code 3).

    Warns of sites that keep old records for another site which cannot confirm that it has them, and of data on this
    machine that seem to be those of another topology with the same name.

    Example: fairlead topology check my-fleet.yaml
    """
    found = load(topology)
    data: dict[str, Any] = {
        "topology": found.name,
        "ok": True,
        "sites": len(found.sites),
        "streams": len(found.streams),
        "links": len(found.directed_links()),
        "warnings": [*warnings(found), *shared_data(found, topology)],
    }
    counts = ", ".join(count(data[f"{what}s"], what) for what in ("site", "stream", "link")) + " in one direction each"

    def render() -> None:
        console.print(f"[green]ok[/]  {found.name}: {counts}")
        for each in data["warnings"]:
            console.print(f"[yellow]warning:[/] {escape(each)}", soft_wrap=True)

    emit(data, as_json=json, render=render)


def warnings(topology: Topology) -> list[str]:
    """Return what is allowed and probably not meant: records that are never deleted, because of a missing way back."""
    streams: dict[tuple[str, str], list[str]] = {}
    for each in KeeperGraph(topology).unheard():
        streams.setdefault((each.site, each.keeper), []).append(each.stream)
    return [
        f"{site} never deletes old records of {', '.join(names)}: {keeper} keeps them longer, and what it confirms "
        f"does not reach {site}; add ends: [{keeper}] to the links from {keeper} to {site}"
        for (site, keeper), names in streams.items()
    ]


@app.command()
def show(
    topology: TopologyArgument = DEFAULT_TOPOLOGY,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the graph as Mermaid text.")] = False,
    as_asyncapi: Annotated[
        bool, typer.Option("--asyncapi", help="Print topics, messages and access as an AsyncAPI 3.0 document, in JSON.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Draw a topology in the terminal, or print it as Mermaid text, which GitHub and many editors draw.

    With --asyncapi, print what programs need to know about its topics. The document names customers and users, and has
    no password.

    Example: fairlead topology show big-blue --mermaid
    """
    found = load(topology)
    if as_mermaid + as_asyncapi + json > 1:
        raise typer.BadParameter("--mermaid, --asyncapi and --json exclude each other")
    if as_asyncapi:
        from fairlead.streams.asyncapi import asyncapi  # imports Kafka's clients

        emit(asyncapi(found), as_json=True, render=lambda: None)
        return
    if as_mermaid:
        output.write(mermaid(found))
        return
    emit(as_data(found), as_json=json, render=lambda: console.print(draw(found)))


@app.command("list")
def list_(json: JsonOption = False) -> None:
    """List the topologies that come with Fairlead.

    Example: fairlead topology list
    """
    # Ignore the environment: a variable meant for one topology would be a mistake in all the others.
    found = [load(name, env={}) for name in shipped()]
    data = [{"name": t.name, "title": t.title, "sites": list(t.sites), "description": t.description} for t in found]

    def render() -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column in ("Name", "Title", "Sites"):
            table.add_column(column)
        for topology in found:
            table.add_row(f"[bold]{topology.name}[/]", topology.title, ", ".join(topology.sites))
        console.print(table)

    emit(data, as_json=json, render=render)
