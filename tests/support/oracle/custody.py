"""Compute table ``custody`` from ``custody_entries``."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from shore.delta.datasets import is_in, open_dataset
from shore.paths import TablePaths
from shore.tables.custody import CUSTODY, rows_of_entries
from shore.tables.operations import CUSTODY_ENTRIES
from tests.support.oracle.entitlement.look import logs_of, rules_of


def of_boxes(paths: TablePaths, boxes: Collection[str]) -> pa.Table:
    """Return the intervals of all logs of these containers. Table ``custody`` may be a moment behind the ledgers."""
    if not boxes:
        return CUSTODY.plain_schema.empty_table()
    return _of_logs(paths, logs_of(paths, boxes))


def everything(paths: TablePaths) -> pa.Table:
    """Return table ``custody`` as it must be, from all of ``custody_entries``."""
    return _made(paths, pc.is_valid(pc.field("entry_log")))


def _of_logs(paths: TablePaths, logs: Collection[str]) -> pa.Table:
    return _made(paths, is_in("entry_log", logs))


def _made(paths: TablePaths, found: pc.Expression) -> pa.Table:
    columns = ["log", "log_offset", "payload"]
    return rows_of_entries(
        open_dataset(paths, CUSTODY_ENTRIES.name).to_table(columns=columns, filter=found), rules_of(paths)
    )
