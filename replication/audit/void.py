"""Is anything to be read in a log between an offset and its end? Asked where a consumer hears nothing. Blocking.

Compaction can remove everything up to an active segment that is still empty. A broker answers a Fetch there with no
records and no error, at every offset below the end, and librdkafka tells its user nothing of such answers: no message,
and no end of the partition either, because its position is not the end. Its statistics tell. A consumer of its own is
watched from its first answer on: it knows a partition's end from a successful answer only, so a partition whose end is
known while no partition has moved has been answered with nothing. (If one has moved, the answer may have been full.)
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Assigned

from fairlead.wire.types import TopicPartition

EVERY_MS: Final = 100  # between two statistics
SECONDS: Final = 5.0  # for one look
LOOKS: Final = 4
ANSWERS: Final = 2  # requests after the end became known: the answer that told it has been taken apart by then

Offsets = tuple[int, int]  # the first, and the first that is not meant
_decode: Final = msgspec.json.Decoder().decode


class _At(NamedTuple):
    """Where librdkafka is in one partition. ``end`` is that of committed records, -1 before the first answer."""

    offset: int
    end: int
    requests: int  # of its leader


def voids(settings: Mapping[str, Any], logs: Mapping[TopicPartition, Offsets]) -> set[TopicPartition]:
    """Those of the logs in which nothing can be read between these offsets; it was seen that there is nothing.

    Args:
        settings: Of a consumer of the site that emits no statistics yet.
    """
    left = dict(logs)
    for _ in range(LOOKS):
        if not left:
            break
        look = _Look(settings, left)
        found = look.watch()
        if not look.heard and all(found[tp] == start for tp, (start, _) in left.items()):
            return set(left)
        # What only holds control records, or the rest of a batch, is gone over without a word.
        left = {tp: (at, left[tp][1]) for tp, at in found.items() if tp not in look.heard}
    return set()


class _Look:
    """One consumer, watched until it has been told of every log's end.

    Attributes:
        heard: Logs of which anything came, and those about which nothing could be found out.
    """

    def __init__(self, settings: Mapping[str, Any], logs: Mapping[TopicPartition, Offsets]) -> None:
        self.heard: set[TopicPartition] = set()
        self._logs = logs
        self._first: dict[TopicPartition, _At] = {}  # when the end became known, or the position changed last
        self._now: dict[TopicPartition, _At] = {}
        own = {"statistics.interval.ms": EVERY_MS, "stats_cb": self._take, "fetch.wait.max.ms": EVERY_MS}
        self._consumer = Consumer({**settings, **own})

    def watch(self) -> dict[TopicPartition, int]:
        """Where the consumer has come to rest in each log."""
        deadline = time.monotonic() + SECONDS
        try:
            self._consumer.assign([Assigned(tp.topic, tp.partition, start) for tp, (start, _) in self._logs.items()])
            while time.monotonic() < deadline and not all(map(self._rests, self._logs)):
                message = self._consumer.poll(EVERY_MS / 1000)
                if message is not None:
                    self.heard.add(TopicPartition(message.topic() or "", message.partition() or 0))
        finally:
            self._consumer.close()
        self.heard |= {tp for tp in self._logs if not self._rests(tp)}
        return {tp: self._now[tp].offset if tp in self._now else start for tp, (start, _) in self._logs.items()}

    def _rests(self, tp: TopicPartition) -> bool:
        first, now = self._first.get(tp), self._now.get(tp)
        return tp in self.heard or (
            first is not None and now is not None and now.requests >= first.requests + ANSWERS and self._is_told(tp)
        )

    def _is_told(self, tp: TopicPartition) -> bool:
        return self._now[tp].end >= self._logs[tp][1]

    def _take(self, statistics: str) -> None:
        found = _decode(statistics)
        requests = {each["nodeid"]: each["req"].get("Fetch", 0) for each in found["brokers"].values()}
        for tp in self._logs:
            part = found["topics"].get(tp.topic, {"partitions": {}})["partitions"].get(str(tp.partition))
            if part is None or part["fetch_state"] != "active" or part["next_offset"] < 0:
                continue
            now = _At(part["next_offset"], min(part["hi_offset"], part["ls_offset"]), requests.get(part["leader"], 0))
            self._now[tp] = now
            if self._is_told(tp) and (tp not in self._first or self._first[tp].offset != now.offset):
                self._first[tp] = now
