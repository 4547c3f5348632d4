"""What nearly every command begins with: the topology, its state folder, its local sites and where they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.home import topology_folder
from fairlead.local.directory import KnownSites
from topologies.directory import Directory
from topologies.load import load
from topologies.model import Topology

TopologyOption = Annotated[
    str,
    typer.Option(
        "--topology",
        "-t",
        envvar="FAIRLEAD_TOPOLOGY",
        help="A shipped topology's name or a YAML file.",
        show_default=True,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for another program.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it, without asking.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Tell what would be done; do nothing.")]
DEFAULT_TOPOLOGY = "big-blue"


@dataclass(frozen=True, slots=True)
class Context:
    """One topology as a command sees it. ``folder`` is its state folder; nothing is created by opening it."""

    source: str  # the name, or the file with its whole path: for workers that start elsewhere
    topology: Topology
    folder: Path
    local: KnownSites
    directory: Directory


def open_topology(name: str = DEFAULT_TOPOLOGY) -> Context:
    """Load a topology by name or file.

    Raises:
        TopologyErrors: the file has mistakes; all of them are in the error.
    """
    topology = load(name)
    folder = topology_folder(topology.name)
    local = KnownSites(folder)
    source = str(Path(name).resolve()) if Path(name).is_file() else name
    return Context(source, topology, folder, local, Directory(topology, local))
