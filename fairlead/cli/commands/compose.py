"""``fairlead compose``: write a topology as a Compose project."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from compose.fleet import plan
from compose.render import render as write_project
from fairlead.cli.commands.context import JsonOption, TopologyOption, writing
from fairlead.cli.console import console, emit
from shore.report.wording import count
from topologies.context import DEFAULT_TOPOLOGY
from topologies.loader.load import load, locate

app = typer.Typer(
    help="Render a topology as a Docker Compose project.",
    epilog="Example: fairlead compose render my-fleet",
    no_args_is_help=True,
)


@app.callback()
def compose() -> None:
    """Typer makes a group of one command only if it has this."""


@app.command()
def render(
    out: Annotated[Path, typer.Argument(help="The project's folder; created if missing.", metavar="FOLDER")],
    brokers: Annotated[int, typer.Option(help="Brokers of a port, headquarters or data centre: 1 or 3.")] = 3,
    plaintext: Annotated[bool, typer.Option("--plaintext", help="Without TLS.")] = False,
    links: Annotated[
        bool,
        typer.Option("--links", help="Route replicators through proxies, so that voyages can delay and cut links."),
    ] = False,
    topology: TopologyOption = DEFAULT_TOPOLOGY,
    as_json: JsonOption = False,
) -> None:
    """Write a Compose project: services, broker settings, topology, secrets, certificates.

    Rendering again replaces everything except secrets and certificates.

    Example: fairlead compose render build/compose --topology big-blue
    """
    if brokers not in (1, 3):
        raise typer.BadParameter("1 or 3", param_hint="--brokers")
    fleet = plan(load(topology, env={}, local=False), brokers=brokers, tls=not plaintext, links=links)
    with writing(out, "folder", "fairlead compose render FOLDER"):
        empty = write_project(fleet, locate(topology), out)
    body = {
        "topology": fleet.topology.name,
        "folder": str(out),
        "sites": {site.name: {"brokers": list(site.brokers)} for site in fleet.sites},
        "tls": fleet.tls,
        "empty_secrets": empty,
    }
    number = sum(len(site.brokers) for site in fleet.sites)

    def show() -> None:
        for name in empty:
            console.print(
                f"notify does not start before its receiver's secret is in {out}/secrets/{name}", soft_wrap=True
            )
        console.print(
            f"{count(len(fleet.sites), 'site')} with {count(number, 'broker')}; next: "
            f"docker compose -f {escape(shlex.quote(f'{out}/compose.yaml'))} up --wait",
            soft_wrap=True,
        )

    emit(body, as_json=as_json, render=show)
