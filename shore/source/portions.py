"""How much of each log to ask for at once. Pure.

A broker answers with what a log has from a position on, up to a number of bytes that is the same for all logs of a
request. Too many bytes, and most of an answer lies behind the ranges that are to be read; too few, and a log whose next
batch is longer gets nothing unless it is the first of the request. So it goes by what records took so far, and grows
when logs get nothing.
"""

from __future__ import annotations

from typing import Final

MOST_BYTES: Final = 8 << 20  # of one answer: what a task holds beside the rows that it makes
MOST_LOGS: Final = 500
FEWEST_LOGS: Final = 50
LEAST_PORTION: Final = 16 << 10
LARGEST_PORTION: Final = 1 << 20  # but for the last few logs
_GUESS: Final = 1_000  # bytes of a record, before any is known
_MARGIN: Final = 1.3


class Portions:
    """What a task has seen so far, and what follows from it."""

    def __init__(self) -> None:
        self._offsets = self._bytes = 0
        self._least = LEAST_PORTION

    def learn(self, offsets: int, size: int) -> None:
        """So many offsets took so many bytes."""
        self._offsets += offsets
        self._bytes += size

    def starved(self) -> None:
        """Some log had records and room in the answer, and got nothing: its next batch is longer than a portion."""
        self._least = min(LARGEST_PORTION, 4 * self._least)

    def portion(self, longest: int, logs: int) -> int:
        """Bytes to ask for of each of ``logs`` logs, when the longest range that is left has so many offsets."""
        record = self._bytes / self._offsets if self._offsets else _GUESS
        wanted = max(self._least, int(longest * record * _MARGIN))
        # A few logs may have more each, so that one with very many records is not read in small pieces.
        return min(wanted, max(LARGEST_PORTION, MOST_BYTES // max(1, logs)))

    def logs(self, longest: int) -> int:
        """How many logs to ask for at once, so that one answer has room for them."""
        return max(FEWEST_LOGS, min(MOST_LOGS, MOST_BYTES // self.portion(longest, MOST_LOGS)))
