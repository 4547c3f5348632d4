"""Ask the sites what they have of each stream, and describe streams from that and from the topology.

``take_inventory`` and ``read_positions`` ask; the rest is pure. A site that does not answer is in
``Inventory.unreached``, and everything else is told without it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from acl.compile import clauses, exists_at, grants, public_grants
from acl.rules import EVERYBODY, Resource
from fairlead.errors import FairleadError, UnknownNameError
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.errors import BrokerError
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.names import parse_log
from replication.groups.client import GroupClient
from topologies.model import Topology
from topologies.users import Role, service_users
from topologies.values import format_duration

ANSWER: Final = 10.0  # seconds for a site to answer
RESERVED: Final = "fairlead"  # the topics of Fairlead's orders begin with it; they belong to no stream
_PEOPLE: Final = (Role.CUSTOMER, Role.USER)

FindKafka = Callable[[str], KafkaEndpoint]
"""Return a site's Kafka as its administrator; raise ``UnavailableError`` if it does not run."""


@dataclass(frozen=True, slots=True)
class StoredLog:
    """One log as a site has it.

    Args:
        topic_id: 16 bytes that change when the topic is deleted and made again.
        starts, ends: The first offset that is kept, and the one after the last, by partition.
        bytes: The size of its segments on its leaders' disks; None if the site does not tell.
    """

    log: str
    topic_id: bytes
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    bytes: int | None

    @property
    def records(self) -> int | None:
        """The number of offsets that it keeps, markers and fillers included; None if a partition does not answer."""
        if not self.starts.keys() == self.ends.keys():
            return None
        return sum(end - self.starts[n] for n, end in self.ends.items())


@dataclass(frozen=True, slots=True)
class SiteStreams:
    """The logs of one site by stream, also those of streams that the topology does not have."""

    site: str
    streams: Mapping[str, tuple[StoredLog, ...]]

    def logs(self, stream: str) -> tuple[StoredLog, ...]:
        """Return the site's logs of a stream; empty if it has none."""
        return self.streams.get(stream, ())


@dataclass(frozen=True, slots=True)
class UnreachedSite:
    """A site that could not be asked."""

    site: str
    why: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the sites have, and which sites did not answer; both in the topology's order."""

    sites: tuple[SiteStreams, ...] = ()
    unreached: tuple[UnreachedSite, ...] = ()

    def streams(self) -> set[str]:
        """Return the names of all streams that a site has a log of."""
        return {stream for site in self.sites for stream in site.streams}


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """One consumer group that has committed offsets in a stream.

    Args:
        logs: Logs with an offset of the group.
        lag: Records behind these offsets, up to the logs' ends.
        active: Whether it has members now.
    """

    site: str
    group: str
    logs: int
    lag: int
    active: bool


@dataclass(frozen=True, slots=True)
class StreamPositions:
    """The consumer groups of a stream, and the sites whose groups could not be read."""

    groups: tuple[StreamGroup, ...] = ()
    unreached: tuple[UnreachedSite, ...] = ()


async def take_inventory(
    kafka: FindKafka, sites: Collection[str], *, only: str | None = None, answer: float = ANSWER
) -> Inventory:
    """Ask every site at once for its logs.

    Args:
        kafka: Returns a site's Kafka as its administrator, who may see all logs.
        only: The stream to ask about; None for all.
        answer: Seconds within which a site must answer.
    """

    async def ask(site: str) -> SiteStreams | UnreachedSite:
        try:
            async with await Cluster.open(kafka(site), client_id="fairlead-stream", request_timeout=answer) as cluster:
                return SiteStreams(site, await _streams_of(cluster, only))
        except FairleadError as error:
            return UnreachedSite(site, error.what, error.hint)

    answers = await asyncio.gather(*map(ask, sites))
    return Inventory(
        tuple(each for each in answers if isinstance(each, SiteStreams)),
        tuple(each for each in answers if isinstance(each, UnreachedSite)),
    )


async def _streams_of(cluster: Cluster, only: str | None) -> dict[str, tuple[StoredLog, ...]]:
    topics = {}
    for topic, info in (await cluster.topics(refresh=True)).items():
        name = parse_log(topic)
        if name is not None and name.stream != RESERVED and only in (None, name.stream):
            topics[topic] = info
    logs = [TopicPartition(topic, n) for topic, info in topics.items() for n in info.partitions]
    starts = await cluster.start_offsets(logs, seconds=1.0)
    ends = await cluster.end_offsets(logs, seconds=1.0)
    sizes = await cluster.log_sizes(logs)
    found: dict[str, list[StoredLog]] = {}
    for topic, info in sorted(topics.items()):
        parts = [TopicPartition(topic, n) for n in info.partitions]
        known = [size for tp in parts if isinstance(size := sizes[tp], int)]
        stored = StoredLog(
            topic,
            info.topic_id,
            _known(starts, parts),
            _known(ends, parts),
            sum(known) if len(known) == len(parts) else None,
        )
        found.setdefault(topic.partition(".")[0], []).append(stored)
    return {stream: tuple(each) for stream, each in found.items()}


def _known(offsets: Mapping[TopicPartition, int | BrokerError], parts: Iterable[TopicPartition]) -> dict[int, int]:
    return {tp.partition: offset for tp in parts if isinstance(offset := offsets[tp], int)}


async def read_positions(kafka: FindKafka, inventory: Inventory, stream: str) -> StreamPositions:
    """Ask the sites of an inventory for the consumer groups that have offsets in a stream."""

    async def ask(site: SiteStreams) -> list[StreamGroup] | UnreachedSite:
        ends = {TopicPartition(log.log, n): end for log in site.logs(stream) for n, end in log.ends.items()}
        try:
            if not ends:
                return []
            return await _groups_in(await asyncio.to_thread(GroupClient, kafka(site.site)), site.site, ends)
        except FairleadError as error:
            return UnreachedSite(site.site, error.what, error.hint)

    answers = await asyncio.gather(*map(ask, inventory.sites))
    return StreamPositions(
        tuple(group for each in answers if isinstance(each, list) for group in each),
        tuple(each for each in answers if isinstance(each, UnreachedSite)),
    )


async def _groups_in(client: GroupClient, site: str, ends: Mapping[TopicPartition, int]) -> list[StreamGroup]:
    found: list[StreamGroup] = []
    for group, active in sorted((await client.groups()).active.items()):
        offsets = {tp: commit.offset for tp, commit in (await client.offsets(group)).items() if tp in ends}
        if offsets:
            lag = sum(max(0, ends[tp] - offset) for tp, offset in offsets.items())
            found.append(StreamGroup(site, group, len({tp.topic for tp in offsets}), lag, active))
    return found


# --- pure: descriptions


@dataclass(slots=True)
class _Sum:
    """Logs, records and bytes of several logs; None once a part is unknown."""

    logs: int = 0
    records: int | None = 0
    bytes: int | None = 0

    def add(self, log: StoredLog) -> None:
        self.logs += 1
        self.records = _plus(self.records, log.records)
        self.bytes = _plus(self.bytes, log.bytes)

    def as_json(self) -> dict[str, int | None]:
        return {"logs": self.logs, "records": self.records, "bytes": self.bytes}


def _plus(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more


def _sum_of(logs: Iterable[StoredLog]) -> _Sum:
    total = _Sum()
    for log in logs:
        total.add(log)
    return total


def check_stream(topology: Topology, inventory: Inventory, stream: str) -> None:
    """Check that the topology has a stream, or that a site has logs of it.

    Raises:
        UnknownNameError: neither; the error names the streams that there are.
    """
    known = {*topology.streams, *inventory.streams()}
    if stream not in known:
        raise UnknownNameError("stream", stream, known)


def retention_at(topology: Topology, stream: str) -> dict[str, dt.timedelta]:
    """Return how long each site keeps a stream, for the sites that can have logs of it."""
    if stream not in topology.streams:
        return {}
    return {
        name: site.retention_of(stream) for name, site in topology.sites.items() if exists_at(topology, stream, name)
    }


def list_streams(topology: Topology, inventory: Inventory) -> list[dict[str, Any]]:
    """Return every stream, first those of the topology: settings, and what the sites have of it.

    ``logs`` counts each log once, however many sites have it. ``records`` adds up the most records that a site has of
    each log; ``bytes`` adds up all sites. They are of the sites that answer, and null if none does, or if one does not
    tell. ``declared``: whether the topology has the stream.
    """
    others = sorted(inventory.streams() - set(topology.streams))
    return [_listed(topology, inventory, stream) for stream in (*topology.streams, *others)]


def _listed(topology: Topology, inventory: Inventory, stream: str) -> dict[str, Any]:
    most: dict[str, int] = {}
    unknown = not inventory.sites
    sums: dict[str, _Sum] = {}
    for site in inventory.sites:
        for log in site.logs(stream):
            sums.setdefault(site.site, _Sum()).add(log)
            unknown |= log.records is None
            most[log.log] = max(most.get(log.log, 0), log.records or 0)
    size: int | None = 0 if inventory.sites else None
    for each in sums.values():
        size = _plus(size, each.bytes)
    kept = retention_at(topology, stream)
    return {
        **_settings(topology, stream),
        "logs": len(most) if inventory.sites else None,
        "records": None if unknown else sum(most.values()),
        "bytes": size,
        "sites": {site: each.as_json() for site, each in sums.items()},
        "retention": {site: format_duration(each) for site, each in kept.items()},
        "shortest_retention": format_duration(min(kept.values())) if kept else None,
        "longest_retention": format_duration(max(kept.values())) if kept else None,
    }


def _settings(topology: Topology, stream: str) -> dict[str, Any]:
    spec = topology.streams.get(stream)
    return {
        "stream": stream,
        "title": spec.title if spec else "",
        "declared": spec is not None,
        "insert_point": str(spec.insert_point) if spec else None,
        "priority": str(spec.priority) if spec else None,
    }


def describe_stream(
    topology: Topology, inventory: Inventory, positions: StreamPositions, stream: str
) -> dict[str, Any]:
    """Return everything about one stream.

    ``sites``: logs, records, bytes and retention of each site that has it or can have it; logs, records and bytes are
    null where the site was not reached. ``links`` carry it. ``permissions`` are the expressions of the topology;
    ``access`` is what they, feeds and nothing else resolve to: rules of people, with the sites where they apply.
    Fairlead's own services are left out. ``groups`` have committed offsets in it.
    """
    kept = retention_at(topology, stream)
    reached = {site.site: site for site in inventory.sites}
    away = {each.site for each in inventory.unreached}
    sites: dict[str, Any] = {}
    for name in topology.sites:
        logs = reached[name].logs(stream) if name in reached else ()
        if logs or (name in kept and (name in reached or name in away)):
            sums = _sum_of(logs).as_json() if name in reached else dict.fromkeys(("logs", "records", "bytes"))
            sites[name] = {**sums, "retention": format_duration(kept[name]) if name in kept else None}
    spec = topology.streams.get(stream)
    return {
        **_settings(topology, stream),
        "owners": list(spec.owners) if spec else [],
        "sites": sites,
        "links": list(_links(topology, stream)),
        "permissions": [
            {"where": clause.where, "permission": clause.permission, "key": clause.key, "expression": clause.text}
            for clause in (clauses(topology, stream) if spec else ())
            if clause.key is None or clause.text
        ],
        "access": _access(topology, stream) if spec else [],
        "groups": [
            {"site": each.site, "group": each.group, "logs": each.logs, "lag": each.lag, "active": each.active}
            for each in positions.groups
        ],
        "groups_unread": [{"site": each.site, "why": each.why} for each in positions.unreached],
    }


def _links(topology: Topology, stream: str) -> Iterator[dict[str, Any]]:
    spec = topology.streams.get(stream)
    for link in topology.directed_links():
        if spec is not None and stream in link.streams:
            taken = link.streams[stream]
            yield {
                "link": link.name,
                "from": link.from_,
                "to": link.to,
                "takes": taken if isinstance(taken, str) else list(taken),
                "priority": str(link.priority_of(stream, spec.priority)),
            }


def _access(topology: Topology, stream: str) -> list[dict[str, Any]]:
    """Return the rules of people on a stream's logs, those with the same reason together."""
    found: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for site in topology.sites:
        people = [user for user in service_users(topology, site).values() if user.role in _PEOPLE]
        given = [grant for user in people for grant in grants(topology, user)]
        for grant in (*given, *public_grants(topology, site)):
            rule = grant.rule
            if rule.resource is Resource.TOPIC and rule.name.partition(".")[0] == stream:
                star = "*" if str(rule.pattern) == "PREFIXED" else ""
                sites = found.setdefault((rule.user, rule.name + star, grant.because), {})
                operations = sites.setdefault(site, [])
                if str(rule.operation) not in operations:
                    operations.append(str(rule.operation))
    rows: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for (user, logs, because), sites in found.items():
        for site, operations in sites.items():
            rows.setdefault((user, logs, because, tuple(operations)), []).append(site)
    return [
        {
            "user": "everybody" if user == EVERYBODY else user,
            "operations": list(operations),
            "logs": logs,
            "sites": at,
            "because": because,
        }
        for (user, logs, because, operations), at in rows.items()
    ]


def measure_usage(topology: Topology, inventory: Inventory, stream: str | None, *, biggest: int) -> dict[str, Any]:
    """Return logs, records and bytes of each stream at each site, largest first, and the biggest logs of all sites.

    Args:
        stream: The stream to measure; None for all.
        biggest: How many of the biggest logs to return.
    """
    order = {name: number for number, name in enumerate((*topology.streams, *sorted(inventory.streams())))}
    rows: list[dict[str, Any]] = []
    logs: list[dict[str, Any]] = []
    total = _Sum()
    for site in inventory.sites:
        for name in sorted(site.streams, key=lambda each: order[each]):
            if stream in (None, name):
                stored = site.logs(name)
                rows.append({"stream": name, "site": site.site, **_sum_of(stored).as_json()})
                for log in stored:
                    total.add(log)
                    logs.append({"log": log.log, "site": site.site, "records": log.records, "bytes": log.bytes})
    rows.sort(key=lambda row: -(row["bytes"] or 0))
    logs.sort(key=lambda log: (-(log["bytes"] or 0), -(log["records"] or 0), log["log"]))
    return {"usage": rows, "total": total.as_json(), "biggest_logs": logs[:biggest]}


def unreached_as_json(unreached: Iterable[UnreachedSite]) -> list[dict[str, str]]:
    """Return the sites that were not reached, JSON-ready."""
    return [{"site": each.site, "why": each.why, "hint": each.hint} for each in unreached]
