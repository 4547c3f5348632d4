"""Where one log stands at one source, and what has to be found out before its records are taken. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.wire.types import TopicPartition
from replication.replica import Replica


@dataclass(slots=True)
class Cursor:
    """A log that a lane follows."""

    replica: Replica
    position: int = -1  # the next offset wanted
    gap: int | None = None  # an empty replica whose source starts later: where the fillers begin
    unproven: int | None = None  # the target's end: the source's batch before it must be the target's
    agreed: bool = False  # its records are the target's: the target may end inside a batch of the source
    short: bool = False  # the source has less than the target: proven when it has caught up
    epoch: int = -1  # highest leader epoch of the batches fetched so far

    @property
    def tp(self) -> TopicPartition:
        return self.replica.tp

    def move(self, offset: int) -> None:
        """Go on at ``offset``; whatever was to be found out about another place is void."""
        self.position = offset
        self.gap = self.unproven = None
        self.agreed = self.short = False

    def prove(self) -> int:
        """Look at the last batch before the target's end once more; returns where to fetch it."""
        end = self.replica.end
        self.move(max(end - 1, 0))
        self.unproven = end if end > 0 else None
        return self.position

    def is_led_anew(self, epoch: int) -> bool:
        """Take in the leader epoch of fetched batches; True when another leader than before wrote them. It may have
        lost what the target has already (an unclean election) and have something else there."""
        before, self.epoch = self.epoch, max(self.epoch, epoch)
        return -1 < before < epoch
