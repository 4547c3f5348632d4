"""Which logs are looked at every second to fill their ends. The filling itself runs against real brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from fairlead.kafka.protocol.types import TopicPartition
from replication.catalog import Catalog
from replication.plan.trailing_gaps import TrailingGaps
from replication.target.mirror import MirrorPartition
from topologies.model import DEFAULT_STREAMS, InsertPoint, Stream, Topology

STREAMS = {
    **DEFAULT_STREAMS,
    "containers": Stream(insert_point=InsertPoint.MOVES, owners=("BIGU",)),
    "metrics": Stream(),
}
CATALOG = Catalog(
    Topology.model_validate(
        {"name": "two", "sites": {name: {"kind": "datacentre"} for name in ("east", "west")}, "streams": STREAMS}
    )
)
BOXES = [TopicPartition(f"containers.BIGU{number:07d}") for number in range(1_000)]


class CountedReplicas(dict[TopicPartition, MirrorPartition]):
    """Replicas that count how often one is looked up."""

    looked = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.looked += 1
        return super().get(key, default)


def gaps(followed: dict[TopicPartition, frozenset[str]], replicas: CountedReplicas) -> tuple[TrailingGaps, Any]:
    link = SimpleNamespace(name="east->west", ends={}, cluster=None, link=SimpleNamespace(rate=None, start="earliest"))
    appender = SimpleNamespace(replicas=replicas, is_busy=lambda tp: False)
    return TrailingGaps([link], lambda: followed, CATALOG, cast(Any, None), cast(Any, appender)), link  # type: ignore[list-item]


async def test_logs_that_are_never_filled_cost_nothing_each_second() -> None:
    """A round looks only at the logs whose ends may be filled, however many others are followed."""
    metric = TopicPartition("metrics.cpu")
    replicas = CountedReplicas()
    made, link = gaps(dict.fromkeys([*BOXES, metric], frozenset({"east->west"})), replicas)
    await made.close_gaps(link, 0.0)
    await made.close_gaps(link, 1.0)
    assert replicas.looked == 2


async def test_logs_that_are_followed_later_are_looked_at() -> None:
    """A log that a plan added is looked at in the next round, and one that is no longer followed is not."""
    metric, other = TopicPartition("metrics.cpu"), TopicPartition("metrics.disk")
    replicas = CountedReplicas()
    followed = dict.fromkeys([*BOXES, metric], frozenset({"east->west"}))
    made, link = gaps(followed, replicas)
    await made.close_gaps(link, 0.0)
    followed[other] = frozenset({"east->west"})
    made.on_planned({other.topic})
    await made.close_gaps(link, 1.0)
    assert replicas.looked == 3
    followed.clear()
    made.on_planned(None)
    await made.close_gaps(link, 2.0)
    assert replicas.looked == 3
