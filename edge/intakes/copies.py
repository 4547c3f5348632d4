"""Which unusable messages have come through another session as well. Pure.

Readings have a name that a repeat is recognised by; what cannot be used has none, and two equal messages may both be
meant. While a bridge with intakes starts, or empties a net, each message may come through several sessions: once
through the intakes, which share them, and once through each session with a subscription of its own. So they are counted
for each of these: the third one here is the third one there, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

MOST: Final = 4_096  # different messages; those that have not come for longest are forgotten


class Copies:
    """Counts messages by the way that they came on."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._seen: dict[Hashable, dict[str, int]] = {}

    def is_copy(self, way: str, message: Hashable) -> bool:
        """Count a message; whether as many of it have come another way already.

        Args:
            way: One name for all sessions that share what comes, another for each that gets all of it.
        """
        counts = self._seen.pop(message, None) or {}
        self._seen[message] = counts
        if len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]
        counts[way] = count = counts.get(way, 0) + 1
        return any(other >= count for name, other in counts.items() if name != way)
