"""How often a cluster is asked for its topics: at once where that is cheap, seldom where there are very many. Pure."""

from __future__ import annotations

from typing import Final

REFRESH: Final = (1.0, 300.0)  # seconds between two looks for new logs
QUIET: Final = (10.0, 3.0)  # after this many seconds without a new one: this many seconds at least
REFRESH_BYTES: Final = (60_000.0, 6_000.0)  # bytes a second that looking may cost, while there is news and when not
THIN_SHARE: Final = (0.25, 0.05)  # of a link's rate that looking may take, while there is news and when not


def refresh_pause(size: int, quiet: float, rate: int | None = None) -> float:
    """Seconds to wait before a cluster whose topics take ``size`` bytes to list is asked again, after ``quiet`` seconds
    without news, over a link with this rate."""
    calm = quiet > QUIET[0]
    least = QUIET[1] if calm else REFRESH[0]
    if rate is not None:
        return max(size / min(rate * THIN_SHARE[calm], REFRESH_BYTES[calm]), least)
    return min(max(size / REFRESH_BYTES[calm], least), REFRESH[1])
