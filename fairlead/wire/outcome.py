"""What a writer concludes from a broker's answer to an append under the convention (design, section 5). Pure."""

from __future__ import annotations

import enum

from fairlead.wire.errors import INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, is_retriable
from fairlead.wire.types import ProduceResult


class Verdict(enum.Enum):
    """What to do next."""

    MINE = enum.auto()  # stored now, by this very request
    EXAMINE = enum.auto()  # something may be at the offset already: its CRC decides
    MISPLACED = enum.auto()  # stored at another offset
    FENCED = enum.auto()  # a later term exists
    LATER = enum.auto()  # outcome unknown, or not now: run the guard, then send the same bytes again
    REFUSED = enum.auto()  # the batch is unacceptable; never send it again as it is


def judge(result: ProduceResult, expected: int | None) -> Verdict:
    """The verdict on one answer. ``expected`` is the offset that the batch must get; None for "whatever the end is",
    which only a marker may ask for."""
    code = result.error_code
    if code == 0:
        if not result.appended_now:
            # The duplicate answer. At another offset it cannot be ours, which the CRC will show as well.
            return Verdict.EXAMINE
        return Verdict.MINE if expected is None or result.base_offset == expected else Verdict.MISPLACED
    if code == OUT_OF_ORDER_SEQUENCE_NUMBER:
        return Verdict.EXAMINE
    if code == INVALID_PRODUCER_EPOCH:
        return Verdict.FENCED
    return Verdict.LATER if is_retriable(code) else Verdict.REFUSED
