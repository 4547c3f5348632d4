"""Wait for an event or a time, whichever comes first, in a task that others cancel; run work beside other work; how
long to wait for answers that come late."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar

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


def stopped_by_signals() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set from now on, in place of ending the process."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


LONGEST: Final = 80.0  # seconds; a broker of 15,000 logs that collects garbage is silent for more than ten
CALM_AFTER: Final = 600.0  # seconds without a late answer


class Patience:
    """How many seconds requests wait for an answer: twice as many after each that came too late, up to ``LONGEST``, and
    the usual ones again ``CALM_AFTER`` seconds after the last of them.

    With one fixed time, a client of brokers that are slower than that would connect and ask for ever.
    """

    def __init__(self, usual: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._usual = self._seconds = usual
        self._late_at = -math.inf
        self._clock = clock

    @property
    def seconds(self) -> float:
        return self._seconds if self._clock() - self._late_at <= CALM_AFTER else self._usual

    def note_late(self) -> None:
        """Note that an answer came too late."""
        self._seconds, self._late_at = min(2 * self.seconds, LONGEST), self._clock()
