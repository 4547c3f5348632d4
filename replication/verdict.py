"""What a broker's answer to an append means. Pure.

====================  ==========================================================================================
(0, n, -1)            appended now
(0, n, a time)        something was at n already: read it, its CRC tells whether it is the same
45, 47                the log is not where it was thought to be: read its end and the batch at n
(0, m != n)           appended at another offset: ``misplaced``, the log stops
10                    above the target's size limit: let the limit follow the source's, else split the batch
2, 18, 32, 53, 87,    not acceptable as it is: ``quarantined``, the log stops
-1
no answer, 7, 13      outcome unknown, and the connection with it: read the log's end, fetch again from there
retriable errors      outcome unknown: the same after a pause
other errors          ``unavailable``, the log is tried again later
====================  ==========================================================================================
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from fairlead.wire.errors import is_retriable
from fairlead.wire.types import ProduceResult

LOST: Final = (7, 13)
TOO_LARGE: Final = 10
NOT_THERE: Final = (45, 47)  # out of order; a later term exists
UNACCEPTABLE: Final = frozenset({-1, 2, 18, 32, 53, 87})


class Verdict(Enum):
    """See the module."""

    APPENDED = auto()
    UNKNOWN = auto()
    DOUBTFUL = auto()
    LATER = auto()
    MISPLACED = auto()
    TOO_LARGE = auto()
    UNACCEPTABLE = auto()
    UNAVAILABLE = auto()


def judge(result: ProduceResult | None, expected: int) -> Verdict:
    """The meaning of an answer to a batch that belongs at offset ``expected``; None is no answer."""
    if result is None or result.error_code in LOST:
        return Verdict.UNKNOWN
    if result.error_code == 0:
        if result.base_offset != expected:
            return Verdict.MISPLACED
        return Verdict.APPENDED if result.appended_now else Verdict.DOUBTFUL
    if result.error_code == TOO_LARGE:
        return Verdict.TOO_LARGE
    if result.error_code in UNACCEPTABLE:
        return Verdict.UNACCEPTABLE
    if result.error_code in NOT_THERE:
        return Verdict.DOUBTFUL
    return Verdict.LATER if is_retriable(result.error_code) else Verdict.UNAVAILABLE
