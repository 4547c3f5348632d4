"""What an operator lets go (``fairlead link resolve --skip``): offsets that are filled and marked instead of copied."""

from __future__ import annotations

from collections.abc import Callable

from replication.content import Hole, Item

MaySkip = Callable[[str, int, int], bool]
"""Whether operators let offsets of a log (by name) go: from, to (exclusive)."""


def never(_log: str, _start: int, _stop: int) -> bool:
    """Nobody has let anything go."""
    return False


def hole_of_item(item: Item, now_ms: int) -> Hole:
    """The offsets of a batch as a hole. Its fillers are of now: the batch's own time may be why it was refused."""
    return Hole(item.base, item.stop, item.producer_id, item.term, item.marker, now_ms)
