"""Run the machine in Spark's ``transformWithState``: a bucket of many logs is one key, with one value and one timer.

The exchanges between Python and the JVM dominate the cost. With a key for each log, every batch has four exchanges per
log, 0.4 ms on a quiet machine and ten times that on a busy one. So a checksum of their names spreads logs over
``BUCKETS`` keys, and a batch has four exchanges per bucket.

Time is the query's watermark: the newest device time of all readings, except those whose clock is ahead of the
bridge's, minus ``WATERMARK_DELAY_MS``. No row is late for Spark: ``shore.jobs.alerts`` explains why.

``watched`` decides whose silence shore reports when time passes. The ship watches a box aboard, whose readings come
ashore only when the ship is at a berth. A box that left the system (GTOT) need not report. Shore reports a silence of
the others only if their site has been heard since the box was due. Otherwise the site, or the link from it, is silent
and not the box. ``containers_now`` has what is known of sites.

A batch reads ``containers_now`` as it was at the batch's own time, which is the same when Spark runs the batch again.
With what is known by then, the batch could find another silence, which would be in the state and not in the table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, StructField, StructType

from shore.alerts.machine import State, advance, expire, number_of
from shore.alerts.rules import COLUMNS, BoxState, Bucket, pack, reading_of, unpack

UNKNOWN = ""  # holder of containers that no ledger names
_COLUMNS = ["equipment_reference", "holder", "holder_kind", "custody_event", "reading_date_time", "reading_source"]


class Sites(NamedTuple):
    """What is known of sites.

    Args:
        holders: The site that reports each container; None: none reports it to shore. Missing containers: ``UNKNOWN``.
        clocks: Time of the newest reading of each site's containers, milliseconds since 1970.
    """

    holders: Mapping[str, str | None]
    clocks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SitesThen:
    """Reads what was known of sites at a time. ``location``: of table ``containers_now``."""

    location: str

    def __call__(self, at_ms: int) -> Sites:
        """Return what was known at this time, milliseconds since 1970; what is known now if that version is gone, or
        damaged."""
        table = DeltaTable(self.location)
        newest = table.version()
        try:
            boxes = _boxes(table, dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC))
        except (DeltaError, OSError, pa.ArrowInvalid):
            boxes = _boxes(table, newest)
        times = pc.cast(boxes["reading_date_time"], "int64").to_pylist()
        holders: dict[str, str | None] = {}
        clocks: dict[str, int] = {}
        kinds, events = boxes["holder_kind"].to_pylist(), boxes["custody_event"].to_pylist()
        names, holding = boxes["equipment_reference"].to_pylist(), boxes["holder"].to_pylist()
        sources = boxes["reading_source"].to_pylist()
        for box, holder, kind, event, micros, source in zip(names, holding, kinds, events, times, sources, strict=True):
            site = holder if holder is not None else UNKNOWN
            holders[box] = None if kind == "ship" or event == "GTOT" else site
            # A digest comes ahead of its ship's readings: it does not show that a site's readings are here.
            if micros is not None and event != "GTOT" and source != "DIGEST":
                clocks[site] = max(clocks.get(site, 0), micros // 1000)
        return Sites(holders, clocks)


def _boxes(table: DeltaTable, version: int | dt.datetime) -> pa.Table:
    table.load_as_version(version)
    return table.to_pyarrow_dataset().to_table(columns=_COLUMNS)


def watched(number: str, due_ms: int, sites: Sites) -> bool:
    """Return whether shore reports a silence of this container, which was due at ``due_ms``."""
    holder = sites.holders.get(number, UNKNOWN)
    return holder is not None and sites.clocks.get(holder, 0) >= due_ms


BUCKETS: Final = 64
"""The number of keys. A checkpoint is bound to it: with another number all logs would begin anew."""
_STATE = StructType([StructField("bucket", BinaryType(), False)])
_VALUES = attrgetter("log", *COLUMNS)
_ORDER = itemgetter(0, 1)  # log, offset


class Detection(StatefulProcessor):
    """Readings of logs in, rows of ``alerts_ashore`` out. Input rows have the columns ``log`` and ``COLUMNS``.

    Args:
        sites: Returns what was known of sites at a time, milliseconds since 1970: that of the batch. Called at most
            once a task, when a box is overdue.
    """

    def __init__(self, sites: Callable[[int], Sites]) -> None:
        self._sites = sites

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Store the state handle. Spark calls this for every task, on a copy of the processor."""
        self._handle = handle
        self._state = handle.getValueState("bucket", _STATE)
        self._known: Sites | None = None

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        """Judge all rows (``Row``) of a bucket's logs in this batch, each log in the order of its offsets."""
        bucket, now_ms = self._bucket() or Bucket(), timerValues.getCurrentWatermarkInMs()
        due_ms = bucket.timer_ms
        values = sorted(map(_VALUES, rows), key=_ORDER)
        for log, group in groupby(values, key=itemgetter(0)):
            readings = (reading_of(value[1:]) for value in group)
            box, states = advance(log, bucket.boxes.get(log), readings, now_ms=now_ms)
            if box is not None:
                bucket.boxes[log] = box
                due_ms = min(due_ms, box.due_ms) if due_ms else box.due_ms
            yield from map(_row, states)
        due_ms = max(due_ms, now_ms + 1)
        if not bucket.timer_ms or due_ms < bucket.timer_ms:
            if bucket.timer_ms:
                self._handle.deleteTimer(bucket.timer_ms)
            self._keep(bucket, due_ms)
        else:
            self._state.update((pack(bucket),))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Judge the passing of time, after the rows of the batch. Forget boxes that sent nothing for ``FORGET_MS``."""
        bucket, now_ms = self._bucket(), timerValues.getCurrentWatermarkInMs()
        if bucket is None:
            return
        due_ms: list[int] = []
        for log, box in list(bucket.boxes.items()):
            overdue = box.due_ms <= now_ms
            expiry = expire(log, box, now_ms, watched=overdue and self._is_watched(log, box, timerValues))
            if expiry.box is None:
                del bucket.boxes[log]
            else:
                due_ms.append(expiry.look_again_ms)
            yield from map(_row, expiry.states)
        if bucket.boxes:
            self._keep(bucket, min(due_ms))
        else:
            self._state.clear()

    def close(self) -> None:
        """Do nothing: the processor holds no resources."""

    def _bucket(self) -> Bucket | None:
        stored = self._state.get()
        return unpack(stored[0]) if stored is not None else None

    def _keep(self, bucket: Bucket, timer_ms: int) -> None:
        """Store the bucket and register its new timer."""
        bucket.timer_ms = timer_ms
        self._handle.registerTimer(timer_ms)
        self._state.update((pack(bucket),))

    def _is_watched(self, log: str, box: BoxState, times: TimerValues) -> bool:
        if self._known is None:
            self._known = self._sites(times.getCurrentProcessingTimeInMs())
        return watched(number_of(log), box.due_ms, self._known)


def _row(state: State) -> Row:
    return Row(**state._asdict())
