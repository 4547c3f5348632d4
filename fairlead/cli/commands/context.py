"""Options that many commands share, and names for shell completion."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlead.errors import FairleadError
from topologies.context import DEFAULT_TOPOLOGY
from topologies.loader.load import load, shipped


def complete_topology(incomplete: str) -> list[str]:
    """Return names of shipped topologies for shell completion; the shell itself adds files."""
    return [name for name in shipped() if name.startswith(incomplete)]


def complete_site(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the sites of the topology named before the cursor; none if it cannot be loaded."""
    try:
        topology = load(ctx.params.get("topology") or DEFAULT_TOPOLOGY)
    except FairleadError:
        return []
    return [site for site in topology.sites if site.startswith(incomplete)]


TopologyOption = Annotated[
    str,
    typer.Option(
        "--topology",
        "-t",
        envvar="FAIRLEAD_TOPOLOGY",
        autocompletion=complete_topology,
        help="A shipped topology's name or a YAML file.",
        show_default=True,
    ),
]
SiteOption = Annotated[
    str | None,
    typer.Option("--site", "-s", help="Ask this site.", metavar="SITE", autocompletion=complete_site),
]
SitesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--site",
        "-s",
        help="Only this site; may be repeated. Default: all.",
        metavar="SITE",
        autocompletion=complete_site,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for another program.")]
WaitOption = Annotated[
    float,
    typer.Option("--wait", help="Wait this many seconds for the change to take effect.", metavar="SECONDS", min=0),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Carry the plan out without asking.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")]
