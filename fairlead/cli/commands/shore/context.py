"""A topology with a shore, its Kafka and its tables: every command of ``fairlead shore`` opens these first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fairlead.cli.commands.context import site_option
from fairlead.errors import ConfigurationError
from fairlead.kafka.endpoint import KafkaEndpoint
from shore.paths import TablePaths
from shore.site import check_may_run, site_now
from shore.storage import open_paths
from topologies.context import Context, open_topology
from topologies.model import Shore, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class ShorePlace:
    """One topology's shore."""

    topology: Topology
    folder: Path
    paths: TablePaths
    context: Context
    shore: Shore
    asked: str | None = None

    @property
    def site(self) -> str:
        """Return the site that was asked for, else the one where shore runs or last ran.

        Raises:
            UnavailableError: the tables' storage does not answer.
        """
        return self.asked or site_now(self.topology, self.paths)

    @property
    def endpoint(self) -> KafkaEndpoint:
        """Return the Kafka endpoint of its site for user ``shore``, without connecting.

        Raises:
            UnavailableError: a local site that never ran has none.
        """
        return self.context.resolver.kafka(self.site, "shore")

    @contextlib.contextmanager
    def session(self, *, beside: bool = False) -> Iterator[SparkSession]:
        """Start Spark as the topology's shore wants it, and end it.

        Args:
            beside: Another session may run in the topology's folder: the log of this one has a folder of its own.

        Raises:
            UnavailableError: Spark does not start.
        """
        from shore.jobs.runner import own_session  # importing Spark's modules takes a second

        shore = self.context.topology.shore
        if shore is None:
            raise ConfigurationError(f"topology {self.topology.name} does not say where shore runs")
        folder = self.folder / "spark" / "beside" if beside else self.folder
        with own_session(folder, shore, self.context.resolver.spark_settings(self.site)) as spark:
            yield spark


ShoreSiteOption = Annotated[
    str | None,
    site_option("Ask Kafka of this site, of 'at' and 'standby'. Default: where shore ran last."),
]


def open_shore(name: str, site: str | None = None) -> ShorePlace:
    """Load a topology that declares where shore runs.

    Args:
        site: Where shore is to run, or whose Kafka is to be asked; None for the site where it runs or last ran.

    Raises:
        ConfigurationError: it does not, or not at this site.
    """
    context = open_topology(name)
    where = context.topology.shore
    if where is None:
        raise ConfigurationError(
            f"topology {context.topology.name} does not say where shore runs", hint="add 'shore: {at: <site>}' to it"
        )
    if site is not None:
        check_may_run(context.topology, site)
    return ShorePlace(context.topology, context.folder, open_paths(where, context.folder), context, where, site)
