"""Going on with sites that are away until they are back: a ship is at sea, its rules are done when it returns."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Final

from acl.apply import SiteResult
from fairlead.errors import FairleadError

PAUSE: Final = 5.0  # seconds between two rounds
Work = Callable[[Sequence[str]], Sequence[SiteResult]]
"""Applies at these sites."""


def until_done(
    work: Work,
    first: Sequence[SiteResult],
    *,
    seconds: float | None = None,
    on_waiting: Callable[[tuple[str, ...]], None] | None = None,
    pause: float = PAUSE,
) -> tuple[SiteResult, ...]:
    """Apply again at the sites whose error passes by itself, until there is none or the time is over.

    Args:
        first: What came of the first round.
        seconds: How long at most; None is for ever.
        on_waiting: Told before each pause which sites are waited for.

    Returns:
        All results, in the order of ``first``; what was added and removed is that of all rounds.
    """
    results = {result.site: result for result in first}
    deadline = None if seconds is None else time.monotonic() + seconds
    while away := tuple(site for site, result in results.items() if _passes(result.error)):
        left = pause if deadline is None else min(pause, deadline - time.monotonic())
        if left <= 0:
            break
        if on_waiting:
            on_waiting(away)
        time.sleep(left)  # a site that comes back tells nobody
        for result in work(away):
            before = results[result.site]
            results[result.site] = dataclasses.replace(
                result, added=before.added + result.added, removed=before.removed + result.removed
            )
    return tuple(results.values())


def _passes(error: FairleadError | None) -> bool:
    return error is not None and error.retriable
