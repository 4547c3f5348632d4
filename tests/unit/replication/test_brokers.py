"""Metrics of a site's brokers, computed from their partitions' state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from fairlead.kafka.endpoint import KafkaEndpoint
from replication.metrics import BrokersCollector


def partition(leader: int, in_sync: int, replicas: int = 3) -> SimpleNamespace:
    return SimpleNamespace(leader=leader, isrs=list(range(in_sync)), replicas=list(range(replicas)))


def cluster(*partitions: SimpleNamespace, brokers: int = 3) -> SimpleNamespace:
    topics = {f"t{n}": SimpleNamespace(partitions={0: each}) for n, each in enumerate(partitions)}
    return SimpleNamespace(brokers={n: object() for n in range(brokers)}, topics=topics)


class Answering:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.made = 0

    def connect(self, endpoint: KafkaEndpoint) -> Answering:
        self.made += 1
        return self

    def list_topics(self, *, timeout: float) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def figures(collector: BrokersCollector) -> dict[str, float]:
    return {sample.name: sample.value for metric in collector.collect() for sample in metric.samples}


def endpoint() -> KafkaEndpoint:
    return KafkaEndpoint("tokyo", (("127.0.0.1", 1),), "replicator", None)


def test_partitions_without_leader_or_with_too_few_copies_are_counted() -> None:
    """Partitions without a leader, or with too few replicas, are counted."""
    client = Answering(cluster(partition(1, 3), partition(1, 2), partition(-1, 0), brokers=2))
    assert figures(BrokersCollector({"tokyo": endpoint}, client.connect)) == {
        "fairlead_kafka_brokers": 2,
        "fairlead_kafka_partitions": 3,
        "fairlead_kafka_under_replicated_partitions": 2,
        "fairlead_kafka_offline_partitions": 1,
    }


def test_nothing_is_told_of_brokers_that_do_not_answer_and_the_next_scrape_connects_anew() -> None:
    """Brokers that do not answer have no metrics, and the next scrape connects anew."""
    away = KafkaException(KafkaError(-195))  # _TRANSPORT
    client = Answering(cluster(partition(1, 3)), away, cluster(partition(1, 3)))
    collector = BrokersCollector({"tokyo": endpoint}, client.connect)
    assert figures(collector)["fairlead_kafka_partitions"] == 1
    assert client.made == 1
    assert figures(collector) == {}
    assert figures(collector)["fairlead_kafka_partitions"] == 1
    assert client.made == 2
