"""What has changed since the last plan: some topics, or something that concerns every log.

A port with 100,000 logs sees a box move every few seconds. A plan of all logs took 2.6 CPU-s there (two cores,
simulated clusters, 2026-11); a thousand boxes that move together take 0.1 CPU-s, with all that follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable


class PlanChanges:
    """Collects changes until the planner takes them. Whoever notices a change adds it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._topics: set[str] = set()
        self._all = False

    def add(self, topics: Iterable[str] = ()) -> None:
        """Have the logs of these topics planned again. Without topics only the links' gates are looked at."""
        self._topics.update(topics)
        self._event.set()

    def add_all(self) -> None:
        """Have all logs planned again."""
        self._all = True
        self._event.set()

    @property
    def are_pending(self) -> bool:
        """Whether there is a change that nobody has taken."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Wait for a change."""
        await self._event.wait()

    def take(self) -> set[str] | None:
        """Return the topics to plan and forget them; None stands for all."""
        topics = None if self._all else self._topics
        self._event.clear()
        self._topics, self._all = set(), False
        return topics
