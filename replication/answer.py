"""How much to ask for in one Fetch: enough to fill the link, little enough to let urgent logs by. Pure.

While an answer is under way, whatever comes after it on the link waits. So an answer should take about
``ANSWER_SECONDS`` at the speed that the link has shown. On a long link that is not enough: between two answers one
round trip passes in which nothing moves, so an answer has to last for ``ROUND_TRIPS`` of them to fill the link to
``ROUND_TRIPS / (ROUND_TRIPS + 1)``.
"""

from __future__ import annotations

from typing import Final

LEAST: Final = 16 << 10  # smaller answers cost more than they spare
USUAL: Final = 4 << 20  # on a fast short link more gains nothing, and holds up what follows
MOST: Final = 32 << 20
ANSWER_SECONDS: Final = 0.4
ROUND_TRIPS: Final = 10
STEP: Final = 4  # how much larger or smaller the next may be
FULL: Final = 0.5  # an answer below this share of what was asked for says nothing about the link


class AnswerSize:
    """Bytes to ask for next, learned from the answers so far."""

    def __init__(self, round_trip: float) -> None:
        """``round_trip``: seconds, as measured when the link came up."""
        self._round_trip = round_trip
        self.size = LEAST * 2

    def took(self, asked: int, got: int, seconds: float) -> None:
        """An answer to a request for ``asked`` bytes brought ``got``, ``seconds`` from its first byte to its last."""
        if got < asked * FULL:
            return
        speed = got / max(seconds, 1e-4)
        best = max(min(USUAL, speed * ANSWER_SECONDS), min(MOST, speed * self._round_trip * ROUND_TRIPS))
        self.size = int(max(LEAST, self.size / STEP, min(best, self.size * STEP)))
