"""How fast a link may go, and how much to ask for at a time. Pure; clocks are parameters.

``LinkBudget`` is a token bucket per priority class, strict between classes: a byte of one class is charged to that
class and to every later one, never to an earlier one. So an alert finds its own bucket as full as alerts have left
it, whatever bulk traffic has done, and all classes together keep to the rate.

``FetchSizer`` learns how much one Fetch should ask for. Whatever follows an answer on the link waits for it, so an
answer should take about ``ANSWER_SECONDS`` at the speed that the link has shown. On a long link that is not enough:
between two answers nothing moves for one round trip, so an answer has to last for ``ROUND_TRIPS`` of them to fill the
link to ``ROUND_TRIPS / (ROUND_TRIPS + 1)``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from replication.catalog import CLASSES
from topologies.model import Priority


class TokenBucket:
    """Bytes that may be moved now: refilled at ``rate`` a second up to ``burst``, may go into debt.

    Debt is what makes it exact: a record batch cannot be cut, so the last one may be larger than what was left, and
    the next waits until that is paid.
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

    def charge(self, count: int, now: float) -> None:
        self.available(now)
        self._tokens -= count

    def wait(self, now: float) -> float:
        """Seconds until something may be moved again; 0 when it may be now."""
        short = 1.0 - self.available(now)
        return short / self.rate if short > 0 else 0.0


LEAST_BYTES: Final = 4096  # smaller requests than this cost more than they spare
LEAST_SECONDS: Final = 0.6  # two fetchers that ask for so much by turns fill a satellite's link and its round trip


class LinkBudget:
    """The rate of one link, divided by strict priority. Without a rate everything is allowed at once."""

    def __init__(self, rate: int | None, *, now: float) -> None:
        self.rate = rate
        self.least = max(LEAST_BYTES, int((rate or 0) * LEAST_SECONDS))  # to ask for at least
        self._buckets: dict[Priority, TokenBucket] = {}
        if rate is not None:
            burst = max(1, rate)  # what comes in a second
            self._buckets = {each: TokenBucket(rate, burst, now=now) for each in CLASSES}

    def wait(self, priority: Priority, now: float) -> float:
        """Seconds before a request of this class may be sent."""
        bucket = self._buckets.get(priority)
        return bucket.wait(now) if bucket else 0.0

    def allowance(self, priority: Priority, now: float, most: int) -> int:
        """Bytes to ask for in one request, at least 1 and at most ``most``."""
        bucket = self._buckets.get(priority)
        return max(1, min(most, int(bucket.available(now)))) if bucket else most

    def charge(self, priority: Priority, count: int, now: float) -> None:
        """Account for bytes that have come over the link, whatever they were."""
        if self._buckets:
            for each in CLASSES[CLASSES.index(priority) :]:
                self._buckets[each].charge(count, now)


LEAST: Final = 16 << 10  # smaller answers cost more than they spare
USUAL: Final = 4 << 20  # on a fast short link more gains nothing, and holds up what follows
MOST: Final = 32 << 20
ANSWER_SECONDS: Final = 0.4
ROUND_TRIPS: Final = 10
STEP: Final = 4  # how much larger or smaller the next may be
FULL: Final = 0.5  # an answer below this share of what was asked for says nothing about the link


class FetchSizer:
    """Bytes to ask for next, learned from the answers so far."""

    def __init__(self, round_trip: float) -> None:
        """``round_trip``: seconds, as measured when the link came up."""
        self._round_trip = round_trip
        self.size = LEAST * 2

    def observe(self, asked: int, got: int, seconds: float) -> None:
        """An answer to a request for ``asked`` bytes brought ``got``, ``seconds`` from its first byte to its last."""
        if got < asked * FULL:
            return
        speed = got / max(seconds, 1e-4)
        best = max(min(USUAL, speed * ANSWER_SECONDS), min(MOST, speed * self._round_trip * ROUND_TRIPS))
        self.size = int(max(LEAST, self.size / STEP, min(best, self.size * STEP)))


REFRESH: Final = (1.0, 300.0)  # seconds between two looks for new logs
QUIET: Final = (10.0, 3.0)  # after this many seconds without a new one: this many seconds at least
REFRESH_BYTES: Final = (60_000.0, 6_000.0)  # bytes a second that looking may cost, while there is news and when not
THIN_SHARE: Final = (0.25, 0.05)  # of a link's rate that looking may take, while there is news and when not


def refresh_pause(size: int, quiet: float, rate: int | None = None) -> float:
    """Seconds to wait before a cluster whose topics take ``size`` bytes to list is asked again, after ``quiet`` seconds
    without news, over a link with this rate."""
    calm = quiet > QUIET[0]
    least = QUIET[1] if calm else REFRESH[0]
    if rate is not None:
        return max(size / min(rate * THIN_SHARE[calm], REFRESH_BYTES[calm]), least)
    return min(max(size / REFRESH_BYTES[calm], least), REFRESH[1])


class ReadPace:
    """A token bucket with a clock; without a rate nothing ever waits. One for each site.

    Args:
        rate: Bytes per second, or None.
        clock: Seconds, monotonic.
    """

    def __init__(self, rate: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self._clock = clock
        self._bucket = None if rate is None else TokenBucket(rate, max(1, rate // 2), now=clock())

    def wait(self) -> float:
        """Seconds until something may be read; 0 when it may be now."""
        return self._bucket.wait(self._clock()) if self._bucket else 0.0

    def allowance(self, most: int) -> int:
        """Bytes to ask for now, at least 1 and at most ``most``."""
        return max(1, min(most, int(self._bucket.available(self._clock())))) if self._bucket else most

    def charge(self, count: int) -> None:
        """Account for bytes that were read."""
        if self._bucket:
            self._bucket.charge(count, self._clock())
