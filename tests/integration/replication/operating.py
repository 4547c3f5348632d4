"""Provide two real sites under names that only one test uses, so that orders affect no other test's links."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fairlead.kafka.admin import create_logs
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TopicPartition
from replication import replicator
from replication.operations.links.access import KafkaAccess, open_access, status_file
from replication.operations.links.facts import LinkOperation, LinkScope, find_link, gather_facts
from replication.operations.links.plan import LinkPlan, build_plan
from replication.operations.links.steps import LinkRun, carry_out
from replication.replicator import Replicator
from tests.support.replication.lab import Lab, until
from tests.support.waits import PATIENCE
from topologies.model import Topology

SETTLE = 0.5


@dataclass
class Two:
    """West is the broker alpha, east is beta; a site in ``gone`` has an address that does not answer."""

    lab: Lab
    folder: Path
    west: str = field(default_factory=lambda: "west-" + secrets.token_hex(3))
    east: str = field(default_factory=lambda: "east-" + secrets.token_hex(3))
    gone: set[str] = field(default_factory=set)
    access: KafkaAccess = field(init=False)

    def topology(self, *, both: bool = False) -> Topology:
        """Return a topology with a link from west to east, or both ways, for logs without a fixed holder."""
        return Topology.model_validate(
            {
                "name": "two",
                "sites": {self.west: {"kind": "datacentre"}, self.east: {"kind": "datacentre"}},
                "streams": {self.lab.stream: {}},
                "links": [{"from": self.west, "to": self.east, "both": both, "streams": {self.lab.stream: "all"}}],
            }
        )

    def kafka(self, site: str) -> KafkaEndpoint:
        real = self.lab.kafka("alpha" if site == self.west else "beta")
        return replace(real, bootstrap=(("127.0.0.1", 1),)) if site in self.gone else real

    def replicator(self, topology: Topology, site: str) -> Replicator:
        return Replicator(topology, site, self.kafka(site), self.kafka, status_file=status_file(self.folder, site))

    async def plan(self, verb: LinkOperation, topology: Topology, scope: LinkScope, *, back: bool = False) -> LinkPlan:
        source, target = (self.east, self.west) if back else (self.west, self.east)
        link = find_link(topology, None, source, target)
        return build_plan(verb, await gather_facts(verb, topology, link, scope, self.access, by="ann"), settle=SETTLE)

    async def do(self, verb: LinkOperation, topology: Topology, scope: LinkScope, *, back: bool = False) -> LinkRun:
        return await carry_out(await self.plan(verb, topology, scope, back=back), LinkRun(self.access))

    async def make(self, topic: str, partitions: int = 1) -> None:
        """Create a topic of an ordinary client at west."""
        create_logs(self.kafka(self.west), {topic: {}}, partitions={topic: partitions})
        logs = [TopicPartition(topic, n) for n in range(partitions)]
        await (await self.lab.cluster("alpha")).wait_writable(logs)

    def send(self, site: str, topic: str, first: int, count: int, partitions: int = 1) -> None:
        """Append records as an ordinary client."""
        client = Producer({**self.kafka(site).librdkafka(), "linger.ms": 0, "log_level": 0})
        for n in range(first, first + count):
            client.produce(topic, value=f"value {n}", key=str(n), partition=n % partitions)
        assert client.flush(PATIENCE) == 0

    async def ends(self, site: str, topic: str) -> dict[TopicPartition, int]:
        return await self.access.ends(site, lambda name: name == topic)

    async def even(self, topic: str, records: int) -> None:
        """Wait until both sites have this many records of a topic, with the same number in each partition."""

        async def equal() -> bool:
            ends = await self.ends(self.west, topic)
            return sum(ends.values()) == records and ends == await self.ends(self.east, topic)

        await until(equal, f"{topic}: {await self.ends(self.west, topic)}, {await self.ends(self.east, topic)}")

    async def values(self, site: str, topic: str) -> list[str]:
        """Return every value of partition 0."""
        records = await self.lab.read("alpha" if site == self.west else "beta", topic)
        return [record.value.decode() for record in records if record.value is not None]


@pytest.fixture
async def two(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Two]:
    monkeypatch.setattr(replicator, "STATUS_SECONDS", 0.1)  # operations wait for status reports
    made = Two(lab, tmp_path)
    async with open_access(made.kafka, tmp_path) as access:
        made.access = access
        yield made
