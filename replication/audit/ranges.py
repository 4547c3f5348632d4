"""Find the logs and offsets that two sites have in common, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Asked
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from fairlead.errors import UnavailableError
from fairlead.kafka.admin import explain, kafka_error, require_answer
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import is_retriable
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.names import parse_log
from replication.catalog import Catalog
from topologies.model import Topology

T = TypeVar("T")
SECONDS: Final = 60.0  # for a request
AT_ONCE: Final = 2_000  # logs in a request
PATIENCE: Final = 30.0  # seconds to retry while a broker starts or a leader moves
GONE_AFTER: Final = 3.0  # seconds to retry an unknown topic: a broker that has just started does not know all of them
PAUSE: Final = 0.2
_GONE: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")
_AWAY: Final = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN")


class LogExtent(NamedTuple):
    """The offsets of a log at one site: ``start`` to ``end - 1``, up to the last stable offset."""

    start: int
    end: int
    topic_id: str = ""


class Common(NamedTuple):
    """The offsets of one log to compare: ``start`` to ``stop - 1``. ``ids`` are the topic's ids at both sites."""

    tp: TopicPartition
    start: int
    stop: int
    ids: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The offsets to compare of each log, the logs without common offsets, and the logs that only one site has."""

    common: tuple[Common, ...]
    apart: tuple[TopicPartition, ...]
    only_a: tuple[TopicPartition, ...]
    only_b: tuple[TopicPartition, ...]
    behind: int


def overlap(a: Mapping[TopicPartition, LogExtent], b: Mapping[TopicPartition, LogExtent]) -> AuditPlan:
    """Find the logs and offsets of both sites. A log that is empty at both sites is common, without offsets. Pure."""
    common: list[Common] = []
    apart: list[TopicPartition] = []
    behind = 0
    for tp in sorted(a.keys() & b.keys()):
        here, there = a[tp], b[tp]
        start, stop = max(here.start, there.start), min(here.end, there.end)
        behind += here.end != there.end
        if start < stop or max(here.end, there.end) == 0:
            common.append(Common(tp, start, stop, (here.topic_id, there.topic_id)))
        else:
            apart.append(tp)
    return AuditPlan(
        tuple(common), tuple(apart), tuple(sorted(a.keys() - b.keys())), tuple(sorted(b.keys() - a.keys())), behind
    )


def carried(
    topology: Topology, source: str, target: str, logs: Collection[TopicPartition]
) -> tuple[TopicPartition, ...]:
    """Return those logs of a source that its links to a target carry, in any case: not the logs of containers that
    depend on custody, nor those that the target itself writes. Pure."""
    catalog = Catalog(topology)
    links = [link for link in topology.links_to(target) if link.from_ == source]

    def is_carried(tp: TopicPartition) -> bool:
        facts = catalog.facts(tp.topic)
        return (
            facts is not None
            and facts.fixed_holder != target
            and any(
                catalog.may_carry(link, tp.topic)
                and not (facts.moves and (catalog.is_from_ship(link) or link.streams[facts.stream] == "aboard"))
                for link in links
            )
        )

    return tuple(tp for tp in logs if is_carried(tp))


class Inquiry:
    """Asks one site about its logs. Blocking.

    Raises:
        RefusedError: the password is wrong, or the user may not ask. UnavailableError: the site does not answer.
    """

    def __init__(self, endpoint: KafkaEndpoint) -> None:
        self._endpoint = endpoint
        self._client: AdminClient = require_answer(endpoint)

    def logs(self, topology: Topology, streams: Collection[str] | None = None) -> dict[TopicPartition, LogExtent]:
        """Return every log of these streams (None: all of the topology) with its offsets at the site."""
        wanted = set(topology.streams) if streams is None else set(streams)
        try:
            found: Any = self._client.list_topics(timeout=SECONDS)
        except KafkaException as error:
            raise explain(error, self._endpoint, "list the topics") from error
        topics = sorted(topic for topic in found.topics if (name := parse_log(topic)) and name.stream in wanted)
        ids = self._ids(topics)
        logs = [TopicPartition(topic, each) for topic in topics for each in sorted(found.topics[topic].partitions)]
        return {tp: LogExtent(start, end, ids.get(tp.topic, "")) for tp, (start, end) in self.extents(logs).items()}

    def extents(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset and the end of these logs; deleted logs are left out."""
        starts, ends = self._offsets(logs, OffsetSpec.earliest()), self._offsets(logs, OffsetSpec.latest())
        return {tp: (starts[tp], ends[tp]) for tp in logs if tp in starts and tp in ends}

    def compacted(self, topics: Collection[str]) -> set[str]:
        """Return the topics that are compacted here. Needs DESCRIBE_CONFIGS. A topic whose settings the user may not
        read counts as not compacted, so that no difference is excused by mistake."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]

        def ask(some: list[ConfigResource]) -> Any:
            return self._client.describe_configs(some, request_timeout=SECONDS)

        found = self._each(resources, ask, "read the settings of", gone=(*_GONE, "TOPIC_AUTHORIZATION_FAILED"))
        return {each.name for each, settings in found.items() if "compact" in settings["cleanup.policy"].value}

    def _ids(self, topics: Collection[str]) -> dict[str, str]:
        def ask(some: list[str]) -> Any:
            return self._client.describe_topics(TopicCollection(some), request_timeout=SECONDS)

        return {topic: str(found.topic_id) for topic, found in self._each(topics, ask, "describe").items()}

    def _offsets(self, logs: Collection[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        def ask(some: list[Asked]) -> Any:
            committed = IsolationLevel.READ_COMMITTED
            wanted = dict.fromkeys(some, spec)
            return self._client.list_offsets(wanted, isolation_level=committed, request_timeout=SECONDS)

        found = self._each([Asked(tp.topic, tp.partition) for tp in logs], ask, "ask for offsets of")
        return {TopicPartition(tp.topic, tp.partition): each.offset for tp, each in found.items()}

    def _each(
        self, keys: Collection[T], ask: Callable[[list[T]], Any], doing: str, *, gone: tuple[str, ...] = _GONE
    ) -> dict[T, Any]:
        """Return the answers by key, without deleted logs. Repeat requests that fail because a broker starts or a
        leader moves."""
        out: dict[T, Any] = {}
        left: Collection[T] = keys
        began = time.monotonic()
        while left:
            later: list[T] = []
            for some in _some(left, AT_ONCE):
                for key, future in ask(some).items():
                    try:
                        out[key] = future.result()
                    except KafkaException as error:
                        waited = time.monotonic() - began
                        if waited < _patience(kafka_error(error)):
                            later.append(key)
                        elif kafka_error(error).name() not in gone:
                            raise explain(error, self._endpoint, f"{doing} {_name(key)}") from error
            left = later
            if left:
                time.sleep(PAUSE)
        return out


def _name(key: object) -> str:
    if isinstance(key, Asked):
        return str(TopicPartition(key.topic, key.partition))
    return key.name if isinstance(key, ConfigResource) else str(key)


def _patience(error: KafkaError) -> float:
    """Return for how many seconds to repeat a request that fails with this error."""
    if error.name() in _GONE:
        return GONE_AFTER
    code = error.code()
    return PATIENCE if error.name() in _AWAY or (code > 0 and is_retriable(code)) else 0.0


class Inquiries:
    """Ask both sites about their logs. Blocking; raises the errors of ``Inquiry``."""

    def __init__(self, a: KafkaEndpoint, b: KafkaEndpoint) -> None:
        self.sites = (Inquiry(a), Inquiry(b))

    def plan(self, topology: Topology, streams: Collection[str] | None = None) -> AuditPlan:
        a, b = (site.logs(topology, streams) for site in self.sites)
        return overlap(a, b)

    def starts(self, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that both sites have now, for each log.

        Raises:
            UnavailableError: a log was deleted at one site.
        """
        a, b = (site.extents(logs) if logs else {} for site in self.sites)
        for tp in logs:
            if tp not in a or tp not in b:
                raise UnavailableError(
                    f"{tp} was deleted while it was compared", hint="run the audit again", log=str(tp)
                )
        return {tp: max(a[tp][0], b[tp][0]) for tp in logs}

    def ends(self, log: Common) -> tuple[int, int]:
        """Return both sites' current ends of a log, at least ``log.stop``."""
        a, b = (site.extents([log.tp]).get(log.tp, (0, 0))[1] for site in self.sites)
        return max(a, log.stop), max(b, log.stop)

    def compacted(self, topics: Collection[str]) -> set[str]:
        """Return the topics that are compacted at one site at least."""
        return set[str]().union(*(site.compacted(topics) for site in self.sites))


def _some(keys: Collection[T], count: int) -> list[list[T]]:
    left = iter(keys)
    out: list[list[T]] = []
    while some := list(islice(left, count)):
        out.append(some)
    return out
