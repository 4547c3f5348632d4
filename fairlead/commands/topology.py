"""``fairlead topology``: check a topology, draw it, list those that come with Fairlead."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fairlead.commands.context import DEFAULT_TOPOLOGY, JsonOption
from fairlead.console import console, emit, errors
from fairlead.errors import ConfigurationError
from topologies.drawing import draw
from topologies.graph import as_data
from topologies.load import load, shipped

app = typer.Typer(help="Check, draw and list topologies: who exists, and what may go where.", no_args_is_help=True)

TopologyArgument = Annotated[
    str,
    typer.Argument(metavar="[NAME|FILE]", envvar="FAIRLEAD_TOPOLOGY", help="A shipped topology's name or a YAML file."),
]


@app.command()
def check(topology: TopologyArgument = DEFAULT_TOPOLOGY, json: JsonOption = False) -> None:
    """Check a topology with its local file and environment; list every mistake (exit code 3).

    Example: fairlead topology check my-fleet.yaml
    """
    found = load(topology)
    data = {
        "topology": found.name,
        "ok": True,
        "sites": len(found.sites),
        "streams": len(found.streams),
        "links": len(found.directed_links()),
    }
    counts = f"{data['sites']} sites, {data['streams']} streams, {data['links']} links in one direction each"
    emit(data, as_json=json, render=lambda: console.print(f"[green]ok[/]  {found.name}: {counts}"))


@app.command()
def show(
    topology: TopologyArgument = DEFAULT_TOPOLOGY,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write a picture to this file.", dir_okay=False)] = None,
    json: JsonOption = False,
) -> None:
    """Draw a topology in the terminal; with --svg also as a picture.

    Example: fairlead topology show big-blue --svg big-blue.svg
    """
    found = load(topology)
    if svg is not None:
        from topologies.picture import svg as picture  # drawing libraries take a second to load

        _write(svg, picture(found))
        errors.print(f"wrote {svg}", markup=False, soft_wrap=True)
    emit(as_data(found), as_json=json, render=lambda: console.print(draw(found)))


@app.command("list")
def list_(json: JsonOption = False) -> None:
    """List the topologies that come with Fairlead.

    Example: fairlead topology list
    """
    # Without the environment: a variable for one topology would be a mistake in all the others.
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


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "give a file in a folder that exists and can be written"
        raise ConfigurationError(f"cannot write {file}: {error.strerror}", hint=hint) from None
