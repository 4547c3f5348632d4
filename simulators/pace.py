"""How simulated time follows the wall clock: a speed, pauses, and no catching up after a wait."""

from __future__ import annotations

import asyncio
import datetime as dt
import time


class Pace:
    """Sleeps until a simulated time is due.

    Args:
        start: Simulated time at which the clock stands until ``until`` is called first.
        speed: Simulated seconds per wall second; None is as fast as it goes.
    """

    def __init__(self, start: dt.datetime, speed: float | None) -> None:
        self._origin_sim = start
        self._origin_wall: float | None = None
        self._speed = speed
        self._running = asyncio.Event()
        self._running.set()

    @property
    def paused(self) -> bool:
        return not self._running.is_set()

    def pause(self) -> None:
        """Stop simulated time at the next step."""
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def hold(self, at: dt.datetime) -> None:
        """Begin anew from here: the wall time that has passed since the last step does not count."""
        self._origin_sim, self._origin_wall = at, None

    async def until(self, sim_time: dt.datetime) -> None:
        """Return when ``sim_time`` is due and the pace is not paused."""
        if self.paused:
            await self._running.wait()
            self.hold(sim_time)
        if self._speed is None:
            return
        if self._origin_wall is None:
            self._origin_wall = time.monotonic()
        due = self._origin_wall + (sim_time - self._origin_sim).total_seconds() / self._speed
        delay = due - time.monotonic()
        while delay > 0 and not self.paused:
            # In slices, so that a pause is obeyed within a moment even when the next step is an hour away.
            await asyncio.sleep(min(delay, 0.25))
            delay = due - time.monotonic()
        if self.paused:
            await self.until(sim_time)
