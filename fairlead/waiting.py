"""Wait for an event or a time, whichever comes first, in a task that others cancel; run work beside other work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run work in a task while the context is open; then cancel it and wait until it has ended. An error of the work
    does not end the context: who wants to know it asks the task."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_set(event: asyncio.Event, seconds: float | None) -> None:
    """Return when the event is set, or after ``seconds`` (None: never without it). The event stays as it is.

    ``asyncio.wait_for`` cannot be used for that: in Python 3.11 it returns as if nothing had happened if the task is
    cancelled and the event is set in the same turn of the loop (cpython issue 86296). A loop around it would go on, and
    whoever stops the task would wait for ever.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
