"""Export Prometheus metrics of replicators (from ``Replicator.snapshot``) and of their sites' brokers.

Only logs in trouble have series of their own, so ten thousand healthy logs cost nothing. Each scrape asks the brokers
for metadata, which any client may request, and counts partitions with too few copies or without a leader.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.errors import FairleadError
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.scrape import Snapshot
from replication.states import LinkState, LogState, MemberState


def replication_metrics(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    """Yield all metrics of the replicators with these snapshots."""
    yield from _targets(taken)
    yield from _certificates(taken)
    yield from _links(taken)
    yield from _logs(taken)
    yield from _retention(taken)
    yield from _groups(taken)


def _targets(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    up = GaugeMetricFamily("fairlead_target_up", "1 while the target's Kafka answers.", labels=["site"])
    queued = GaugeMetricFamily(
        "fairlead_memory_queued_bytes", "Fetched batches that wait for the target.", labels=["site"]
    )
    limit = GaugeMetricFamily("fairlead_memory_limit_bytes", "Largest size of batches that may wait.", labels=["site"])
    started = GaugeMetricFamily(
        "fairlead_replicator_start_time_seconds", "When the replicator was started, Unix time.", labels=["site"]
    )
    refused = CounterMetricFamily(
        "fairlead_ledger_entries_refused", "Ledger entries that are not believed.", labels=["site"]
    )
    for each in taken:
        site = [str(each["site"])]
        refused.add_metric(site, each["entries_refused"])
        up.add_metric(site, float(each["target"]["state"] == "up"))
        started.add_metric(site, _seconds(each["started"]))
        memory = each.get("memory")
        if memory:
            queued.add_metric(site, memory["queued"])
            limit.add_metric(site, memory["limit"])
    yield from (up, queued, limit, started, refused)


def _certificates(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    """Yield when the certificates of targets and sources with TLS expire, each site once; the earliest if links
    differ."""
    ends: dict[str, float] = {}
    for each in taken:
        seen = [(str(each["site"]), each["target"].get("certificate_ends"))]
        seen += [(str(link["from"]), link.get("certificate_ends")) for link in each["links"]]
        for site, end in seen:
            if end is not None:
                ends[site] = min(end, ends.get(site, end))
    family = GaugeMetricFamily(
        "fairlead_certificate_expiry_time_seconds",
        "When the certificate of the site's Kafka expires, Unix time.",
        labels=["site"],
    )
    for site, end in ends.items():
        family.add_metric([site], end)
    yield family


_COUNTED: Final = (
    ("records", "Records appended to the target, markers and fillers included."),
    ("batches", "Record batches appended to the target."),
    ("bytes", "Bytes of batches appended to the target."),
    ("fetched_bytes", "Bytes of batches fetched over the link, including repeats."),
)


def _links(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    links = [link for each in taken for link in each["links"]]
    for name, what in _COUNTED:
        family = CounterMetricFamily(f"fairlead_link_{name}", what, labels=["link"])
        for link in links:
            family.add_metric([str(link["name"])], link[name])
        yield family
    lag = GaugeMetricFamily(
        "fairlead_link_lag_records", "Records that the target lacks; absent while the link is not up.", labels=["link"]
    )
    state = GaugeMetricFamily("fairlead_link_state", "1 for the state that the link is in.", labels=["link", "state"])
    followed = GaugeMetricFamily("fairlead_link_followed_logs", "Logs that are fetched here.", labels=["link"])
    for link in links:
        name = str(link["name"])
        if link["lag"] is not None:
            lag.add_metric([name], link["lag"])
        followed.add_metric([name], link["followed"])
        for known in LinkState:
            state.add_metric([name, str(known)], float(link["state"] == known))
    yield from (lag, state, followed)


def _logs(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    counts = GaugeMetricFamily("fairlead_logs", "Logs by state, without mirrored ones.", labels=["site", "state"])
    since = GaugeMetricFamily(
        "fairlead_log_state_since_seconds",
        "When a log that is not mirrored entered its state, Unix time.",
        labels=["site", "log", "state"],
    )
    for each in taken:
        site = str(each["site"])
        found = Counter(str(trouble["state"]) for trouble in each["logs"].values())
        for known in LogState:
            if known is not LogState.MIRRORING:
                counts.add_metric([site, str(known)], found[known])
        for log, trouble in each["logs"].items():
            since.add_metric([site, log, str(trouble["state"])], _seconds(trouble["since"]))
    yield from (counts, since)


_WAITING: Final = (
    ("logs", "Logs with records that are older than the site keeps them, because another site does not have them yet."),
    ("records", "Records older than the site keeps them, because another site does not have them yet."),
    ("bytes", "Estimated bytes of these records in one copy."),
)


def _retention(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    """Yield what each site keeps longer than it would, by the site that it waits for."""
    for name, what in _WAITING:
        family = GaugeMetricFamily(f"fairlead_retention_waiting_{name}", what, labels=["site", "waits_for"])
        for each in taken:
            for other, delay in each.get("retention", {}).get("waits_for", {}).items():
                family.add_metric([str(each["site"]), other], delay[name])
        yield family


def _groups(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    """Yield the replicators that share a site's logs, as each of them sees their group."""
    labels = ["site", "group"]
    state = GaugeMetricFamily("fairlead_group_state", "1 for the state of this member.", labels=[*labels, "state"])
    members = GaugeMetricFamily("fairlead_group_members", "Replicators that share the site's logs.", labels=labels)
    logs = GaugeMetricFamily(
        "fairlead_group_member_logs", "Logs that a member of the group has.", labels=[*labels, "member"]
    )
    warned = GaugeMetricFamily(
        "fairlead_group_warning",
        "1 while another group copies to the site as well, or members have different links.",
        labels=labels,
    )
    for each in taken:
        group = each.get("group")
        if not group:
            continue
        where = [str(each["site"]), str(group["name"])]
        for known in MemberState:
            state.add_metric([*where, str(known)], float(group["state"] == known))
        members.add_metric(where, len(group["members"]))
        warned.add_metric(where, float(bool(group["warning"])))
        for member in group["members"].values():
            logs.add_metric([*where, str(member["name"])], member["logs"])
    yield from (state, members, logs, warned)


def _seconds(moment: str) -> float:
    return dt.datetime.fromisoformat(moment).timestamp()


_PATIENCE: Final = 5.0  # seconds for all sites; Prometheus gives up after ten
_GAUGES: Final = (
    ("brokers", "Brokers that are up."),
    ("partitions", "Partitions that the replicator may see."),
    ("under_replicated_partitions", "Partitions with fewer in-sync replicas than replicas."),
    ("offline_partitions", "Partitions without a leader."),
)


class MetadataClient(Protocol):
    """The method of an admin client that ``BrokersCollector`` needs."""

    def list_topics(self, *, timeout: float) -> Any: ...


class BrokersCollector(Collector):
    """Ask each site's brokers at each scrape. A site whose brokers do not answer has no metrics.

    Args:
        endpoints: By site, a function that returns its endpoint. It is called again after an error, because passwords
            change.
        connect: Creates an admin client, which connects when it is used.
    """

    def __init__(
        self, endpoints: Mapping[str, Callable[[], KafkaEndpoint]], connect: Callable[[KafkaEndpoint], MetadataClient]
    ) -> None:
        self._endpoints = endpoints
        self._connect = connect
        self._clients: dict[str, MetadataClient] = {}
        self._one_at_a_time = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics of all sites' brokers."""
        families = {name: GaugeMetricFamily(f"fairlead_kafka_{name}", what, labels=["site"]) for name, what in _GAUGES}
        with self._one_at_a_time:
            for site in self._endpoints:
                for name, value in self._ask(site).items():
                    families[name].add_metric([site], value)
        yield from families.values()

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
    """Count partitions in librdkafka's ``ClusterMetadata``."""
    partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
    return {
        "brokers": len(metadata.brokers),
        "partitions": len(partitions),
        "under_replicated_partitions": sum(len(each.isrs) < len(each.replicas) for each in partitions),
        "offline_partitions": sum(each.leader < 0 for each in partitions),
    }
