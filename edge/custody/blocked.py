"""Finds logs that accept no appends although the site's Kafka works, keeps their messages as strays, raises an alert.

PUBACKs are sent in the order of receipt, so one message that cannot be stored would hold up those of every other box.
After ``BLOCKED_SECONDS`` without progress a box's log counts as blocked: its waiting messages are kept in the site's
strays log and acknowledged (``edge.logwriter.container``). In a burst, when every log waits for its turn, the limit is
longer (``Waits``). While the strays log does not answer either, Kafka as a whole is away, and all messages wait at the
MQTT broker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from edge.alerts.site_alerts import LOG_BLOCKED, AlertSource, SiteCondition
from edge.custody.term_writer import Uncreated
from edge.holdings import Holdings
from edge.logwriter.container import ContainerWriter
from edge.logwriter.writer import LogWriter
from edge.writer_registry import WriterRegistry
from fairlead.records.alert import Alert

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

BLOCKED_SECONDS: Final = 5.0  # without progress until a log's messages are kept as strays
ALERT_SECONDS: Final = 15.0  # until the alert; after a broker is killed, the others need about 10 to take over
_EVERY: Final = 0.5  # seconds between checks
_SUSPICIOUS: Final = 1.0  # seconds of any writer without progress after which the strays log is probed
_OVERDUE: Final = 2.0  # seconds within which the strays log must answer
_NAMED: Final = 10  # logs with an alert each; all others share one


class Waits(Generic[K]):
    """Measures how long each of many writers has made no progress, and finds the stuck ones.

    A writer is stuck when it has waited ``seconds``, and twice as long as the slowest writer that has made progress
    lately. So none is stuck while 2,000 boxes come in at once and each waits for its turn. Writers that were stuck do
    not count among the slowest. A slow writer's wait counts for as many seconds as it lasted.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waited: dict[K, tuple[int, float]] = {}  # progress at the last check, seconds without progress
        self._stuck: set[K] = set()
        self._usual = 0.0

    def find_stuck(self, step: float, progress: Mapping[K, int]) -> list[K]:
        """Return the stuck writers, ``step`` seconds after the last check.

        Args:
            progress: For each writer that is busy, a number that changes whenever it gets something done.
        """
        went_on = [key for key, (before, _) in self._waited.items() if progress.get(key) != before]
        self._usual = max(self._usual - step, *(self._waited[key][1] for key in went_on if key not in self._stuck), 0.0)
        self._stuck.difference_update(went_on)
        self._waited = {
            key: (now, self.seconds_of(key) + step if key in self._waited and self._waited[key][0] == now else 0.0)
            for key, now in progress.items()
        }
        limit = max(self._seconds, 2 * self._usual)
        self._stuck |= {key for key, (_, seconds) in self._waited.items() if seconds >= limit}
        return [key for key in self._waited if key in self._stuck]

    def seconds_of(self, key: K) -> float:
        """Return the seconds for which one writer has made no progress."""
        return self._waited.get(key, (0, 0.0))[1]

    @property
    def longest(self) -> float:
        """Seconds for which the slowest writer has made no progress."""
        return max((seconds for _, seconds in self._waited.values()), default=0.0)


class BlockedLogs:
    """Finds writers that make no progress, and has them keep their messages as strays.

    Args:
        uncreated: Logs that the site's Kafka could not create.
        strays_answer: Asks the broker for the end of the strays log; raises or never returns while it does not answer.
        seconds: See ``BLOCKED_SECONDS``.
    """

    def __init__(
        self,
        writers: WriterRegistry,
        holdings: Holdings,
        uncreated: Mapping[str, Uncreated],
        strays_answer: Callable[[], Awaitable[object]],
        *,
        seconds: float = BLOCKED_SECONDS,
    ) -> None:
        self._writers = writers
        self._holdings = holdings
        self._uncreated = uncreated
        self._strays_answer = strays_answer
        self._seconds = seconds
        self._waits: Waits[LogWriter[Any]] = Waits(seconds)
        self._strays_worked = seconds  # seconds without a sign of trouble, at most ``seconds``
        self._asked: asyncio.Task[object] | None = None
        self._asked_for = 0.0
        self.since_ms: dict[str, int] = {}  # wall time since when a log has accepted nothing

    async def run(self) -> None:
        """Check all writers every ``_EVERY`` seconds, until cancelled."""
        last = time.monotonic()
        try:
            while True:
                await asyncio.sleep(_EVERY)
                now = time.monotonic()
                self.check_writers(min(now - last, 2 * _EVERY))  # a pause of this process itself does not count
                last = now
        finally:
            if self._asked is not None:
                self._asked.cancel()
                await asyncio.gather(self._asked, return_exceptions=True)

    def check_writers(self, step: float) -> None:
        """Find blocked writers, ``step`` seconds after the last check, and have them keep their messages as strays."""
        stuck = self._waits.find_stuck(step, {writer: writer.progress for writer in self._writers.all() if writer.busy})
        self._watch_strays_log(step)
        holdings = self._holdings
        self._note_blocked([*(each.log for each in stuck), *holdings.broken, *holdings.unserved, *self._uncreated])
        if self._strays_worked < self._seconds:
            return
        for writer in stuck:
            if isinstance(writer, ContainerWriter) and not writer.blocked:
                log.error(
                    "%s: no append has succeeded for %.0f s; its messages are kept in %s until one does",
                    writer.log,
                    self._waits.seconds_of(writer),
                    self._writers.strays.log,
                )
                writer.keep_waiting()

    def _watch_strays_log(self, step: float) -> None:
        """Update for how long the strays log has worked: it does until its writer or a probe is overdue or fails."""
        troubled = self._waits.seconds_of(self._writers.strays.writer) >= _OVERDUE
        if self._asked is not None:
            self._asked_for += step
            if self._asked.done():
                troubled |= self._asked.cancelled() or self._asked.exception() is not None
                self._asked = None
            else:
                troubled |= self._asked_for >= _OVERDUE
        if self._asked is None and self._waits.longest >= _SUSPICIOUS:
            self._asked = asyncio.ensure_future(self._strays_answer())
            self._asked_for = 0.0
        self._strays_worked = 0.0 if troubled else min(self._strays_worked + step, self._seconds)

    def _note_blocked(self, topics: Collection[str]) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.since_ms = {topic: self.since_ms.get(topic, now_ms) for topic in topics}

    # -- the alert

    def source(self) -> AlertSource:
        """Return the source of alerts: one per log blocked for ``ALERT_SECONDS``, until its strays are in the log."""
        return AlertSource(
            LOG_BLOCKED, "blocked", "ALARM", "no-progress", self._conditions, "appends to the log succeed again"
        )

    def _conditions(self, now_ms: int, opened: Mapping[str, Alert]) -> Iterator[SiteCondition]:
        strays = self._writers.strays
        wait = [
            topic for topic in opened if topic in self.since_ms or strays.has_any_for(topic) or topic in strays.events
        ]
        late = [
            topic
            for topic, since_ms in self.since_ms.items()
            if topic not in wait and now_ms - since_ms >= ALERT_SECONDS * 1000
        ]
        room = max(0, _NAMED - len(wait))
        for topic in (*wait, *late[:room]):
            yield SiteCondition(topic, self.since_ms.get(topic, now_ms), self._detail(topic), self._number(topic))
        if rest := late[room:]:
            since_ms = min(self.since_ms[topic] for topic in rest)
            yield SiteCondition(
                "others", since_ms, f"appends fail to {len(rest)} more logs, among them {', '.join(rest[:5])}"
            )

    def _number(self, topic: str) -> str:
        return topic.partition(".")[2] if topic not in self._writers.fixed_logs else ""

    def _detail(self, topic: str) -> str:
        kept = f"its messages are kept in {self._writers.strays.log}"
        if (uncreated := self._uncreated.get(topic)) is not None:
            return f"{topic} cannot be created: {uncreated.error.what}; {kept}"
        if topic in self._writers.fixed_logs:
            return f"appends fail to {topic}, one of the site's own logs: its messages and all later ones wait"
        return f"appends fail to {topic}; {kept}"
