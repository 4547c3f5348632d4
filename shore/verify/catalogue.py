"""List the tables that can be verified: what each is made from, and how to compute it anew.

Log tables are listed here, derived ones in ``shore.tables.graph``. A table in neither cannot be verified; a test checks
that every table that a job keeps has exactly one way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

from shore.paths import CUSTOMERS
from shore.source.options import parse_options
from shore.tables import alerts_ashore, graph
from shore.tables.catalogue import job_of
from shore.tables.operations import OPERATIONS, LogTable
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class FromLogs:
    """Tables that together hold every data record of some logs, each as one row of one of them.

    Args:
        tables: Each has the columns log and log_offset.
        operation: The operation that fills the only table; None: they are ``readings`` and ``readings_rejected``.
    """

    tables: tuple[str, ...]
    operation: LogTable | None = None

    @property
    def name(self) -> str:
        return " + ".join(self.tables)

    @property
    def job(self) -> str:
        """The job whose checkpoint says how far the logs are read."""
        return job_of(self.tables[0])

    def options(self, topology: Topology) -> dict[str, str]:
        """Return the options of source ``fairlead`` that select its logs; none where the topology has no such logs."""
        if self.operation is not None:
            return {"pattern": self.operation.pattern, "rows": "raw"}
        streams = ",".join(topology.moving_streams)
        return {"streams": streams, "rows": "readings"} if streams else {}

    def takes(self, topology: Topology) -> Callable[[str], bool]:
        """Return a function that tells whether a topic is one of the logs."""
        options = self.options(topology)
        return parse_options(options).takes if options else lambda topic: False


FROM_LOGS: Final = (
    FromLogs(("readings", "readings_rejected")),
    *(FromLogs((operation.table.name,), operation) for operation in OPERATIONS),
)

DERIVED: Final = graph.DERIVED

BY_STATE: Final[Mapping[str, Callable[[DataFrame, DataFrame], DataFrame]]] = {"alerts_ashore": alerts_ashore.comparable}
"""Tables of jobs with a state of their own, which their inputs do not give as a whole. The function takes the table and
``readings`` and returns the rows that can be compared and the expected ones, told apart by a column ``stored``.
``backfill`` leaves these tables to ``rebuild``."""

REFERENCE: Final = ("sites", "owners", "geofences")
"""Tables made from the topology; ``shore run`` rewrites them at start if they differ."""

FEEDS_FOLLOW_FROM: Final = (
    "readings",
    "alerts",
    "booking_changes",
    "custody_entries",
    "events",
    "alerts_ashore",
    "digests",
    "dock_movements",
    "custody",
    "bookings",
    "sites",
    "owners",
)
"""The tables that decide which records a customer is entitled to."""

OWN_WAY: Final = frozenset({"feeds"})
"""Tables with checks of their own (``shore.verify.feeds``)."""


def sources_of(tables: Iterable[str]) -> tuple[str, ...]:
    """Return these tables and all that they follow from, inputs first."""
    found: dict[str, None] = {}
    for name in tables:
        derived = graph.BY_NAME.get(name)
        found |= dict.fromkeys(sources_of(derived.inputs if derived else ())) | {name: None}
    return tuple(found)


RUN: Final = "fairlead shore run --once"
"""The command that follows every repair."""


def mended_by(table: str) -> str:
    """Return the command or action that repairs changed or deleted rows of a table, or of tables that hold logs
    together (``FromLogs.name``)."""
    if table.startswith(CUSTOMERS):
        return f"remove the folder of {table}"
    if table in REFERENCE:
        return RUN
    if table in OWN_WAY:
        return f"fairlead shore rebuild {table} --yes"
    if table in BY_STATE:
        return f"fairlead shore rebuild {job_of(table)} --yes"
    return "fairlead shore backfill --yes (or only the days: --since, --until)"
