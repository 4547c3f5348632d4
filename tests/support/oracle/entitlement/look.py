"""Open the tables with delta-rs and let ``due`` compare who may see which record."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from shore.delta.datasets import is_in, open_dataset
from shore.feeds.readers import FeedReader
from shore.jobs.reference import stored
from shore.maintenance import kept_since
from shore.paths import TablePaths
from shore.tables.custody import believed_of
from shore.tables.operations import CUSTODY_ENTRIES
from shore.tables.reference import OWNERS, SITES
from tests.support.oracle.entitlement.due import BOX, TOUCHED, look, touched_boxes
from topologies.ledger_trust import Rules, history_rules


def all_touched(paths: TablePaths) -> pa.Table:
    """Return rows of ``TOUCHED`` for comparing everything: all containers that were ever booked, and all movements."""
    changes = open_dataset(paths, "booking_changes").to_table(columns=[BOX])
    boxes = pc.unique(pa.chunked_array([*changes[BOX].chunks, pa.nulls(1, pa.string())]))
    return pa.table([boxes, pa.nulls(len(boxes)), pa.nulls(len(boxes))], names=TOUCHED.names).cast(TOUCHED)


def entitled(paths: TablePaths, readers: Collection[FeedReader], touched: pa.Table, *, limit: int) -> pa.Table:
    """Return records that customers may see and lack, or have and may no longer see, among those touched.

    Args:
        readers: The customers whose feeds are compared.
        touched: Rows of schema ``TOUCHED``.
        limit: At most so many rows: first what to take back, then what to deliver, each by customer, log and offset.

    Returns:
        Rows of schema ``tests.support.oracle.entitlement.due.DUE``.
    """
    if any(reader.grain == "coarse" for reader in readers):
        touched = _with_cargo(paths, touched)
    if owners := {owner for reader in readers for owner in reader.owners}:
        touched = _with_owned(paths, touched, owners)
    with look(readers, touched) as due:
        boxes = due.boxes(open_dataset(paths, "booking_changes").filter(is_in(BOX, touched_boxes(touched))))
        # Named containers let Arrow skip files and row groups by their statistics.
        wanted = is_in(BOX, boxes)
        movers = [reader.customer for reader in readers if reader.grain == "movements"]
        relations = {name: open_dataset(paths, name).filter(wanted) for name in ("readings", "alerts", "alerts_ashore")}
        relations["digests"] = open_dataset(paths, "digests")
        if (first := due.first_reading) is not None:  # in steady state this skips most files
            relations["readings"] = relations["readings"].filter(pc.field("log_offset") >= first)
        given = wanted | is_in("customer", movers)
        if due.everything:  # customers may have had a feed of movements before
            given |= pc.starts_with(pc.field("log"), "movements/")
        relations["feeds"] = open_dataset(paths, "feeds").filter(given)
        relations["custody_entries"] = believed(paths, logs_of(paths, boxes))
        events = open_dataset(paths, "events")
        relations["events"] = events if movers else events.filter(wanted | pc.field(BOX).is_null())
        if movers:
            relations |= {table.name: stored(paths, table) for table in (SITES, OWNERS)}
        since = kept_since(paths, "readings")  # after the table was opened: retention notes it before it deletes rows
        return due.rows(relations, since, limit=limit)


def _with_owned(paths: TablePaths, touched: pa.Table, owners: Collection[str]) -> pa.Table:
    """What was touched and, if everything was, all containers of these owners that ever had an alert."""
    if pc.any(pc.and_(pc.is_null(touched["log"]), pc.is_null(touched[BOX]))).as_py() is not True:
        return touched
    told = [open_dataset(paths, name).to_table(columns=[BOX])[BOX] for name in ("alerts", "alerts_ashore")]
    boxes = pc.unique(pa.chunked_array([chunk for each in told for chunk in each.chunks], pa.string()))
    boxes = boxes.filter(pc.is_in(pc.utf8_slice_codeunits(boxes, 0, 4), pa.array(sorted(owners))))
    more = pa.table([boxes, pa.nulls(len(boxes)), pa.nulls(len(boxes))], names=TOUCHED.names)
    return pa.concat_tables([touched, more.cast(TOUCHED)])


def _with_cargo(paths: TablePaths, touched: pa.Table) -> pa.Table:
    """What was touched and, for a ship's event, the events of all boxes that were ever loaded on that ship."""
    ships = {name for name in touched_boxes(touched) if name.isdecimal()}
    if not ships:
        return touched
    loaded = is_in("vessel_imo_number", ships) & (pc.field("equipment_event_type_code") == "LOAD")
    boxes = pc.unique(open_dataset(paths, "events").to_table(columns=[BOX], filter=loaded)[BOX])
    cargo = pa.table([boxes, pa.repeat("events.", len(boxes)), pa.repeat(0, len(boxes))], names=TOUCHED.names)
    return pa.concat_tables([touched, cargo.cast(TOUCHED)])


def logs_of(paths: TablePaths, boxes: Collection[str]) -> list[str]:
    """Return the logs of these containers that the ledgers name."""
    known = pc.unique(
        open_dataset(paths, CUSTODY_ENTRIES.name).to_table(columns=["entry_log"])["entry_log"]
    ).to_pylist()
    return [log for log in known if log is not None and log.partition(".")[2] in boxes]


def believed(paths: TablePaths, logs: Collection[str]) -> pa.Table:
    """Return the believed rows of ``custody_entries`` about these logs."""
    rows = open_dataset(paths, CUSTODY_ENTRIES.name).to_table(filter=is_in("entry_log", logs))
    rules = rules_of(paths)
    if rules is None:
        return rows
    kept = {(each.ledger, each.offset) for each in believed_of(rows, rules)}
    places_of = zip(rows["log"].to_pylist(), rows["log_offset"].to_pylist(), strict=True)
    return rows.filter(pa.array([each in kept for each in places_of], pa.bool_()))


def rules_of(paths: TablePaths) -> Rules | None:
    """Return which ledgers are believed, by tables ``sites`` and ``owners``; None before shore has written them."""
    if not all(DeltaTable.is_deltatable(paths.table(table.name)) for table in (SITES, OWNERS)):
        return None
    kinds = {row["site"]: row["kind"] for row in stored(paths, SITES).to_pylist()}
    streams = {row["owner_code"]: row["stream"] for row in stored(paths, OWNERS).to_pylist()}
    return history_rules(kinds, streams) if kinds else None
