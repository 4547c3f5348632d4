"""What detection on board and detection ashore have in common: what a rule says of a reading, and how often a device
reports. Pure."""

from __future__ import annotations

from typing import NamedTuple

from fairlead.records.alert import Severity


class Deviation(NamedTuple):
    """A reading that is out of order.

    Args:
        size: How bad, to find the worst reading of a condition; in the rule's own unit.
        dwell_ms: How long the condition must last before it is an alert.
    """

    severity: Severity
    size: float
    dwell_ms: int


class Good(NamedTuple):
    """A reading that is in order. ``recovery_ms``: how long that must last before an open alert is over."""

    recovery_ms: int = 0


def usual_interval(usual: int, gap: int, silence: float) -> int:
    """How often a device reports, after another gap between two of its readings. Milliseconds; 0: not known yet.

    A gap that is longer counts at once, unless it is a silence (more than ``silence`` usual ones); shorter ones
    (events) slowly.
    """
    if gap <= 0 or gap == usual:
        return usual
    if usual == 0 or usual < gap <= usual * silence:
        return gap
    if gap < usual:
        return max(gap, usual * 9 // 10)
    return usual * 2  # a device that has become slower is learnt in a few readings
