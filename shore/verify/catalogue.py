"""The tables that can be verified: what each is made from, and how it is made anew. Add a line for a new one.

A table that no line names cannot be proven; a test sees to it that every table that a job keeps has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from fairlead.names import parse_log
from shore.jobs import bookings, custody, dock_movements, ships, whole
from shore.paths import CUSTOMERS, TablePaths
from shore.tables import TABLES, alerts_ashore
from shore.tables.catalogue import job_of
from shore.tables.operations import OPERATIONS, LogTable
from shore.verify import by_duckdb
from shore.verify.compare import Shape
from topologies.model import Topology


@dataclass(frozen=True, slots=True)
class FromLogs:
    """Tables that together hold every data record of some logs, each as one row of one of them.

    Args:
        tables: Each has the columns log and log_offset.
        takes: For a topology: whether a topic is one of the logs.
        operation: Which operation fills the only table; None: they are ``readings`` and ``readings_rejected``.
    """

    tables: tuple[str, ...]
    takes: Callable[[Topology], Callable[[str], bool]]
    operation: LogTable | None = None

    @property
    def name(self) -> str:
        return " + ".join(self.tables)

    @property
    def job(self) -> str:
        """Whose checkpoint says how far the logs are read."""
        return job_of(self.tables[0])

    @property
    def shapes(self) -> dict[str, Shape]:
        """What of its tables is compared: all columns."""
        return {name: Shape(name, TABLES[name].plain_schema.names) for name in self.tables}


@dataclass(frozen=True, slots=True)
class Derived:
    """A table that follows from other tables.

    Args:
        inputs: The tables it follows from.
        everything: Makes it anew, from all of its inputs, without Spark.
        time: The column by which a backfill bounds what it makes again; None: it makes all of it again.
        tolerance: Relative difference that two floating point numbers may have: sums depend on their order.
        compared: From the table and ``everything``: the rows that must be the same as which; None: all of both.
    """

    table: str
    inputs: tuple[str, ...]
    everything: Callable[[TablePaths], pa.Table]
    time: str | None = None
    tolerance: float = 1e-9
    compared: Callable[[TablePaths, pa.Table, pa.Table], tuple[pa.Table, pa.Table]] | None = None

    @property
    def job(self) -> str:
        """Who keeps it."""
        return job_of(self.table)


def _containers(topology: Topology) -> Callable[[str], bool]:
    streams = topology.moving_streams

    def takes(topic: str) -> bool:
        log = parse_log(topic)
        return log is not None and log.stream in streams

    return takes


def _of(operation: LogTable) -> Callable[[Topology], Callable[[str], bool]]:
    pattern = re.compile(operation.pattern)
    return lambda topology: lambda topic: pattern.fullmatch(topic) is not None


FROM_LOGS: tuple[FromLogs, ...] = (
    FromLogs(("readings", "readings_rejected"), _containers),
    *(FromLogs((operation.table.name,), _of(operation), operation) for operation in OPERATIONS),
)

_TOPOLOGY = ("sites", "owners")

DERIVED: tuple[Derived, ...] = (
    Derived("custody", ("custody_entries", *_TOPOLOGY), custody.everything),
    Derived("conditions", ("readings",), whole.conditions, "window_end"),
    Derived("excursions", ("readings",), whole.excursions, "start_date_time"),
    Derived("excursion_parts", ("readings",), whole.excursion_parts, "part_start"),
    Derived("mkt", ("readings",), whole.mkt, "window_end"),
    Derived("alerts_ashore", ("readings",), alerts_ashore.everything, compared=alerts_ashore.comparable),
    Derived(
        "alerts_now",
        ("alerts", "alerts_ashore", "custody_entries", "booking_changes", "sites"),
        by_duckdb.alerts_now,
    ),
    Derived("bookings", ("booking_changes",), bookings.everything),
    Derived("dock_movements", ("events", *_TOPOLOGY), dock_movements.everything, "event_date_time"),
    Derived("port_calls", ("dock_movements", "positions", "sites"), ships.port_calls, "call_date_time"),
    Derived("voyages", ("dock_movements", "positions", "sites"), ships.voyages, "leg_date_time"),
    Derived("ships_now", ("positions", "sites"), by_duckdb.ships_now),
    Derived(
        "containers_now",
        ("readings", "custody_entries", "alerts", "alerts_ashore", "bookings", "positions", *_TOPOLOGY),
        by_duckdb.containers_now,
    ),
    Derived("quality", ("readings", "readings_rejected"), by_duckdb.quality, "day"),
)

REFERENCE = _TOPOLOGY
"""Tables that say what the topology says; ``shore run`` makes them anew when it starts and they differ."""

FEEDS_FOLLOW_FROM = (
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

OWN_WAY: frozenset[str] = frozenset({"feeds"})
"""Checked in ways of their own (``shore.verify.feeds``)."""


def sources_of(tables: Iterable[str]) -> tuple[str, ...]:
    """These tables and all that they follow from, those first that others follow from."""
    found: dict[str, None] = {}
    for name in tables:
        inputs = next((each.inputs for each in DERIVED if each.table == name), ())
        found |= dict.fromkeys(sources_of(inputs)) | {name: None}
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
    for each in DERIVED:
        if each.table == table and each.compared is not None:
            return f"fairlead shore rebuild {each.job} --yes"
    return "fairlead shore backfill --yes (or only the days: --since, --until)"
