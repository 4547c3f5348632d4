"""Trying again while a broker is away: what only needs waiting must not end a bridge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairlead.errors import FairleadError

log = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_DELAY, LONGEST_DELAY = 0.2, 5.0


async def patiently(work: Callable[[], Awaitable[T]], what: str) -> T:
    """The result of ``work``, which is called again after every retriable error; ``what`` is for the log."""
    delay = FIRST_DELAY
    while True:
        try:
            return await work()
        except FairleadError as error:
            if not error.retriable:
                raise
            log.warning("%s: %s; trying again in %.1f s", what, error.what, delay)
        await asyncio.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY)
