"""How simulated time follows the wall clock: a speed, pauses in which it stands, and no catching up after a wait."""

from __future__ import annotations

import asyncio
import datetime as dt
import time

_SLICE = 0.25  # seconds; a pause is obeyed within that, also when the next step is an hour away


class Pace:
    """Sleeps until a simulated time is due.

    Args:
        start: Simulated time at which the clock stands until it is asked first.
        speed: Simulated seconds per wall second; None is as fast as it goes.
    """

    def __init__(self, start: dt.datetime, speed: float | None) -> None:
        self._origin_sim = start
        self._origin_wall: float | None = None
        self._speed = speed
        self._reached = self._next = start  # the step before, and the one that is awaited
        self._looked = 0.0  # wall time of the last look at the clock
        self._running = asyncio.Event()
        self._running.set()

    @property
    def paused(self) -> bool:
        return not self._running.is_set()

    @property
    def now(self) -> dt.datetime:
        """Simulated time: never before the last step that was due, never after the one that is awaited."""
        if self._speed is None or self._origin_wall is None:
            return self._reached
        elapsed = dt.timedelta(seconds=(time.monotonic() - self._origin_wall) * self._speed)
        return min(max(self._reached, self._origin_sim + elapsed), self._next)

    def pause(self) -> None:
        """Stop simulated time where it is."""
        if not self.paused:
            self.hold(self.now)
            self._running.clear()

    def resume(self) -> None:
        """Go on from there."""
        self._running.set()

    def hold(self, at: dt.datetime) -> None:
        """Begin anew from here: the wall time that has passed since the last step does not count."""
        self._origin_sim, self._origin_wall = at, None
        self._reached = max(self._reached, at)

    def continued(self) -> None:
        """This process was stopped (Ctrl-Z) and goes on: simulated time stood still as well."""
        if self._origin_wall is not None:
            self._origin_wall += max(0.0, time.monotonic() - self._looked - _SLICE)
            self._looked = time.monotonic()

    async def resumed(self) -> None:
        """Return when it is not paused."""
        await self._running.wait()

    async def due(self, sim_time: dt.datetime) -> bool:
        """True when ``sim_time`` is due; False as soon as the pace is paused before that."""
        self._next = max(sim_time, self._reached)
        if self._speed is not None and not self.paused:
            self._looked = time.monotonic()
            if self._origin_wall is None:
                self._origin_wall = self._looked
            while (delay := self._delay(sim_time)) > 0 and not self.paused:
                await asyncio.sleep(min(delay, _SLICE))
                self._looked = time.monotonic()
        if self.paused:
            return False
        self._reached = self._next
        return True

    async def until(self, sim_time: dt.datetime) -> None:
        """Return when ``sim_time`` is due, pauses included."""
        while not await self.due(sim_time):
            await self.resumed()

    def _delay(self, sim_time: dt.datetime) -> float:
        """Wall seconds until a simulated time."""
        if self._speed is None or self._origin_wall is None:
            return 0.0
        due = self._origin_wall + (sim_time - self._origin_sim).total_seconds() / self._speed
        return due - time.monotonic()
