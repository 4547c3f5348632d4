"""Table ``feeds``: which record each customer was given, with the log and offset it was copied from; and the table of
one customer, its feed as rows, in a folder of its own to give to the customer (``customers/<customer>``).

Table ``feeds`` has one row per data record of the feeds' logs. Rows of customer ``shore`` are of the log
``alerts.shore``, which is written in the same way and has no retractions. Key: (``customer``, ``feed_offset``). Rows of
one (``customer``, ``log``, ``log_offset``), in the order of the feed, alternate: the first delivers the record, the
next takes it back, the one after that delivers it again. That is what "exactly once" means here. The table is filled
only from the feed logs (``shore.sink.exactly_once``), so it can be deleted and is filled again. Late data: see
``shore.feeds``.

A customer's table has one row per data record of ``feeds.<customer>``. Key: ``feed_offset``. Like table ``feeds``, it
is filled only by reading the feed, so it can be deleted and is filled again as far as the feed reaches back. A record
that was taken back keeps its row, and a row with ``retracts`` follows.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

_TEXT = pa.string()

FEEDS = Table(
    name="feeds",
    title="What each customer was given",
    columns=(
        Column("customer", pa.string(), "Customer, as the topology names it; shore: the log of its alerts"),
        Column("feed_offset", pa.int64(), "Offset in the log feeds.<customer>; of customer shore: in alerts.shore"),
        Column("log", pa.string(), "Log the record was copied from; with a slash: what was made for the feed"),
        Column("log_offset", pa.int64(), "Its offset there; of an hour: hours since 1970"),
        Column("equipment_reference", pa.string(), "ISO 6346 container number"),
        Column("device_date_time", TIME, "Device time of the record"),
        Column("retracts", pa.bool_(), "Whether it takes that record back"),
        Column("revision", pa.int32(), "Of what was made for the feed: how often it had been said before"),
        Column("digest", pa.string(), "Of what was made for the feed: MD5 of its content without the revision"),
    ),
    key=("customer", "feed_offset"),
    grain="One row per data record of a customer's feed, or of the log of shore's alerts.",
    late="A record enters when a booking entitles the customer to it, whichever of the two came first; it is taken "
    "back when the booking is corrected so that it does not.",
    layout="Clustered by container and time: a batch reads the files that may have its own containers and times.",
    cluster_by=("equipment_reference", "device_date_time"),
)

NEWEST: Final = """
    customer, log, log_offset,
    any_value(equipment_reference) as equipment_reference,
    max(feed_offset) as feed_offset,
    arg_max(device_date_time, feed_offset) as device_date_time,
    arg_max(retracts, feed_offset) as taken_back,
    max(revision) as revision,
    arg_max(digest, feed_offset) as digest
"""
"""Columns of ``feeds``, grouped by customer, log and offset: what stands there now, or is taken back."""

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
