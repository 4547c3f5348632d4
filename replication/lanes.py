"""Which lane of a link fetches which log: lanes are shared by many logs of one class, up to a size."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Final

from fairlead.wire.types import TopicPartition
from replication.lane import Lane
from replication.plan import EVERY_SOURCE
from replication.replica import Replica
from topologies.model import Priority

THIN_LANES: Final = 2  # on a link with a rate: one answer travels while the other is asked for
LANE_LOGS: Final = 500  # a broker reads every log of a session at every answer: 12 microseconds each


class Lanes:
    """The lanes of one link while it is up.

    Args:
        open_lane: Opens one more lane of a class; None while the link is not up.
        thin: Whether the link has a rate.
    """

    def __init__(self, open_lane: Callable[[Priority], Lane | None], *, thin: bool) -> None:
        self._open_lane = open_lane
        self._thin = thin
        self._lanes: dict[Priority, list[Lane]] = {}
        self._lane_of: dict[TopicPartition, Lane] = {}

    def __len__(self) -> int:
        """How many logs are followed."""
        return len(self._lane_of)

    def follow(self, replicas: Mapping[TopicPartition, Replica], priority: Callable[[str], Priority]) -> None:
        """Fetch these logs, too; nothing happens while the link is not up. ``priority`` is that of a topic."""
        for tp, replica in replicas.items():
            if tp not in self._lane_of:
                lane = self._lane_for(priority(tp.topic))
                if lane is None:
                    return
                self._lane_of[tp] = lane
                lane.follow(replica)

    def unfollow(self, tp: TopicPartition) -> bool:
        """Do not fetch this log any more; False when it was not fetched."""
        lane = self._lane_of.pop(tp, None)
        if lane is None:
            return False
        lane.unfollow(tp)
        return True

    def unfollow_all_but(self, kept: Container[TopicPartition]) -> None:
        """Fetch none but these."""
        for tp in [tp for tp in self._lane_of if tp not in kept]:
            self.unfollow(tp)

    def lag(self) -> int:
        """Records that the source has and the target does not, of the logs that are followed."""
        return sum(each.lag() for lanes in self._lanes.values() for each in lanes)

    def clear(self) -> None:
        """The link is down: its lanes have ended."""
        self._lanes.clear()
        self._lane_of.clear()

    def _lane_for(self, priority: Priority) -> Lane | None:
        """A lane of this class with room for one more log, opened if need be; None while the link is not up."""
        lanes = self._lanes.setdefault(priority, [])
        if not self._thin and lanes and len(lanes[-1]) < LANE_LOGS:
            return lanes[-1]  # so that very many logs are not compared with very many lanes
        youngest = min(lanes, key=len, default=None)
        wanted = THIN_LANES if self._thin and priority not in EVERY_SOURCE else 1
        if youngest is not None and len(lanes) >= wanted and len(youngest) < LANE_LOGS:
            return youngest
        lane = self._open_lane(priority)
        if lane is not None:
            lanes.append(lane)
        return lane
