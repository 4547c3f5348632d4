"""Limit a link's rate, and compute how many bytes to request at a time. Pure; clocks are parameters.

``LinkBudget`` has a token bucket for each priority class. A byte is charged to its own class and to every later class,
never to an earlier one. So bulk traffic never delays an alert, and all classes together keep to the rate.

``FetchSizer`` learns how many bytes one Fetch should request. Everything else on the link waits for an answer, so an
answer should take about ``ANSWER_SECONDS`` at the measured speed. On a long link nothing moves for one round trip
between two answers, so an answer must last for ``ROUND_TRIPS`` round trips to fill the link to
``ROUND_TRIPS / (ROUND_TRIPS + 1)``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from replication.catalog import CLASSES
from topologies.model import Priority


class TokenBucket:
    """A budget of bytes that may be moved now: refilled at ``rate`` bytes/s up to ``burst``; may go into debt.

    A record batch cannot be cut, so the last one may be larger than what was left; the next waits until that is paid.
    """

    def __init__(self, rate: int, burst: int, *, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self._tokens = float(burst)
        self._at = now

    def available(self, now: float) -> float:
        """Bytes that may be moved at ``now`` (seconds of a monotonic clock); negative when in debt."""
        if now > self._at:
            self._tokens = min(float(self.burst), self._tokens + (now - self._at) * self.rate)
            self._at = now
        return self._tokens

    def set_rate(self, rate: int, now: float) -> None:
        """Refill at another rate from ``now`` on, up to what that brings in a second."""
        self.available(now)
        self.rate = self.burst = rate
        self._tokens = min(self._tokens, float(rate))

    def charge(self, count: int, now: float) -> None:
        self.available(now)
        self._tokens -= count

    def wait(self, now: float) -> float:
        """Seconds until something may be moved again; 0 if it may be now."""
        short = 1.0 - self.available(now)
        return short / self.rate if short > 0 else 0.0


LEAST_BYTES: Final = 4096  # smaller requests cost more than they save
LEAST_SECONDS: Final = 0.6  # two fetchers that request this much in turn fill a satellite link


class LinkBudget:
    """The rate of one link, shared by strict priority. Without a rate nothing waits."""

    def __init__(self, rate: int | None, *, now: float) -> None:
        self.rate = self._whole = rate
        self.least = max(LEAST_BYTES, int((rate or 0) * LEAST_SECONDS))  # smallest request in bytes
        self._buckets: dict[Priority, TokenBucket] = {}
        if rate is not None:
            burst = max(1, rate)
            self._buckets = {each: TokenBucket(rate, burst, now=now) for each in CLASSES}

    def divide(self, members: int, now: float) -> None:
        """Use an even part of the link's rate, because so many replicators share the link."""
        if self._whole is not None:
            self.rate = max(1, self._whole // members)
            self.least = max(LEAST_BYTES, int(self.rate * LEAST_SECONDS))
            for bucket in self._buckets.values():
                bucket.set_rate(self.rate, now)

    def wait(self, priority: Priority, now: float) -> float:
        """Seconds before a request of this class may be sent."""
        bucket = self._buckets.get(priority)
        return bucket.wait(now) if bucket else 0.0

    def allowance(self, priority: Priority, now: float, most: int) -> int:
        """Bytes to request at once, at least 1 and at most ``most``."""
        bucket = self._buckets.get(priority)
        return max(1, min(most, int(bucket.available(now)))) if bucket else most

    def charge(self, priority: Priority, count: int, now: float) -> None:
        """Account for bytes that came over the link, of whatever kind."""
        if self._buckets:
            for each in CLASSES[CLASSES.index(priority) :]:
                self._buckets[each].charge(count, now)


LEAST: Final = 16 << 10  # smaller answers cost more than they save
USUAL: Final = 4 << 20  # on a fast short link more gains nothing and delays what follows
MOST: Final = 32 << 20
ANSWER_SECONDS: Final = 0.4
ROUND_TRIPS: Final = 10
STEP: Final = 4  # the next size differs at most by this factor
FULL: Final = 0.5  # an answer below this share of the request does not show the link's speed


class FetchSizer:
    """Learns the size of the next request from the answers so far."""

    def __init__(self, round_trip: float) -> None:
        """``round_trip``: seconds, as measured when the link came up."""
        self._round_trip = round_trip
        self.size = LEAST * 2

    def observe(self, asked: int, got: int, seconds: float) -> None:
        """Learn from an answer of ``got`` bytes to a request for ``asked``, received within ``seconds``."""
        if got < asked * FULL:
            return
        speed = got / max(seconds, 1e-4)
        best = max(min(USUAL, speed * ANSWER_SECONDS), min(MOST, speed * self._round_trip * ROUND_TRIPS))
        self.size = int(max(LEAST, self.size / STEP, min(best, self.size * STEP)))


REFRESH: Final = (1.0, 300.0)  # least and most seconds between two listings of topics
QUIET: Final = (10.0, 3.0)  # after 10 s without a new topic, at least 3 s between listings
REFRESH_BYTES: Final = (60_000.0, 6_000.0)  # bytes a second for listings, with and without new topics
THIN_SHARE: Final = (0.25, 0.05)  # of a link's rate for listings, with and without new topics
TAKEN: Final = 2.0  # times as long as a listing took, at least: brokers that are busy are not asked all the time
SOON: Final = (4.0, 1_800_000.0)  # seconds between two listings, and most bytes a second: 100,000 topics need these


def refresh_pause(size: int, quiet: float, rate: int | None = None, *, soon: bool = False, took: float = 0.0) -> float:
    """Seconds until a cluster's topics are listed again.

    Args:
        size: Bytes that a listing takes.
        quiet: Seconds since the last new topic.
        rate: The link's rate in bytes a second, if it has one.
        soon: Whether a new topic must be noticed within seconds, unless the link has a rate.
        took: Seconds that the last listing took.
    """
    calm = quiet > QUIET[0]
    least = max(QUIET[1] if calm else REFRESH[0], TAKEN * took)
    if rate is not None:
        return max(size / min(rate * THIN_SHARE[calm], REFRESH_BYTES[calm]), least)
    pause = min(max(size / REFRESH_BYTES[calm], least), REFRESH[1])
    return min(pause, max(SOON[0], size / SOON[1], TAKEN * took)) if soon else pause


class ReadPace:
    """A token bucket with a clock, for reading one site. Without a rate nothing waits.

    Args:
        rate: Bytes per second, or None.
        clock: Seconds, monotonic.
    """

    def __init__(self, rate: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._bucket = None if rate is None else TokenBucket(rate, max(1, rate // 2), now=clock())

    def wait(self) -> float:
        """Seconds until something may be read; 0 if it may be now."""
        return self._bucket.wait(self._clock()) if self._bucket else 0.0

    def allowance(self, most: int) -> int:
        """Bytes to request now, at least 1 and at most ``most``."""
        return max(1, min(most, int(self._bucket.available(self._clock())))) if self._bucket else most

    def charge(self, count: int) -> None:
        """Account for bytes that were read."""
        if self._bucket:
            self._bucket.charge(count, self._clock())
