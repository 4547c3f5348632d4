"""What a site's brokers say of their partitions, as Prometheus metrics: its replicator asks them at each scrape.

Not from inside the brokers (JMX): how many partitions have too few copies, or no leader, any client may ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.endpoint import KafkaEndpoint
from fairlead.errors import FairleadError

_PATIENCE: Final = 5.0  # seconds for all sites; Prometheus gives up after ten
_GAUGES: Final = (
    ("brokers", "Brokers that are up."),
    ("partitions", "Partitions that the replicator may see."),
    ("under_replicated_partitions", "Those of which fewer copies are in sync than there are."),
    ("offline_partitions", "Those without a leader."),
)


class Client(Protocol):
    """What is asked of an admin client."""

    def list_topics(self, *, timeout: float) -> Any: ...


class BrokersCollector(Collector):
    """Asks each site's brokers at each scrape; nothing of a site whose brokers do not answer.

    Args:
        endpoints: By site, asked again after trouble: passwords change.
        connect: Makes an admin client, which connects when it is used.
    """

    def __init__(
        self, endpoints: Mapping[str, Callable[[], KafkaEndpoint]], connect: Callable[[KafkaEndpoint], Client]
    ) -> None:
        self._endpoints = endpoints
        self._connect = connect
        self._clients: dict[str, Client] = {}
        self._one_at_a_time = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """The metrics of all sites, as their brokers say now."""
        families = {name: GaugeMetricFamily(f"fairlead_kafka_{name}", what, labels=["site"]) for name, what in _GAUGES}
        with self._one_at_a_time:
            for site in self._endpoints:
                for name, value in self._ask(site).items():
                    families[name].add_metric([site], value)
        yield from families.values()

    def describe(self) -> Iterable[Metric]:
        """Nobody is asked just to be registered."""
        return ()

    def _ask(self, site: str) -> dict[str, int]:
        try:
            client = self._clients.get(site)
            if client is None:
                client = self._clients[site] = self._connect(self._endpoints[site]())
            return counted(client.list_topics(timeout=_PATIENCE / len(self._endpoints)))
        except (KafkaException, FairleadError):
            self._clients.pop(site, None)
            return {}


def counted(metadata: Any) -> dict[str, int]:
    """The figures of librdkafka's ``ClusterMetadata``."""
    partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
    return {
        "brokers": len(metadata.brokers),
        "partitions": len(partitions),
        "under_replicated_partitions": sum(len(each.isrs) < len(each.replicas) for each in partitions),
        "offline_partitions": sum(each.leader < 0 for each in partitions),
    }
