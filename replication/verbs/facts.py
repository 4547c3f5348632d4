"""What is so now at both ends of a link, as ``look`` found it; the only thing that ``build`` knows. Pure data."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlead.wire.types import TopicPartition
from replication.orders import Orders
from replication.plan import Catalog
from replication.verbs.choose import Scope
from replication.verbs.status import Status
from topologies.model import Link, Topology


@dataclass(frozen=True, slots=True)
class End:
    """One end of a link: the ends of the logs that are meant and exist there, or why it could not be asked."""

    site: str
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    error: str | None = None

    def partitions(self, topic: str) -> dict[TopicPartition, int]:
        """The ends of a topic's partitions, in order; empty when it is not there."""
        return {tp: end for tp, end in sorted(self.ends.items()) if tp.topic == topic}


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a plan for one link is made of.

    Args:
        topics: The topics that are meant, by name. Empty for a verb about the whole link.
        orders: What holds at the link's target now.
        source_orders: What holds at its source; None when that is not asked for or cannot be.
        status: Of the target's replicator; None when none has ever run on this machine.
        source_status: Of the source's.
        by: Who gives the order. at: When.
        every: A resume ends every pause on the link.
    """

    topology: Topology
    catalog: Catalog
    link: Link
    scope: Scope
    topics: tuple[str, ...]
    source: End
    target: End
    orders: Orders
    by: str
    at: dt.datetime
    reason: str = ""
    every: bool = False
    source_orders: Orders | None = None
    status: Status | None = None
    source_status: Status | None = None

    def way_back(self, topic: str) -> Link | None:
        """A link the other way that carries a topic, one that is always open before a berthed one."""
        back = [
            link
            for link in self.topology.links_to(self.link.from_)
            if link.from_ == self.link.to and self.catalog.takes(link, topic)
        ]
        return min(back, key=lambda link: link.when != "always", default=None)
