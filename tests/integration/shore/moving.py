"""Two sites of one topology, and logs that are copied between their brokers as a replicator copies them."""

from __future__ import annotations

import asyncio

from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from tests.support.shore.world import World
from topologies.model import Customer, Shore, Site, SiteKind, Topology


def two_sites(topology: Topology) -> Topology:
    """Return a test's topology with a second site, ``beta``, to which shore can move from ``alpha``."""
    sites = {**topology.sites, "beta": Site(kind=SiteKind.PORT, unlocode="SGSIN")}
    customers = {name: Customer(feed_at="alpha", feed=each.feed) for name, each in topology.customers.items()}
    shore = Shore(at="alpha", standby=("beta",))
    return topology.model_copy(update={"sites": sites, "customers": customers, "shore": shore})


def copy_log(old: World, new: World, topic: str, until: int | None = None) -> None:
    """Bring what a log's copy lacks, up to an offset, as it is. All of it must be of one term."""
    records = [NewRecord(r.value, r.key, r.headers, timestamp_ms=r.timestamp_ms) for r in old.read(topic)]

    async def write() -> None:
        async with await Cluster.open(new.endpoint, client_id="test") as cluster:
            if topic not in await cluster.topics([topic], refresh=True):
                await asyncio.to_thread(create_logs, new.endpoint, {topic: {}})
                await cluster.wait_writable([topic])
            appender = Appender(cluster)
            try:
                end = (await appender.ensure_open(TP(topic), records[0])).end
                await appender.append(TP(topic), records[end:until])
            finally:
                await appender.close()

    asyncio.run(write())
