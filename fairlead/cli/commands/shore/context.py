"""A topology with a shore, its Kafka and its tables: every command of ``fairlead shore`` opens these first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairlead.errors import ConfigurationError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.paths import TablePaths
from shore.storage import open_paths
from topologies.context import Context, open_topology
from topologies.model import Shore, Topology


@dataclass(frozen=True, slots=True)
class ShorePlace:
    """One topology's shore."""

    topology: Topology
    folder: Path
    paths: TablePaths
    context: Context
    shore: Shore

    @property
    def site(self) -> str:
        """Return the site where shore runs."""
        return self.shore.at

    @property
    def endpoint(self) -> KafkaEndpoint:
        """Return the Kafka endpoint of its site for user ``shore``, without connecting.

        Raises:
            UnavailableError: a local site that never ran has none.
        """
        return self.context.resolver.kafka(self.site, "shore")


def open_shore(name: str) -> ShorePlace:
    """Load a topology that declares where shore runs.

    Raises:
        ConfigurationError: it does not.
    """
    context = open_topology(name)
    where = context.topology.shore
    if where is None:
        raise ConfigurationError(
            f"topology {context.topology.name} does not say where shore runs", hint="add 'shore: {at: <site>}' to it"
        )
    return ShorePlace(context.topology, context.folder, open_paths(where, context.folder), context, where)
