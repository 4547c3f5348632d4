"""Cuts a long poll short when what is fetched has changed: soon, but seldom, because it costs a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

HURRY: Final = (0.02, 1.0)  # seconds from a change to cutting a poll short, and between two of those


class Hurry:
    """Several changes close together are one reason to hurry. Where it is not ``allowed``, as over a thin link, nothing
    is ever cut short."""

    def __init__(self, cut_short: Callable[[], None], *, allowed: bool) -> None:
        self._allowed = allowed
        self._cut_short = cut_short
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0

    def ask(self) -> None:
        """Somebody else has changed what is fetched: do not let it wait for the poll that is under way."""
        if self._allowed and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time() + HURRY[0], self._last + HURRY[1]), self._cut)

    def cancel(self) -> None:
        """Nothing is fetched any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _cut(self) -> None:
        self._timer, self._last = None, asyncio.get_running_loop().time()
        self._cut_short()
