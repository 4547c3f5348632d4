"""Which logs a site truncates by age, and how old their newest record is."""

from __future__ import annotations

from fairlead.kafka.convention import FOREIGN_PRODUCER_ID, PRODUCER_ID
from fairlead.kafka.protocol.types import ProducerState, TopicPartition
from replication.plan.maintenance import newest_timestamp, retention_limits
from topologies.loader.load import load

DAY = 86_400_000


def test_a_ship_keeps_days_of_its_replicas_and_all_that_it_holds() -> None:
    """A ship keeps some days of its replicas, and all records of logs that it holds."""
    names = ("containers.BIGU1000016", "containers.BIGU1000021", "alerts.tokyo", "custody.tokyo", "__consumer_offsets")
    topics = dict.fromkeys(names, 1)
    held = "containers.BIGU1000021"

    def holder(topic: str) -> str:
        return "duck-star" if topic == held else "tokyo"

    found = retention_limits(load("big-blue"), "duck-star", topics, holder)
    box, alerts = TopicPartition("containers.BIGU1000016"), TopicPartition("alerts.tokyo")
    assert found == {box: 14 * DAY, alerts: 90 * DAY}


def test_headquarters_keeps_everything() -> None:
    assert retention_limits(load("big-blue"), "los-angeles", {"containers.BIGU1000016": 1}, lambda _: "tokyo") == {}


def test_every_partition_of_a_topic_is_cut() -> None:
    """Every partition of a topic is truncated."""
    found = retention_limits(load("fan-in"), "paris", {"metrics.new-york.cpu": 3}, lambda _: "new-york")
    assert [tp.partition for tp in found] == [0, 1, 2]


def test_the_newest_record_is_one_written_under_the_convention() -> None:
    """The age is that of the newest record written under the append convention."""
    ours, stranger = ProducerState(PRODUCER_ID, 1, 5, 1000), ProducerState(17, 0, 5, 9999)
    assert newest_timestamp([ours, stranger]) == 1000
    assert newest_timestamp([ProducerState(FOREIGN_PRODUCER_ID + 1, 0, 5, 2000), stranger]) == 2000  # after a reversal
    assert newest_timestamp([stranger]) is None
    assert newest_timestamp([]) is None
