"""Retry calls that failed because a broker is away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from fairlead.errors import FairleadError, LoginRefusedError
from fairlead.kafka.protocol.errors import AuthenticationFailed

log = logging.getLogger(__name__)

T = TypeVar("T")
FIRST_DELAY, LONGEST_DELAY = 0.2, 5.0
REFUSED_SECONDS: Final = 30.0  # a broker that has just started refuses all logins for a moment


async def retry_transient(
    work: Callable[[], Awaitable[T]], what: str, *, refused_seconds: float = REFUSED_SECONDS
) -> T:
    """Return the result of ``work``, called again after every retriable error, after 0.2 to 5 seconds.

    Args:
        what: The name of the work in the program's log.
        refused_seconds: For how long to retry refused logins, too.

    Raises:
        FairleadError: an error that is not retriable, or a login refused for ``refused_seconds``.
    """
    delay = FIRST_DELAY
    began: float | None = None
    while True:
        try:
            return await work()
        except FairleadError as error:
            refused = isinstance(error, AuthenticationFailed | LoginRefusedError)
            now = asyncio.get_running_loop().time()
            began = (began or now) if refused else None
            if not error.retriable and (began is None or now - began >= refused_seconds):
                raise
            log.warning("%s: %s; trying again in %.1f s", what, error.what, delay)
        await asyncio.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY)
