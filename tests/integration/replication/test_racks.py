"""A replicator with a rack copies from the replicas in its rack (KIP-392), from the leaders while these are away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.kafka.client import fetch_session
from fairlead.kafka.client.fetch_session import FetchSession
from fairlead.kafka.protocol.fetch_codec import FetchAnswer
from fairlead.kafka.protocol.types import TopicPartition
from fairlead.local import kafka as broker_files
from fairlead.local.sites import LocalSites, SiteSpec
from fairlead.local.state import Broker
from tests.support.proof import grown, proven
from tests.support.replication.lab import Lab, states, until
from tests.support.sites import USERS
from tests.support.traffic import Traffic

pytestmark = [
    pytest.mark.long,
    pytest.mark.integration,
    pytest.mark.processes("the racks are written to the brokers' files on this machine"),
]

ZONES = "zones"
NEAR = 1  # the broker in the replicator's rack
SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@pytest.fixture(scope="module")
def zones(sites: LocalSites) -> Iterator[LocalSites]:
    """Run a site whose three brokers are in the racks ``zone-1`` to ``zone-3``."""
    plain = broker_files.server_properties

    def with_rack(*args: Any, broker: Broker | None = None, **more: Any) -> str:
        number = broker.number if broker is not None else 1
        return plain(*args, broker=broker, **more) + f"broker.rack=zone-{number}\n"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_files, "server_properties", with_rack)
        sites.up([SiteSpec(ZONES, USERS, properties=SELECTOR, brokers=3)])
        yield sites
        sites.down([ZONES], purge=True)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Count the bytes of records that fetch sessions get, by broker."""
    count: Counter[int] = Counter()
    request = FetchSession._request  # noqa: SLF001

    async def counting(self: FetchSession, node: int, *args: Any) -> FetchAnswer:
        answer = await request(self, node, *args)
        count[node] += sum(len(content.records) for _, _, content in answer.partitions)
        return answer

    monkeypatch.setattr(FetchSession, "_request", counting)
    monkeypatch.setattr(fetch_session, "LEADER_SECONDS", 5.0)
    return count


async def test_copies_come_from_the_replicas_in_the_rack(lab: Lab, zones: LocalSites, fetched: Counter[int]) -> None:
    own, other = [lab.log(f"{ZONES}.own-{n}") for n in range(6)], [lab.log(f"{ZONES}.{n}") for n in ("idem", "txn")]
    await lab.make(ZONES, *own, *other)
    topology = lab.topology(
        sites={ZONES: {"kind": "datacentre"}, "alpha": {"kind": "datacentre", "rack": f"zone-{NEAR}"}},
        links=[{"from": ZONES, "to": "alpha", "streams": {lab.stream: "all"}}],
    )
    source = await lab.cluster(ZONES)
    await source.topics([*own, *other])
    leaders = {source.metadata.leader(TopicPartition(topic)) for topic in (*own, *other)}
    assert leaders - {NEAR}, "some logs have their leaders elsewhere"
    replicator = lab.replicator(topology, "alpha")
    writers = Traffic(lab.kafka(ZONES), own=own, idempotent=other[:1], transactional=other[1:], pause=0.05)
    async with lab.running(replicator), writers:
        await grown(lab.kafka("alpha"), writers.written)

        async def near_only() -> bool:
            """Bring some records; true if all of them came from the near broker."""
            before = fetched.copy()
            await grown(lab.kafka("alpha"), writers.written)
            return set(fetched - before) == {NEAR}

        await until(near_only, "not everything is fetched from the near broker")

        await asyncio.to_thread(zones.kill, ZONES, broker=NEAR)
        before = fetched.copy()
        await grown(lab.kafka("alpha"), writers.written)
        assert set(fetched - before) - {NEAR}, "the leaders serve"

        await asyncio.to_thread(zones.restart, ZONES, broker=NEAR)
        await until(near_only, "the near broker is not used again")
        await writers.stop()
        await proven(topology, writers.written, lab.kafka(ZONES), lab.kafka("alpha"))
        assert states(replicator.snapshot()) == {}
