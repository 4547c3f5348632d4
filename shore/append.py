"""Appending to a Delta table exactly once, without Spark: for small batches that are on the driver anyway."""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake


def last_version(location: str, app: str) -> int | None:
    """The last version that application ``app`` committed to the table; None when it never did."""
    return DeltaTable(location).transaction_version(app)


def append_once(location: str, rows: pa.Table, *, app: str, version: int) -> bool:
    """Append ``rows`` in one commit that also records (``app``, ``version``); False when that was committed before.

    ``app`` names a sequence of commits (a query's id, a customer's feed), ``version`` counts up within it. delta-rs
    records such transactions and does not look at them, so this does. Two writers at once cannot both commit: the
    loser of the race gets delta-rs's ``CommitFailedError``.
    """
    table = DeltaTable(location)
    done = table.transaction_version(app)
    if done is not None and done >= version:
        return False
    properties = CommitProperties(app_transactions=[Transaction(app, version)])
    write_deltalake(table, rows, mode="append", commit_properties=properties)
    return True
