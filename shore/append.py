"""Appending to a Delta table exactly once, without Spark: rows that are on the driver, or files that tasks wrote.

Each commit also records (``app``, ``version``): ``app`` names a sequence of commits (a query's id, a customer's feed),
``version`` counts up within it. delta-rs records such transactions and does not look at them, so this does. Two writers
at once cannot both commit: the loser of the race gets delta-rs's ``CommitFailedError``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.transaction import AddAction, RemoveAction

from shore.lease import check_lease
from shore.tablefiles import NewFile


def last_version(location: str, app: str) -> int | None:
    """The last version that application ``app`` committed to the table; None when it never did."""
    return DeltaTable(location).transaction_version(app)


def append_once(
    location: str, rows: pa.Table, *, app: str, version: int, noted: Mapping[str, int] | None = None
) -> bool:
    """Append ``rows`` in one commit; False when (``app``, ``version``) was committed before.

    Args:
        noted: Further numbers that the commit records, by name (``last_version`` reads them).
    """

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        write_deltalake(table, rows, mode="append", commit_properties=properties)

    return _once(location, {app: version, **(noted or {})}, app, write)


def commit_files(location: str, schema: pa.Schema, files: Sequence[NewFile], *, app: str, version: int) -> bool:
    """Add written files in one commit; False when (``app``, ``version``) was committed before: the files are then in no
    version of the table."""
    now = time.time_ns() // 1_000_000
    added: list[AddAction | RemoveAction] = [
        AddAction(each.path, each.bytes, {}, now, True, each.stats) for each in files
    ]

    def write(table: DeltaTable, properties: CommitProperties) -> None:
        table.create_write_transaction(added, "append", schema, commit_properties=properties)

    return _once(location, {app: version}, app, write)


def _once(
    location: str, numbers: Mapping[str, int], app: str, write: Callable[[DeltaTable, CommitProperties], None]
) -> bool:
    check_lease(location)
    table = DeltaTable(location)
    done = table.transaction_version(app)
    if done is not None and done >= numbers[app]:
        return False
    write(table, CommitProperties(app_transactions=[Transaction(name, number) for name, number in numbers.items()]))
    return True
