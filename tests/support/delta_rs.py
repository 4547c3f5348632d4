"""Delta tables created and filled by delta-rs, in milliseconds and without a JVM: for tests of what reads them.

Shore itself writes by Spark (``shore.delta.commit``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from shore.jobs.reference import rows_of_topology
from shore.paths import TablePaths
from shore.tables.model import Table
from topologies.model import Topology


def create(table: Table, location: str) -> None:
    """Create a table without rows, unless it is there."""
    if "://" not in location:
        Path(location).mkdir(parents=True, exist_ok=True)
    DeltaTable.create(
        location,
        schema=table.schema,
        mode="ignore",
        name=table.name,
        description=f"{table.title}. {table.grain}",
        configuration=dict(table.properties),
    )


def last_version(location: str, app: str) -> int | None:
    """Return the last version that application ``app`` committed to a table; None when it never did."""
    return DeltaTable(location).transaction_version(app)


def append_once(
    location: str, rows: pa.Table, *, app: str, version: int, noted: Mapping[str, int] | None = None
) -> bool:
    """Append rows in one commit; return False when (``app``, ``version``) was committed before.

    Args:
        noted: Further transactions of the commit.
    """
    done = last_version(location, app)
    if done is not None and done >= version:
        return False
    numbers = {app: version, **(noted or {})}
    properties = CommitProperties(app_transactions=[Transaction(name, number) for name, number in numbers.items()])
    write_deltalake(DeltaTable(location), rows, mode="append", commit_properties=properties)
    return True


def refresh(paths: TablePaths, topology: Topology) -> None:
    """Make the tables made from the topology equal to one."""
    for name, rows in rows_of_topology(topology).items():
        write_deltalake(DeltaTable(paths.table(name)), rows, mode="overwrite")
