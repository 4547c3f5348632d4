"""A cache of a cluster's brokers, topics and leaders, from its last Metadata answers. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from typing import NamedTuple

from fairlead.kafka.protocol.errors import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, is_retriable
from fairlead.kafka.protocol.metadata_codec import ListingChanges, MetadataAnswer, TopicMetadata
from fairlead.kafka.protocol.types import TP, TopicInfo

NO_LEADER = -1


class TopicChanges(NamedTuple):
    """What a listing of all visible topics changed since the one before.

    Args:
        topics: Topics that are new or different; all of them if ``is_whole``.
        gone: Topics that are not visible any more.
        is_whole: Whether it is the first listing, so that topics known from elsewhere may be gone, too.
    """

    topics: Mapping[str, TopicInfo]
    gone: Set[str]
    is_whole: bool

    def lost(self, known: Set[str]) -> Set[str]:
        """Return those of the known topics that are not visible any more."""
        return known - self.topics.keys() if self.is_whole else known & self.gone


class MetadataCache:
    """Brokers, topics and leaders; ``apply`` updates them with each answer."""

    def __init__(self) -> None:
        self.brokers: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._errors: dict[str, int] = {}

    def apply(self, answer: MetadataAnswer, asked: Collection[str] | None) -> None:
        """Apply an answer; ``asked`` None means that it lists every visible topic."""
        if answer.brokers:
            self.brokers = answer.brokers
        gone = set(self._topics) if asked is None else set()
        for topic in answer.topics:
            gone.discard(topic.name)
            self._errors.pop(topic.name, None)
            if topic.error_code:
                self._errors[topic.name] = topic.error_code
                if not is_retriable(topic.error_code) or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                    self._forget(topic.name)
                if not topic.leaders:
                    continue
            self._remember(topic)
        for name in gone:
            self._forget(name)

    def apply_listing(self, changes: ListingChanges, *, is_whole: bool) -> TopicChanges:
        """Apply what is different in a listing of all topics."""
        self.apply(MetadataAnswer(changes.brokers, iter(changes.topics)), None if is_whole else ())
        for name in changes.gone:
            self._forget(name)
        listed = [topic.name for topic in changes.topics]
        return TopicChanges(
            self.topics(listed), changes.gone.union(name for name in listed if name not in self._topics), is_whole
        )

    def _remember(self, topic: TopicMetadata) -> None:
        known, now = self._topics.get(topic.name), (topic.topic_id, topic.leaders, topic.replicas)
        if known is None or (known.topic_id, known.partitions, known.replicas) != now:
            self._topics[topic.name] = TopicInfo(topic.name, *now)

    def _forget(self, name: str) -> None:
        self._topics.pop(name, None)

    @property
    def names(self) -> Set[str]:
        """The names of the known topics, as a live view."""
        return self._topics.keys()

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Return the known topics among ``names``, or all known ones."""
        if names is None:
            return dict(self._topics)
        return {name: info for name in names if (info := self._topics.get(name)) is not None}

    def unknown(self, logs: Iterable[TP]) -> set[str]:
        """Return the topics of ``logs`` for which the cache has neither an entry nor an error."""
        return {log.topic for log in logs if log.topic not in self._topics and log.topic not in self._errors}

    def leader(self, log: TP) -> int:
        """Return the leader's node id, or ``NO_LEADER``."""
        info = self._topics.get(log.topic)
        return NO_LEADER if info is None else info.partitions.get(log.partition, NO_LEADER)

    def why_no_leader(self, log: TP) -> int:
        """Return the error code that explains ``NO_LEADER``."""
        known = self._errors.get(log.topic)
        if known:
            return known
        info = self._topics.get(log.topic)
        if info is None or log.partition not in info.partitions:
            return UNKNOWN_TOPIC_OR_PARTITION
        return LEADER_NOT_AVAILABLE

    def topic_id(self, name: str) -> bytes | None:
        """Return the 16 byte id of a topic, or None when the topic is not known."""
        info = self._topics.get(name)
        return None if info is None else info.topic_id

    def replicas(self, log: TP) -> int:
        """Return how many brokers keep a copy; 1 when unknown."""
        info = self._topics.get(log.topic)
        return 1 if info is None else info.replicas
