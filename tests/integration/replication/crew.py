"""Run a graph of sites: replicators that come and go, holders and ordinary producers that write, and a check.

The check compares every replica with its log's origin batch by batch: the same bounds, and the CRC that every copy of a
batch must have (``canonical_crc``), so that it covers logs of ordinary clients too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fairlead.kafka.admin import admin_client
from fairlead.kafka.protocol.batch import HEADER_BYTES, split
from fairlead.kafka.protocol.types import TopicPartition
from replication.batch.header_rewrite import canonical_crc
from replication.replicator import Replicator
from tests.support.replication.lab import NOW_MS, Lab, states, until
from tests.support.waits import PATIENCE
from topologies.model import Link, Topology

PER_BATCH = 5
Batch = tuple[int, int, int]  # first offset, next offset, CRC


def both_ways(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"from": one, "to": other, "both": True} for one, other in pairs]


def one_way(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"from": one, "to": other} for one, other in pairs]


def graph_of(stream: str, links: Iterable[Mapping[str, Any]]) -> Topology:
    """Return a topology of data centres that carries all of one stream over these links."""
    made = [{**link, "streams": {stream: "all"}} for link in links]
    names = sorted({str(link[end]) for link in made for end in ("from", "to")})
    return Topology.model_validate(
        {"name": "graph", "sites": {name: {"kind": "datacentre"} for name in names}, "streams": {stream: {}}}
        | {"links": made}
    )


def moved(topology: Topology, *, sites: Mapping[str, str], streams: Mapping[str, str]) -> Topology:
    """Return a copy of a topology with a test's own names for sites and streams."""

    def link(each: Link) -> Link:
        return each.model_copy(
            update={
                "from_": sites[each.from_],
                "to": sites[each.to],
                "streams": {streams[name]: selection for name, selection in each.streams.items()},
                "priority": {streams[name]: priority for name, priority in each.priority.items()},
            }
        )

    return topology.model_copy(
        update={
            "sites": {sites[name]: site for name, site in topology.sites.items()},
            "streams": {streams[name]: stream for name, stream in topology.streams.items()},
            "links": tuple(link(each) for each in topology.links),
            "users": {},
        }
    )


@dataclass
class Crew:
    """The replicators, log holders and producers of one topology. ``origin`` names the site that writes each log."""

    lab: Lab
    topology: Topology
    origin: dict[TopicPartition, str] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    running: dict[str, tuple[Replicator, asyncio.Event, asyncio.Task[None]]] = field(default_factory=dict)
    _producers: dict[str, Producer] = field(default_factory=dict)
    _admins: dict[str, AdminClient] = field(default_factory=dict)

    # --- replicators, by the name of their target and a suffix that distinguishes two of one target

    def start(self, *names: str) -> None:
        for name in names:
            replicator = self.lab.replicator(self.topology, name.partition("#")[0])
            stop = asyncio.Event()
            self.running[name] = (replicator, stop, asyncio.ensure_future(replicator.run(stop)))

    async def stop(self, *names: str) -> None:
        for name in names:
            self.running[name][1].set()
        await asyncio.gather(*(self.running.pop(name)[2] for name in names))

    def targets(self) -> list[str]:
        """Return the sites that are the target of a link."""
        return sorted({link.to for link in self.topology.directed_links()})

    def snapshots(self) -> list[dict[str, Any]]:
        return [replicator.snapshot() for replicator, _, _ in self.running.values()]

    def moved(self) -> Counter[str]:
        """Return what all links together have copied so far: records and bytes appended, bytes fetched."""
        total: Counter[str] = Counter()
        for shown in self.snapshots():
            for link in shown["links"]:
                total.update({key: link[key] for key in ("records", "bytes", "fetched_bytes")})
        return total

    # --- logs and their writers

    async def open(self, site: str, topic: str) -> None:
        """Create a log of the append convention, held by ``site``."""
        await self.lab.make(site, topic)
        tp = TopicPartition(topic)
        self.origin[tp], self.ends[tp] = site, await self.lab.open_term(site, topic, term=1, at=0)

    async def open_topic(self, site: str, topic: str, partitions: int) -> None:
        """Create a topic that ordinary producers write at ``site``."""
        client = self._admins.setdefault(site, admin_client(self.lab.kafka(site)))
        made = client.create_topics([NewTopic(topic, partitions, 1)])[topic]
        await asyncio.to_thread(made.result, PATIENCE)
        for number in range(partitions):
            self.origin[TopicPartition(topic, number)], self.ends[TopicPartition(topic, number)] = site, 0

    async def write(self, count: int) -> None:
        """Let every holder and producer append ``count`` records to each of their logs."""
        ours = [tp for tp in self.origin if tp.topic not in self._of_producers()]
        await asyncio.gather(*(self._hold(tp, count) for tp in ours), self._produce(count))

    def _of_producers(self) -> set[str]:
        return {tp.topic for tp in self.origin if tp.topic.endswith(".orders")}

    async def _hold(self, tp: TopicPartition, count: int) -> None:
        self.ends[tp] = await self.lab.write(self.origin[tp], tp.topic, count, at=self.ends[tp], per=PER_BATCH)

    async def _produce(self, count: int) -> None:
        for tp, site in self.origin.items():
            if tp.topic in self._of_producers():
                if site not in self._producers:
                    settings: dict[str, Any] = {"linger.ms": 5, "log_level": 0}
                    self._producers[site] = Producer({**self.lab.kafka(site).librdkafka(), **settings})
                for n in range(self.ends[tp], self.ends[tp] + count):
                    self._producers[site].produce(
                        tp.topic, f"value {n}", str(n), partition=tp.partition, timestamp=NOW_MS + n
                    )
                self.ends[tp] += count
        left = await asyncio.gather(*(asyncio.to_thread(each.flush, PATIENCE) for each in self._producers.values()))
        assert not any(left)

    # --- the comparison

    def replicas(self, tp: TopicPartition) -> list[str]:
        """Return the sites to which links copy a log."""
        stream = tp.topic.partition(".")[0]
        links = [each for each in self.topology.directed_links() if stream in each.streams]
        reached = {self.origin[tp]}
        while further := {each.to for each in links if each.from_ in reached} - reached:
            reached |= further
        return sorted(reached - {self.origin[tp]})

    async def settle(self) -> None:
        """Wait until every replica ends where its log ends; fail if one gets longer."""
        for site in self.topology.sites:
            logs = [tp for tp in self.origin if site in self.replicas(tp)]

            async def there(site: str = site, logs: Collection[TopicPartition] = tuple(logs)) -> bool:
                found = await self._ends(site, logs)
                assert all(found[tp] <= self.ends[tp] for tp in logs), f"{site} has more than was written: {found}"
                return found == {tp: self.ends[tp] for tp in logs}

            try:
                await until(there, "not there")
            except AssertionError as error:
                behind = {tp: end for tp, end in (await self._ends(site, logs)).items() if end != self.ends[tp]}
                raise AssertionError(f"{error}: {site} has {behind}; {self.snapshots()}") from error

    async def _ends(self, site: str, logs: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        cluster = await self.lab.cluster(site)
        known = await cluster.topics({tp.topic for tp in logs}, refresh=True)
        asked = [tp for tp in logs if tp.topic in known and tp.partition in known[tp.topic].partitions]
        found = await cluster.end_offsets(asked) if asked else {}
        return {tp: end if isinstance(end := found.get(tp), int) else -1 for tp in logs}

    async def assert_identical(self) -> None:
        """Check that every replica has the batches of its log's origin, and that no log is in trouble anywhere."""
        for tp, origin in self.origin.items():
            wanted = await batches(self.lab, origin, tp)
            assert wanted and wanted[-1][1] == self.ends[tp]
            for site in self.replicas(tp):
                assert await batches(self.lab, site, tp) == wanted, f"{tp} at {site} is not what {origin} has"
        assert [states(shown) for shown in self.snapshots()] == [{}] * len(self.running)


@asynccontextmanager
async def crew_of(lab: Lab, topology: Topology) -> AsyncIterator[Crew]:
    """Provide a crew; stop its replicators at the end."""
    crew = Crew(lab, topology)
    try:
        yield crew
    finally:
        await crew.stop(*crew.running)


async def batches(lab: Lab, site: str, tp: TopicPartition) -> list[Batch]:
    """Return every batch of a log in the form that all copies must have."""
    cluster = await lab.cluster(site)
    at, end = (await cluster.start_offsets([tp]))[tp], (await cluster.end_offsets([tp]))[tp]
    assert isinstance(at, int) and isinstance(end, int)
    out: list[Batch] = []
    while at < end:
        part = (await cluster.fetch({tp: at}, max_wait_ms=0))[tp]
        assert part.error_code == 0 and len(part.records) >= HEADER_BYTES
        for batch in split(part.records):
            header = batch.header
            crc = canonical_crc(part.records[batch.start : batch.stop], header)
            out.append((header.base_offset, header.next_offset, crc))
            at = header.next_offset
    return out
