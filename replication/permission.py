"""Whether a link may be used now: its policy or an operator says so, and its work is stopped as soon as it may not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from replication.states import LinkState


class Permission:
    """Withdrawn at first. ``why_not`` is the state that the link is to show while it is withdrawn, and the cause."""

    def __init__(self) -> None:
        self.why_not: tuple[LinkState, str] = (LinkState.CLOSED, "")
        self._given = asyncio.Event()
        self._withdrawn = asyncio.Event()
        self._withdrawn.set()

    @property
    def is_given(self) -> bool:
        return self._given.is_set()

    def give(self) -> None:
        self._withdrawn.clear()
        self._given.set()

    def withdraw(self, state: LinkState, cause: str) -> None:
        """Not now: the link's policy says so (``CLOSED``), or an operator (``PAUSED``)."""
        self.why_not = state, cause
        self._given.clear()
        self._withdrawn.set()

    async def wait(self) -> None:
        """Until it is given."""
        await self._given.wait()

    async def during(self, work: Awaitable[None]) -> None:
        """Do the work, but stop it when the permission is withdrawn. Raises what the work raises."""
        task = asyncio.ensure_future(work)
        withdrawn = asyncio.ensure_future(self._withdrawn.wait())
        try:
            await asyncio.wait({task, withdrawn}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            withdrawn.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            task.result()
