"""Table ``custody``: the chain of custody of every log, as intervals, computed from ``custody_entries``.

For each log, one Python call on executors decides which entries are believed (``topologies.ledger_trust``) and chains
them (``fairlead.custody.history``). Neither step needs entries of other logs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fairlead.custody.history import Chain, chains
from fairlead.custody.ledger import Told
from fairlead.names import parse_log
from fairlead.records import UNREADABLE
from fairlead.records.custody import LedgerEntry, ledger_entries
from fairlead.records.reading import MOST
from shore.tables.model import TIME, Column, Table
from topologies.ledger_trust import Rules, history_rules, sift

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXT, _OFFSET = pa.string(), pa.int64()

_NEEDED = ("log", "log_offset", "payload")

CUSTODY = Table(
    name="custody",
    title="Who held each log, from which offset to which",
    columns=(
        Column("log", _TEXT, "Log: <stream>.<container number>"),
        Column("equipment_reference", _TEXT, "ISO 6346 container number, from the log's name"),
        Column("term", pa.int32(), "Term of the log; the batches of its records carry it"),
        Column("holder", _TEXT, "Site that could append; null while the box was out of the system (GTOT)"),
        Column("marker_offset", _OFFSET, "Offset of the marker that opened the term"),
        Column("from_offset", _OFFSET, "The holder's first record"),
        Column("to_offset", _OFFSET, "End of the term, exclusive: the next marker; null while it runs"),
        Column("from_date_time", TIME, "When the event happened that opened it"),
        Column("to_date_time", TIME, "When the event happened that ended it; null while it runs"),
        Column("event", _TEXT, "What opened it: GTIN, LOAD, DISC, GTOT, HAND, SEIZURE"),
        Column("event_id", _TEXT, "That event, or the order by hand"),
        Column("from_site", _TEXT, "Holder before; null at an opening"),
        Column("granted_by", _TEXT, "Site that opened the term"),
        Column("granted_date_time", TIME, "When it was written down"),
        Column("ordered_by", _TEXT, "Who ordered it by hand; empty otherwise"),
        Column("reason", _TEXT, "Why, where it was done by hand"),
        Column(
            "lost",
            pa.bool_(),
            "Cut off by a seizure: its records are no part of the log, and to_offset is how far it was seen to come",
        ),
    ),
    key=("log", "term"),
    grain="One row per term of a log. Terms that are not lost follow each other: each ends where the next begins.",
    late="The intervals of the logs that new entries are about are made again from custody_entries and replaced: the "
    "order in which ledgers come, and repeats, change nothing.",
    layout="Clustered by log: a few short rows a container and voyage.",
    cluster_by=("log",),
    change_feed=True,
)


def custody(custody_entries: DataFrame, sites: DataFrame, owners: DataFrame) -> DataFrame:
    """Compute the custody intervals of the logs that the entries are about.

    Args:
        custody_entries: All entries of each of its logs.
        sites: All sites of the topology: which of them are ships decides which entries are believed.
        owners: All owner codes: they tell which logs are those of containers.

    Until the topology is written (there are no sites), every entry is believed.
    """
    kinds = {row["site"]: row["kind"] for row in sites.select("site", "kind").collect()}
    streams = {row["owner_code"]: row["stream"] for row in owners.select("owner_code", "stream").collect()}
    rules = history_rules(kinds, streams) if kinds else None

    def intervals(entries: pa.Table) -> pa.Table:
        return rows_of_entries(entries.sort_by([("log", "ascending"), ("log_offset", "ascending")]), rules)

    about = custody_entries.where("entry_log is not null").select("entry_log", *_NEEDED)
    return about.groupBy("entry_log").applyInArrow(intervals, CUSTODY.spark_schema)


def rows_of(entries: Iterable[LedgerEntry]) -> pa.Table:
    """Return the intervals of every log that the entries name. All entries of a log must be there."""
    rows = [row for chain in chains(entries) for row in _rows(chain)]
    return pa.Table.from_pylist(rows, schema=CUSTODY.plain_schema)


def rows_of_entries(entries: pa.Table, rules: Rules | None) -> pa.Table:
    """Return the intervals from rows of ``custody_entries`` (``log``, ``log_offset`` and ``payload``), without entries
    that are not believed. Without ``rules`` all entries are believed."""
    return rows_of(each.entry for each in believed_of(entries, rules))


def believed_of(entries: pa.Table, rules: Rules | None) -> list[Told]:
    """Return the believed entries in rows of ``custody_entries``. All entries of a log must be there."""
    told = list(_told(entries))
    return sift(rules, told)[0] if rules is not None else told


def _told(entries: pa.Table) -> Iterator[Told]:
    for ledger, offset, payload in zip(*(entries[name].to_pylist() for name in _NEEDED), strict=True):
        with contextlib.suppress(*UNREADABLE):  # their row has the column ``problem``
            yield Told(ledger, offset, ledger_entries.decode(payload))


def _rows(chain: Chain) -> Iterable[dict[str, Any]]:
    name = parse_log(chain.log)
    number = name.key if name is not None else None
    for each in chain.intervals:
        yield {
            "log": chain.log,
            "equipment_reference": number,
            "term": each.term,
            "holder": each.holder,
            "marker_offset": each.marker_offset,
            "from_offset": min(each.from_offset, MOST),  # a ledger may name any marker
            "to_offset": each.to_offset,
            "from_date_time": each.event_date_time,
            "to_date_time": each.to_date_time,
            "event": each.event,
            "event_id": each.event_id,
            "from_site": each.from_site,
            "granted_by": each.granted_by,
            "granted_date_time": each.granted_date_time,
            "ordered_by": each.ordered_by,
            "reason": each.reason,
            "lost": each.lost,
        }
