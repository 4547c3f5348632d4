"""The state of a yard, as the rules see it: it lies still, and its clock is that of its containers' readings. Pure.

A yard has no position reports, so the readings move its clock. They come through the same queue as all others: after an
outage of the bridge, the clock moves on as the readings of the outage come in, and no container counts as silent for
it. Two containers must agree: the clock is at the time of the second newest one. So one device with a wrong clock does
not move it, and a yard in which nothing reports has no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edge.alerts.ship import ShipState

TICK_MS: Final = 5 * 60_000
"""How far the clock moves between two rounds of the rules over all containers, in milliseconds."""


@dataclass(slots=True)
class YardState(ShipState):
    """A yard and its containers by number. It has no IMO number, no speed and no place of its own."""

    _newest: str = ""
    _newest_ms: int = 0
    _ticked_ms: int = 0

    def hear(self, number: str, device_ms: int, now_ms: int) -> None:
        """Move the clock by a reading. A device whose clock is ahead of the site's does not move it."""
        if device_ms > now_ms or device_ms <= self.at_ms:
            return
        if number == self._newest:
            self._newest_ms = max(self._newest_ms, device_ms)
        elif device_ms > self._newest_ms:
            self.at_ms = self._newest_ms
            self._newest, self._newest_ms = number, device_ms
        else:
            self.at_ms = device_ms

    def is_due(self) -> bool:
        """Return, once in ``TICK_MS`` of the yard's clock, that the rules are to judge what time alone shows."""
        if self.at_ms - self._ticked_ms < TICK_MS:
            return False
        self._ticked_ms = self.at_ms
        return True

    def lies_still(self, at_ms: int) -> bool:
        return True

    def under_way(self, at_ms: int) -> bool:
        return False
