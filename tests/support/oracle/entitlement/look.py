"""Open the tables with delta-rs and let ``due`` compare who may see which record."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from shore.delta.datasets import open_dataset
from shore.feeds.readers import FeedReader
from shore.jobs.reference import stored
from shore.maintenance import kept_since
from shore.paths import TablePaths
from shore.tables.custody import believed_of
from shore.tables.operations import CUSTODY_ENTRIES
from shore.tables.reference import OWNERS, SITES
from tests.support.oracle.entitlement.due import BOX, TOUCHED, due
from topologies.ledger_trust import Rules, history_rules

_WITH_BOXES = ("booking_changes", "alerts", "alerts_ashore")


def entitled(paths: TablePaths, readers: Collection[FeedReader]) -> pa.Table:
    """Compare the whole feeds of these customers; return the rows of ``due``."""
    names = (*_WITH_BOXES, "readings", "events", "digests", "feeds")
    relations = {name: open_dataset(paths, name) for name in names} | {CUSTODY_ENTRIES.name: _believed(paths)}
    if any(reader.grain in ("movements", "coarse") for reader in readers):
        relations |= {table.name: stored(paths, table) for table in (SITES, OWNERS)}
    named = [relations[name].to_table(columns=[BOX])[BOX].chunks for name in _WITH_BOXES]
    boxes = pc.unique(pa.chunked_array([*(chunk for each in named for chunk in each), pa.nulls(1, pa.string())]))
    everything = pa.table([boxes, pa.nulls(len(boxes)), pa.nulls(len(boxes))], names=TOUCHED.names).cast(TOUCHED)
    return due(readers, everything, relations, kept_since(paths, "readings"))


def _believed(paths: TablePaths) -> pa.Table:
    """Return the believed rows of ``custody_entries``."""
    rows = open_dataset(paths, CUSTODY_ENTRIES.name).to_table(filter=pc.field("entry_log").is_valid())
    kept = {(each.ledger, each.offset) for each in believed_of(rows, rules_of(paths))}
    origins = zip(rows["log"].to_pylist(), rows["log_offset"].to_pylist(), strict=True)
    return rows.filter(pa.array([each in kept for each in origins], pa.bool_()))


def rules_of(paths: TablePaths) -> Rules | None:
    """Return which ledgers are believed, by tables ``sites`` and ``owners``; None before shore has written them."""
    if not all(DeltaTable.is_deltatable(paths.table(table.name)) for table in (SITES, OWNERS)):
        return None
    kinds = {row["site"]: row["kind"] for row in stored(paths, SITES).to_pylist()}
    streams = {row["owner_code"]: row["stream"] for row in stored(paths, OWNERS).to_pylist()}
    return history_rules(kinds, streams) if kinds else None
