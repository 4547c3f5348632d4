"""Keeping table ``custody`` equal to the chains of all of ``custody_entries``: a part of job ``operations``.

After a batch of entries is in ``custody_entries``, the intervals of the logs that they are about are made again from
all their entries and replace what was there, in one commit. There is no state but the two tables, so a repeated batch,
or a crash between the two writes (Spark then repeats the batch), ends with the same rows.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from shore.duck import among, opened
from shore.places import Places
from shore.replace import Scope, replace_rows
from shore.tables.custody import CUSTODY, rows_of_entries
from shore.tables.operations import CUSTODY_ENTRIES


def touched(entries: pa.Table) -> set[str]:
    """The logs that rows of ``custody_entries`` are about."""
    return {log for log in pc.unique(entries["entry_log"]).to_pylist() if log is not None}


def rebuild(places: Places, logs: Collection[str]) -> None:
    """Make the intervals of these logs again."""
    if logs:
        replace_rows(places.table(CUSTODY.name), _of_logs(places, logs), Scope("log", logs), key=CUSTODY.key)


def of_boxes(places: Places, boxes: Collection[str]) -> pa.Table:
    """The intervals of all logs of these containers, from the ledgers: table ``custody`` may be a moment behind."""
    if not boxes:
        return CUSTODY.plain_schema.empty_table()
    return _of_logs(places, logs_of(places, boxes))


def logs_of(places: Places, boxes: Collection[str]) -> list[str]:
    """The logs of these containers that the ledgers speak of."""
    known = pc.unique(opened(places, CUSTODY_ENTRIES.name).to_table(columns=["entry_log"])["entry_log"]).to_pylist()
    return [log for log in known if log is not None and log.partition(".")[2] in boxes]


def everything(places: Places) -> pa.Table:
    """Table ``custody`` as it must be, from all of ``custody_entries``."""
    return _made(places, pc.is_valid(pc.field("entry_log")))


def _of_logs(places: Places, logs: Collection[str]) -> pa.Table:
    return _made(places, among("entry_log", logs))


def _made(places: Places, found: pc.Expression) -> pa.Table:
    return rows_of_entries(opened(places, CUSTODY_ENTRIES.name).to_table(columns=["payload"], filter=found))
