"""The table of one customer: its feed as rows, in a folder of its own to give to the customer
(``customers/<customer>``).

Grain: one row per data record of ``feeds.<customer>``. Key: ``feed_offset``. Like table ``feeds``, it is filled only by
reading the feed, so it can be deleted and is filled again as far as the feed reaches back. A record that was taken back
keeps its row, and a row with ``retracts`` follows.
"""

from __future__ import annotations

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

_TEXT = pa.string()

CUSTOMER_FEED = Table(
    name="feed",
    title="What this customer was given",
    columns=(
        Column("feed_offset", pa.int64(), "Offset in the log feeds.<customer>"),
        Column(
            "kind", _TEXT, "reading, alert, custody, digest, conditions, milestone, movement; of a retraction: of what"
        ),
        Column("equipment_reference", _TEXT, "ISO 6346 container number; of a ship's movement its IMO number"),
        Column("device_date_time", TIME, "Device time of the record, or time of the event"),
        Column("log", _TEXT, "Where it was copied from; with a slash: what was made for the feed"),
        Column("log_offset", pa.int64(), "Its offset there"),
        Column("retracts", pa.bool_(), "Whether it takes back the rows before it of the same log and log_offset"),
        Column("revision", pa.int32(), "Of what was made for the feed: the newest counts"),
        Column("value", _TEXT, "The record as in the feed, JSON"),
    ),
    key=("feed_offset",),
    grain="One row per data record of the customer's feed.",
    late="In the order of the feed. The last row of a log and log_offset counts, and none where that one retracts.",
    layout="Not partitioned; feed_offset has the order, files may have another after a compaction.",
)
