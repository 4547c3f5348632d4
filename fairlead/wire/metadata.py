"""What a cluster's Metadata answers said last: brokers, topics, leaders. A cache without I/O."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import Any

from kafka.protocol.metadata import MetadataRequest

from fairlead.wire.connection import METADATA_VERSION
from fairlead.wire.errors import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, is_retriable
from fairlead.wire.types import TP, TopicInfo

NO_LEADER = -1


def request(names: Collection[str] | None) -> Any:
    """The request for these topics, or for all visible ones."""
    topic = MetadataRequest.MetadataRequestTopic
    wanted = None if names is None else [topic(version=METADATA_VERSION, name=name) for name in names]
    return MetadataRequest(
        version=METADATA_VERSION,
        topics=wanted,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


class MetadataCache:
    """Filled by ``apply`` with each answer."""

    def __init__(self) -> None:
        self.brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._errors: dict[str, int] = {}
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}

    def apply(self, answer: Any, asked: Collection[str] | None) -> None:
        """Take over an answer; ``asked`` None says that it lists every visible topic."""
        if answer.brokers:
            self.brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        if asked is None:
            for known in set(self._topics).difference(topic.name for topic in answer.topics):
                self._forget(known)
        for topic in answer.topics:
            self._errors.pop(topic.name, None)
            if topic.error_code:
                self._errors[topic.name] = topic.error_code
                if not is_retriable(topic.error_code) or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                    self._forget(topic.name)
                if not topic.partitions:
                    continue
            self._remember(topic)

    def _remember(self, topic: Any) -> None:
        topic_id = topic.topic_id if isinstance(topic.topic_id, uuid.UUID) else uuid.UUID(bytes=bytes(topic.topic_id))
        leaders = {entry.partition_index: entry.leader_id for entry in topic.partitions}
        first = next(iter(topic.partitions), None)
        replicas = len(first.replica_nodes or ()) if first is not None else 1
        self._forget(topic.name)
        self._topics[topic.name] = TopicInfo(topic.name, topic_id, leaders, replicas)
        self._ids[topic.name] = topic_id.bytes
        self._names[topic_id.bytes] = topic.name

    def _forget(self, name: str) -> None:
        self._topics.pop(name, None)
        known = self._ids.pop(name, None)
        if known is not None:
            self._names.pop(known, None)

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """The known ones among ``names``, or all known ones."""
        if names is None:
            return dict(self._topics)
        return {name: info for name in names if (info := self._topics.get(name)) is not None}

    def unknown(self, logs: Iterable[TP]) -> set[str]:
        """Topics of ``logs`` about which nothing, not even an error, is known."""
        return {log.topic for log in logs if log.topic not in self._topics and log.topic not in self._errors}

    def leader(self, log: TP) -> int:
        """Node id of the leader, or ``NO_LEADER``."""
        info = self._topics.get(log.topic)
        return NO_LEADER if info is None else info.partitions.get(log.partition, NO_LEADER)

    def why_no_leader(self, log: TP) -> int:
        """The error code that explains ``NO_LEADER``."""
        known = self._errors.get(log.topic)
        if known:
            return known
        info = self._topics.get(log.topic)
        if info is None or log.partition not in info.partitions:
            return UNKNOWN_TOPIC_OR_PARTITION
        return LEADER_NOT_AVAILABLE

    def topic_id(self, name: str) -> bytes | None:
        """The id of a known topic as 16 bytes."""
        return self._ids.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic that has this id now."""
        return self._names.get(topic_id)

    def replicas(self, log: TP) -> int:
        """How many brokers keep a copy; 1 when unknown."""
        info = self._topics.get(log.topic)
        return 1 if info is None else info.replicas
