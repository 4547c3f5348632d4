"""Keeping table ``custody`` equal to the chains of all of ``custody_entries``: a part of job ``operations``.

After a batch of entries is in ``custody_entries``, the intervals of the logs that they are about are made again from
all their entries and replace what was there, in one commit. There is no state but the two tables, so a repeated batch,
or a crash between the two writes (Spark then repeats the batch), ends with the same rows.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from fairlead.records.custody import ledger_entries
from shore.places import Places
from shore.replace import Scope, replace_rows
from shore.tables.custody import CUSTODY, rows_of
from shore.tables.operations import CUSTODY_ENTRIES


def touched(entries: pa.Table) -> set[str]:
    """The logs that rows of ``custody_entries`` are about."""
    return {log for log in pc.unique(entries["entry_log"]).to_pylist() if log is not None}


def rebuild(places: Places, logs: Collection[str]) -> None:
    """Make the intervals of these logs again."""
    if not logs:
        return
    names = pa.array(sorted(logs), pa.string())
    entries = DeltaTable(places.table(CUSTODY_ENTRIES.name)).to_pyarrow_dataset()
    about = entries.to_table(columns=["payload"], filter=pc.field("entry_log").isin(names))
    fresh = rows_of(ledger_entries.decode(value.as_py()) for value in about["payload"])
    replace_rows(places.table(CUSTODY.name), fresh, Scope("log", logs), key=CUSTODY.key)


def everything(places: Places) -> pa.Table:
    """Table ``custody`` as it must be, from all of ``custody_entries``."""
    rows = DeltaTable(places.table(CUSTODY_ENTRIES.name)).to_pyarrow_dataset()
    payloads = rows.to_table(columns=["payload"], filter=pc.is_valid(pc.field("entry_log")))["payload"]
    return rows_of(ledger_entries.decode(value.as_py()) for value in payloads)
