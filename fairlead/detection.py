"""Code shared by detection on board and ashore: a rule's result for a reading, and a device's usual interval. Pure."""

from __future__ import annotations

from typing import NamedTuple

from fairlead.records.alert import Severity


class Deviation(NamedTuple):
    """A reading that is out of order.

    Args:
        size: How bad it is, in the rule's own unit, to find the worst reading of a condition.
        dwell_ms: How long the condition must last before it is an alert.
    """

    severity: Severity
    size: float
    dwell_ms: int


class Good(NamedTuple):
    """A reading that is in order. It must last ``recovery_ms`` before an open alert is over."""

    recovery_ms: int = 0


def usual_interval(usual: int, gap: int, silence: float) -> int:
    """Update a device's usual interval by the gap between two of its readings.

    All intervals are in milliseconds; 0 means not known yet. A longer gap counts at once, unless it is a silence (more
    than ``silence`` times the usual interval); shorter gaps (events) count slowly.
    """
    if gap <= 0 or gap == usual:
        return usual
    if usual == 0 or usual < gap <= usual * silence:
        return gap
    if gap < usual:
        return max(gap, usual * 9 // 10)
    return usual * 2  # so the interval of a device that has become slower is learnt in a few readings
