"""Open a topology with its state folder, its local sites and their endpoints. Python programs start here.

``open_topology("big-blue")`` returns all of it. Opening starts and creates nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import UnavailableError
from fairlead.home import remember_source, topology_folder, up_command
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.registry import LocalSiteRegistry
from topologies.endpoints import EndpointResolver
from topologies.loader.load import load
from topologies.model import Topology
from topologies.users import ADMIN

DEFAULT_TOPOLOGY = "big-blue"


@dataclass(frozen=True, slots=True)
class Context:
    """An opened topology.

    Args:
        source: The topology's name, or the absolute path of its file, so that workers in other folders can open it.
        folder: The state folder.
    """

    source: str
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
    if name != DEFAULT_TOPOLOGY:
        remember_source(folder, source)
    return Context(source, topology, folder, local, EndpointResolver(topology, local))


def running_kafka(context: Context, *, started: bool = True) -> Callable[[str], KafkaEndpoint]:
    """Return a function from a site to its Kafka as administrator.

    The function raises UnavailableError for a local site that does not run, without trying to connect.

    Args:
        started: Whether a local site that was never started counts as not running.
    """
    processes = context.local.status()

    def kafka(site: str) -> KafkaEndpoint:
        here = context.topology.sites[site].is_local
        if here and not (processes[site].kafka_up if site in processes else not started):
            what = f"the Kafka of {site} does not run"
            raise UnavailableError(what, hint=up_command(context.folder, site), site=site)
        return context.resolver.kafka(site, ADMIN)

    return kafka
