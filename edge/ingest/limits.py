"""Limits how much one device may publish, with a token bucket per MQTT topic of a device. Pure.

PUBACKs are sent in the order of receipt, so a message that waits makes all later ones wait. Messages over the limit are
therefore handled at once: some are kept whole as dead letters (``flood``), the rest are acknowledged and dropped. Drops
are counted, logged, and raise an alert that names the device.

Topics that several publishers share (events, bookings) have no limit, because MQTT does not name the publisher.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from edge.alerts.site_alerts import DEVICE_FLOOD, AlertSource, SiteCondition
from edge.logwriter import records
from edge.messages import ROOT
from fairlead.records.alert import Alert

log = logging.getLogger(__name__)

BURST_MESSAGES: Final = 20_000  # at once: half a year of readings, one in 15 minutes, after a long time offline
MESSAGES_PER_SECOND: Final = 10.0  # after the burst
BURST_BYTES: Final = 64 << 20
BYTES_PER_SECOND: Final = 64 << 10
LETTERS: Final = 1_000  # messages over the limit that are kept, per topic and day
_DAY_MS: Final = 24 * 3600 * 1000
_CALM_MS: Final = 10 * 60 * 1000  # without a message over the limit until the alert is cleared
_LOG_EVERY_MS: Final = 60 * 1000
_REMEMBERED: Final = 65_536  # topics
_OF_ONE_DEVICE: Final = (f"{ROOT}/containers/", f"{ROOT}/ships/")


class Decision(Enum):
    """The decision about a message: take it, keep it as a dead letter, or drop it."""

    TAKE = "take"
    LETTER = "letter"
    DROP = "drop"


class _Bucket:
    """The messages and bytes that one topic may still publish."""

    __slots__ = ("bytes", "messages", "seen_ms")

    def __init__(self, now_ms: int) -> None:
        self.messages = float(BURST_MESSAGES)
        self.bytes = float(BURST_BYTES)
        self.seen_ms = now_ms


class _Flood:
    """The messages that one topic has published over its limit."""

    __slots__ = ("device", "dropped", "last_ms", "letters", "letters_since_ms", "logged_ms", "since_ms")

    def __init__(self, now_ms: int, device: str) -> None:
        self.device = device
        self.since_ms = self.letters_since_ms = now_ms
        self.last_ms = now_ms
        self.letters = 0
        self.dropped = 0
        self.logged_ms = 0

    def no_later_than(self, now_ms: int) -> None:
        """Put times that are ahead of the clock, because it was set back, to now."""
        self.last_ms = min(self.last_ms, now_ms)
        self.letters_since_ms = min(self.letters_since_ms, now_ms)
        self.logged_ms = min(self.logged_ms, now_ms)


class DeviceLimits:
    """The limits of all devices at one site."""

    def __init__(self, site: str) -> None:
        self._site = site
        self._buckets: dict[str, _Bucket] = {}
        self._floods: dict[str, _Flood] = {}
        self._since_ms: int | None = None  # since when this bridge knows whether a message was over the limit
        self.dropped = 0

    def check(self, topic: str, payload: bytes, now_ms: int) -> Decision:
        """Count a message against its topic's limit, and decide what to do with it."""
        bucket = self._buckets.get(topic)
        if bucket is None:
            if not topic.startswith(_OF_ONE_DEVICE):
                return Decision.TAKE
            if len(self._buckets) >= _REMEMBERED:
                self._buckets.clear()
            bucket = self._buckets[topic] = _Bucket(now_ms)
        elapsed = (now_ms - bucket.seen_ms) / 1000
        bucket.seen_ms = now_ms
        if elapsed > 0:  # else the clock was set back, and nothing is credited for that
            messages = bucket.messages + elapsed * MESSAGES_PER_SECOND
            size = bucket.bytes + elapsed * BYTES_PER_SECOND
            # Comparisons, because two calls of ``min`` for each message would take longer than all else here.
            bucket.messages = messages if messages < BURST_MESSAGES else BURST_MESSAGES
            bucket.bytes = size if size < BURST_BYTES else BURST_BYTES
        if bucket.messages >= 1 and bucket.bytes >= len(payload):
            bucket.messages -= 1
            bucket.bytes -= len(payload)
            return Decision.TAKE
        return self._decide_over_limit(topic, payload, now_ms)

    def why(self, topic: str) -> str:
        """Return the detail text for the dead letters of a topic."""
        return (
            f"more than {BURST_MESSAGES:,} messages or {BURST_BYTES >> 20} MiB came on {topic} in a short time; from "
            f"then on its limit is {MESSAGES_PER_SECOND:g} messages and {BYTES_PER_SECOND >> 10} KiB a second"
        )

    def _decide_over_limit(self, topic: str, payload: bytes, now_ms: int) -> Decision:
        """Keep the first ``LETTERS`` of a day as dead letters, and drop all that follow."""
        flood = self._floods.get(topic)
        if flood is None:
            identity = records.identity(payload)
            flood = self._floods[topic] = _Flood(now_ms, identity.device if identity is not None else "")
        flood.no_later_than(now_ms)
        flood.last_ms = now_ms
        if now_ms - flood.letters_since_ms >= _DAY_MS:
            flood.letters, flood.letters_since_ms = 0, now_ms
        if flood.letters < LETTERS:
            flood.letters += 1
            return Decision.LETTER
        flood.dropped += 1
        self.dropped += 1
        if now_ms - flood.logged_ms >= _LOG_EVERY_MS:
            flood.logged_ms = now_ms
            log.error("%s: %s; %d messages of it are DROPPED", self._site, self._name(topic, flood), flood.dropped)
        return Decision.DROP

    # -- the alert

    def source(self) -> AlertSource:
        """Return the source of alerts: one per topic over its limit, and another one if its messages are dropped.

        Both are cleared after 10 minutes without a message over the limit.
        """
        return AlertSource(
            DEVICE_FLOOD, "flood", "ALARM", "rate", self._conditions, "no message was over the limit for 10 minutes"
        )

    def _conditions(self, now_ms: int, opened: Mapping[str, Alert]) -> Iterator[SiteCondition]:
        self._since_ms = min(self._since_ms if self._since_ms is not None else now_ms, now_ms)
        if now_ms - self._since_ms < _CALM_MS:  # the alerts of before a restart stay meanwhile
            yield from (SiteCondition(subject, now_ms, "") for subject in opened)
        for topic, flood in tuple(self._floods.items()):
            flood.no_later_than(now_ms)
            if now_ms - flood.last_ms >= _DAY_MS:
                del self._floods[topic]
            if now_ms - flood.last_ms >= _CALM_MS:
                continue
            own, name = topic.removeprefix(f"{ROOT}/"), self._name(topic, flood)
            number = own.split("/")[1] if own.startswith("containers/") else ""
            yield SiteCondition(
                own, flood.since_ms, f"{name}; {flood.letters} messages are kept as dead letters", number
            )
            if flood.dropped:
                detail = f"{name}; messages beyond {LETTERS:,} a day are dropped, {flood.dropped} so far"
                yield SiteCondition(f"{own}/dropped", flood.since_ms, detail, number)

    def _name(self, topic: str, flood: _Flood) -> str:
        device = f" (device {flood.device})" if flood.device else ""
        return f"{topic}{device} publishes more than its limit"
