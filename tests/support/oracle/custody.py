"""Compute table ``custody`` from ``custody_entries``."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from shore.delta.datasets import open_dataset
from shore.paths import TablePaths
from shore.tables.custody import rows_of_entries
from shore.tables.operations import CUSTODY_ENTRIES
from tests.support.oracle.entitlement.look import rules_of


def everything(paths: TablePaths) -> pa.Table:
    """Return table ``custody`` as it must be, from all of ``custody_entries``."""
    columns, about_logs = ["log", "log_offset", "payload"], pc.field("entry_log").is_valid()
    entries = open_dataset(paths, CUSTODY_ENTRIES.name).to_table(columns=columns, filter=about_logs)
    return rows_of_entries(entries, rules_of(paths))
