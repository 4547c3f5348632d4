"""How often a bridge's process searches for cycles of garbage.

A bridge of 20,000 logs keeps 400,000 objects for good, and Python searches them again and again while messages come and
go: more than half of the CPU. So new objects are searched as usual, while they are in the processor's caches, and those
that have been kept for a while very seldom. What is no cycle is freed at once anyway.
"""

from __future__ import annotations

import gc
from typing import Final

SEARCHES: Final = 1_000  # of new objects before the next search of those that outlived one


def search_less_often() -> None:
    """For the whole process; a setting that is as rare already, or none at all, is left as it is."""
    new, middle, old = gc.get_threshold()
    if new > 0 and middle < SEARCHES:  # 0 is never
        gc.set_threshold(new, SEARCHES, old)
