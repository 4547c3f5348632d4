"""Table ``feeds``: which record each customer was given, with the log and offset it was copied from.

Rows of customer ``shore`` are of the log ``alerts.shore`` instead, which is written in the same way and has no
retractions.

Grain: one row per data record of these logs. Key: (``customer``, ``feed_offset``). Rows of one (``customer``,
``log``, ``log_offset``), in the order of the feed, alternate: the first delivers the record, the next takes it back,
the one after that delivers it again. That is what "exactly once" means here. The table is filled only from the feed
logs (``shore.sink.exactly_once``), so it can be deleted and is filled again. Late data: see ``shore.feeds``.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from shore.tables.model import TIME, Column, Table

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
        Column("retracts", pa.bool_(), "Whether it takes that record back; null: no, in rows of older versions"),
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
    arg_max(coalesce(retracts, false), feed_offset) as taken_back,
    max(revision) as revision,
    arg_max(digest, feed_offset) as digest
"""
"""Columns of ``feeds``, grouped by customer, log and offset: what stands there now, or is taken back."""
