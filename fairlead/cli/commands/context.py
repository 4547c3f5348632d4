"""What nearly every command begins with: the topology, its state folder, its local sites and where they are; and
names for shell completion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.errors import FairleadError, UnavailableError
from fairlead.home import topology_folder
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.registry import LocalSiteRegistry
from topologies.endpoints import EndpointResolver
from topologies.loader.load import load, shipped
from topologies.model import Topology
from topologies.users import ADMIN

DEFAULT_TOPOLOGY = "big-blue"


def complete_topology(incomplete: str) -> list[str]:
    """Names of shipped topologies for shell completion; the shell adds files itself."""
    return [name for name in shipped() if name.startswith(incomplete)]


def complete_site(ctx: typer.Context, incomplete: str) -> list[str]:
    """Sites of the topology that the command line names before the cursor; none if it cannot be loaded."""
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


@dataclass(frozen=True, slots=True)
class Context:
    """One topology as a command sees it. ``folder`` is its state folder; nothing is created by opening it."""

    source: str  # the name, or the file with its whole path: for workers that start elsewhere
    topology: Topology
    folder: Path
    local: LocalSiteRegistry
    resolver: EndpointResolver


def open_topology(name: str = DEFAULT_TOPOLOGY) -> Context:
    """Load a topology by name or file.

    Raises:
        TopologyErrors: the file has mistakes; all of them are in the error.
    """
    topology = load(name)
    folder = topology_folder(topology.name)
    local = LocalSiteRegistry(folder)
    source = str(Path(name).resolve()) if Path(name).is_file() else name
    return Context(source, topology, folder, local, EndpointResolver(topology, local))


def running_kafka(context: Context, *, started: bool = True) -> Callable[[str], KafkaEndpoint]:
    """Gives the Kafka of a site as its administrator. A local site that does not run is known without asking it.

    The function raises UnavailableError for a local site that does not run or was never started.

    Args:
        started: Whether a site that was never started on this machine counts as one that does not run.
    """
    processes = context.local.status()

    def kafka(site: str) -> KafkaEndpoint:
        here = context.topology.sites[site].is_local
        if here and not (processes[site].kafka_up if site in processes else not started):
            raise UnavailableError(f"the Kafka of {site} does not run", hint=f"fairlead up {site}", site=site)
        return context.resolver.kafka(site, ADMIN)

    return kafka
