"""The machine in Spark's ``transformWithState``: one log is one key, its box is the state, one timer each.

What crosses between Python and the JVM is what costs (some 0.1 ms each time), so the whole box is one value, and its
timer is moved only when it has fired or would fire too late.

Time is the query's watermark: the newest device time of all readings but those whose clock is ahead of the bridge's.
Rows must not be dropped because they are older than it, as Spark does by itself: ``shore.jobs.alerts`` sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from operator import attrgetter
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import BinaryType, StructField, StructType

from shore.alerts.box import COLUMNS, Box, pack, reading_of, unpack
from shore.alerts.machine import State, advance, expire
from shore.alerts.watched import UNKNOWN, watched

_STATE = StructType([StructField("box", BinaryType(), False)])
_VALUES = attrgetter(*COLUMNS)


class Detection(StatefulProcessor):
    """Readings of logs in, rows of ``alerts_ashore`` out.

    Args:
        holders: Gives who holds each log now; asked at most once a task, when a timer has fired.
        ships: Sites that watch their boxes themselves.
    """

    def __init__(self, holders: Callable[[], Mapping[str, str | None]], ships: Collection[str]) -> None:
        self._holders = holders
        self._ships = frozenset(ships)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Called for every task, with a copy of the processor of its own."""
        self._handle = handle
        self._state = handle.getValueState("box", _STATE)
        self._logs: set[str] = set()  # that brought readings in this task
        self._known: Mapping[str, str | None] | None = None
        self._heard: frozenset[str | None] = frozenset()

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        """All rows (``Row``) of a log in this batch; their order is that of their offsets."""
        log, now_ms = key[0], timerValues.getCurrentWatermarkInMs()
        self._logs.add(log)
        readings = sorted((reading_of(_VALUES(row)) for row in rows), key=attrgetter("offset"))
        box, states = advance(log, self._box(), readings, now_ms=now_ms)
        if box is not None:
            due_ms = max(box.due_ms, now_ms + 1)
            if not box.timer_ms or due_ms < box.timer_ms:
                if box.timer_ms:
                    self._handle.deleteTimer(box.timer_ms)
                self._set_timer(box, due_ms)
            self._state.update((pack(box),))
        yield from map(_row, states)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Called after the rows of the batch. A box of which nothing came for very long is forgotten here."""
        box = self._box()
        if box is None:
            return
        now_ms = timerValues.getCurrentWatermarkInMs()
        expiry = expire(key[0], box, now_ms, watched=self._is_watched(key[0]))
        if expiry.box is None:
            self._state.clear()
        else:
            self._set_timer(expiry.box, expiry.look_again_ms)
            self._state.update((pack(expiry.box),))
        yield from map(_row, expiry.states)

    def close(self) -> None:
        """Nothing is held."""

    def _box(self) -> Box | None:
        stored = self._state.get()
        return unpack(stored[0]) if stored is not None else None

    def _set_timer(self, box: Box, at_ms: int) -> None:
        self._handle.registerTimer(at_ms)
        box.timer_ms = at_ms

    def _is_watched(self, log: str) -> bool:
        if self._known is None:
            self._known = self._holders() if self._logs else {}
            self._heard = frozenset(self._known.get(each, UNKNOWN) for each in self._logs)
        return watched(log, self._known, self._heard, self._ships)


def _row(state: State) -> Row:
    return Row(**state._asdict())
