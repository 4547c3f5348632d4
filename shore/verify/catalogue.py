"""The tables that can be verified: what each is made from, and how it is made anew.

Log tables are named here, derived ones in ``shore.tables.graph``. A table that neither names cannot be proven; a test
sees to it that every table that a job keeps has one way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

from shore.delta.lake import Lake
from shore.paths import CUSTOMERS
from shore.source.options import parse_options
from shore.tables import alerts_ashore, graph
from shore.tables.catalogue import job_of
from shore.tables.graph import Derived, Settings
from shore.tables.operations import OPERATIONS, LogTable
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class FromLogs:
    """Tables that together hold every data record of some logs, each as one row of one of them.

    Args:
        tables: Each has the columns log and log_offset.
        operation: Which operation fills the only table; None: they are ``readings`` and ``readings_rejected``.
    """

    tables: tuple[str, ...]
    operation: LogTable | None = None

    @property
    def name(self) -> str:
        return " + ".join(self.tables)

    @property
    def job(self) -> str:
        """Whose checkpoint says how far the logs are read."""
        return job_of(self.tables[0])

    def options(self, topology: Topology) -> dict[str, str]:
        """The options of source ``fairlead`` that select its logs; none where the topology has no such logs."""
        if self.operation is not None:
            return {"pattern": self.operation.pattern, "rows": "raw"}
        streams = ",".join(topology.moving_streams)
        return {"streams": streams, "rows": "readings"} if streams else {}

    def takes(self, topology: Topology) -> Callable[[str], bool]:
        """Whether a topic is one of the logs."""
        options = self.options(topology)
        return parse_options(options).takes if options else lambda topic: False


FROM_LOGS: Final = (
    FromLogs(("readings", "readings_rejected")),
    *(FromLogs((operation.table.name,), operation) for operation in OPERATIONS),
)

_TOPOLOGY: Final = ("sites", "owners")

DERIVED: Final = graph.DERIVED


def expected_rows(derived: Derived, lake: Lake, topology: Topology, versions: Mapping[str, int] = {}) -> DataFrame:
    """What a derived table must hold by its inputs, in their newest versions or in these."""
    shore = topology.shore
    settings = Settings(shore.activation_energy) if shore is not None else Settings()
    return derived.compute(lake.inputs(derived.inputs, versions), settings)


BY_STATE: Final[Mapping[str, Callable[[DataFrame, DataFrame], DataFrame]]] = {"alerts_ashore": alerts_ashore.comparable}
"""Tables of jobs with a state of their own, which their inputs do not give as a whole: from the table and ``readings``,
those rows that can be compared and what they must be, told apart by a column ``stored``. ``backfill`` leaves them to
``rebuild``."""

REFERENCE: Final = _TOPOLOGY
"""Tables that say what the topology says; ``shore run`` makes them anew when it starts and they differ."""

FEEDS_FOLLOW_FROM: Final = (
    "readings",
    "alerts",
    "booking_changes",
    "custody_entries",
    "events",
    "dock_movements",
    "custody",
    "bookings",
    "sites",
    "owners",
)
"""What decides which records a customer is entitled to."""

OWN_WAY: Final = frozenset({"feeds"})
"""Checked in ways of their own (``shore.verify.feeds``)."""


def derived_table(name: str) -> Derived | None:
    """The line of a derived table; None for others."""
    return next((each for each in DERIVED if each.table.name == name), None)


def sources_of(tables: Iterable[str]) -> tuple[str, ...]:
    """These tables and all that they follow from, those first that others follow from."""
    found: dict[str, None] = {}
    for name in tables:
        derived = derived_table(name)
        found |= dict.fromkeys(sources_of(derived.inputs if derived else ())) | {name: None}
    return tuple(found)


def mended_by(table: str) -> str:
    """What puts rows right that somebody changed or deleted: of a table, or of tables that hold logs together
    (``FromLogs.name``)."""
    if table.startswith(CUSTOMERS):
        return f"remove the folder of {table}"
    if table in REFERENCE:
        return "fairlead shore run --once"
    if table in OWN_WAY:
        return f"fairlead shore rebuild {table} --yes"
    if table in BY_STATE:
        return f"fairlead shore rebuild {job_of(table)} --yes"
    return "fairlead shore backfill --yes (or only the days: --since, --until)"
