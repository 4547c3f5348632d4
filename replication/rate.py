"""How fast a link may go: a token bucket per priority class, strict between classes. Pure; the clock is a parameter.

A byte of one class is charged to that class and to every later one, never to an earlier one. So whatever bulk has
done, an alert finds its own bucket as full as alerts have left it, and all classes together keep to the rate.
"""

from __future__ import annotations

from typing import Final

from topologies.model import Priority

CLASSES: tuple[Priority, ...] = (Priority.CONTROL, Priority.URGENT, Priority.NORMAL, Priority.BULK)
"""In the order in which they go."""


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
LEAST_SECONDS: Final = 0.6  # two lanes that ask for so much by turns fill a satellite's link and its round trip


class LinkBudget:
    """The rate of one link, divided by strict priority. Without a rate everything is allowed at once."""

    def __init__(self, rate: int | None, *, now: float, burst_seconds: float = 1.0) -> None:
        self.rate = rate
        self.least = max(LEAST_BYTES, int((rate or 0) * LEAST_SECONDS))  # to ask for at least
        self._buckets: dict[Priority, TokenBucket] = {}
        if rate is not None:
            burst = max(1, int(rate * burst_seconds))
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
