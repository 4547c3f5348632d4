"""Table ``custody`` on the driver, from ``custody_entries``: for ``fairlead shore verify`` and ``backfill``, and for
jobs that do not read the table itself.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from shore.delta.datasets import is_in, open_dataset
from shore.jobs import reference
from shore.paths import TablePaths
from shore.tables.custody import CUSTODY, believed_of, rows_of_entries
from shore.tables.operations import CUSTODY_ENTRIES
from shore.tables.reference import OWNERS, SITES
from topologies.ledger_trust import Rules, history_rules


def of_boxes(paths: TablePaths, boxes: Collection[str]) -> pa.Table:
    """The intervals of all logs of these containers, from the ledgers: table ``custody`` may be a moment behind."""
    if not boxes:
        return CUSTODY.plain_schema.empty_table()
    return _of_logs(paths, logs_of(paths, boxes))


def logs_of(paths: TablePaths, boxes: Collection[str]) -> list[str]:
    """The logs of these containers that the ledgers speak of."""
    known = pc.unique(
        open_dataset(paths, CUSTODY_ENTRIES.name).to_table(columns=["entry_log"])["entry_log"]
    ).to_pylist()
    return [log for log in known if log is not None and log.partition(".")[2] in boxes]


def believed(paths: TablePaths, logs: Collection[str]) -> pa.Table:
    """The rows of ``custody_entries`` about these logs, without those that are not believed."""
    rows = open_dataset(paths, CUSTODY_ENTRIES.name).to_table(filter=is_in("entry_log", logs))
    rules = _rules(paths)
    if rules is None:
        return rows
    kept = {(each.ledger, each.offset) for each in believed_of(rows, rules)}
    places_of = zip(rows["log"].to_pylist(), rows["log_offset"].to_pylist(), strict=True)
    return rows.filter(pa.array([each in kept for each in places_of], pa.bool_()))


def everything(paths: TablePaths) -> pa.Table:
    """Table ``custody`` as it must be, from all of ``custody_entries``."""
    return _made(paths, pc.is_valid(pc.field("entry_log")))


def _of_logs(paths: TablePaths, logs: Collection[str]) -> pa.Table:
    return _made(paths, is_in("entry_log", logs))


def _made(paths: TablePaths, found: pc.Expression) -> pa.Table:
    columns = ["log", "log_offset", "payload"]
    return rows_of_entries(
        open_dataset(paths, CUSTODY_ENTRIES.name).to_table(columns=columns, filter=found), _rules(paths)
    )


def _rules(paths: TablePaths) -> Rules | None:
    """Who is believed, by tables ``sites`` and ``owners``; None where shore has not written it yet."""
    if not all(DeltaTable.is_deltatable(paths.table(table.name)) for table in (SITES, OWNERS)):
        return None
    kinds = {row["site"]: row["kind"] for row in reference.stored(paths, SITES).to_pylist()}
    streams = {row["owner_code"]: row["stream"] for row in reference.stored(paths, OWNERS).to_pylist()}
    return history_rules(kinds, streams) if kinds else None
