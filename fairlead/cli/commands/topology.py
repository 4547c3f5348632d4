"""``fairlead topology``: check a topology, draw it, list those that come with Fairlead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from rich.table import Table

from fairlead.cli.commands.context import JsonOption, complete_topology, shared_data
from fairlead.cli.console import console, emit, output
from fairlead.names import LogName
from replication.berths import port_places
from shore.report.wording import count
from topologies.context import DEFAULT_TOPOLOGY
from topologies.drawing.text import as_data, draw, mermaid
from topologies.loader.load import load, shipped
from topologies.model import ENDS, InsertPoint, SiteKind, Topology
from topologies.retention import KeeperGraph
from topologies.values import FOREVER

app = typer.Typer(
    help="Check, draw and list topologies.", epilog="Example: fairlead topology show big-blue", no_args_is_help=True
)

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

    Warns of sites that keep old records for another site which cannot confirm that it has them, of ledgers that a
    retention cuts, of streams that no link carries, of ports with berthed links whose place is not known, and of data
    on this machine that seem to be those of another topology with the same name.

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
    """Return what is allowed and probably not meant: records that are never deleted, because of a missing way back;
    ledgers that are cut; streams that links could carry, and none does; UN/LOCODEs of no known port."""
    return [*_never_deleted(topology), *_cut_ledgers(topology), *_staying(topology), *_nowhere(topology)]


def _never_deleted(topology: Topology) -> list[str]:
    streams: dict[tuple[str, str], list[str]] = {}
    for each in KeeperGraph(topology).unheard():
        streams.setdefault((each.site, each.keeper), []).append(each.stream)
    return [
        f"{site} never deletes old records of {', '.join(names)}: {keeper} keeps them longer, and what it confirms "
        f"does not reach {site}; add ends: [{keeper}] to the links from {keeper} to {site}"
        for (site, keeper), names in streams.items()
    ]


def _cut_ledgers(topology: Topology) -> Iterator[str]:
    """A site that starts again reads the ledgers from their beginning."""
    if not topology.moving_streams or "custody" not in topology.streams:
        return
    for name, site in topology.sites.items():
        has_copies = any("custody" in link.streams for link in topology.links_to(name))
        kept = site.retention_of("custody") if has_copies else site.own_retention_of("custody")
        if site.kind is not SiteKind.CUSTOMER and kept != FOREVER:
            yield (
                f"{name} deletes old records of custody, and with them who holds a container that has not moved since; "
                "add custody: forever to its retention"
            )


_OF_SHIPS: Final = ("custody", "alerts", "events", "ships", "strays")
_MAY_STAY: Final = (ENDS, "deadletters", "bookings")


def _staying(topology: Topology) -> Iterator[str]:
    links = topology.directed_links()
    if not links:
        return
    carried = {stream for link in links for stream in link.streams}
    unwritten = set[str]() if topology.moving_streams else {"custody", "strays"}
    if all(site.kind is not SiteKind.SHIP for site in topology.sites.values()):
        unwritten.add("ships")
    for name, stream in topology.streams.items():
        # Feeds may be read where shore writes them.
        if not (name in carried | unwritten or name in _MAY_STAY or stream.insert_point is InsertPoint.SHORE):
            yield f"no link carries stream {name}, so its records stay where they are written"
    for site, spec in topology.sites.items():
        if spec.kind is SiteKind.SHIP:
            own = {
                name: f"{spec.imo}.location" if name == "ships" else site for name in carried.intersection(_OF_SHIPS)
            }
            leaving = {
                stream
                for link in links
                if link.from_ == site
                for stream in link.streams
                if stream not in own or link.takes(LogName(stream, own[stream]))
            }
            kept = [each for each in (*_OF_SHIPS, *topology.moving_streams) if each in carried - leaving - unwritten]
            if kept:
                yield f"no link carries {', '.join(kept)} of {site} away from the ship"


def _nowhere(topology: Topology) -> Iterator[str]:
    """A mistyped UN/LOCODE has a right form, and so is no mistake."""
    berths = {end for link in topology.directed_links() if link.when == "berthed" for end in (link.from_, link.to)}
    known = port_places(topology)
    for name, site in topology.sites.items():
        if name in berths and site.kind is not SiteKind.SHIP and name not in known:
            code = f"{site.unlocode} is not the UN/LOCODE of a port" if site.unlocode else "it has no UN/LOCODE"
            yield (
                f"Fairlead does not know where {name} lies ({code}), so a ship's position does not open its berthed "
                f"links; {'correct' if site.unlocode else 'set'} sites.{name}.unlocode, or set sites.{name}.position"
            )


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
