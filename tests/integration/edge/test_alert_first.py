"""Over a slow link, an alert leaves the ship before a backlog of older readings."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import AsyncIterator

import pytest

from edge.site_kafka import TopicMaker
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.record import NewRecord
from fairlead.kafka.protocol.types import TP
from replication.replicator import Replicator
from simulators.network.proxy import TcpProxy
from tests.support.edge.fleet import Fleet, until
from topologies.model import Topology

pytestmark = [pytest.mark.long, pytest.mark.integration]

FALL = {"motion": {"freeFallSeconds": 1.8, "peakG": 9.0, "tiltDegrees": 80.0, "immersed": True}}
LINE = 64e3  # bits per second
BATCHES = 60  # batches of 4 kB: half a minute of the link


def linked(fleet: Fleet) -> Topology:
    """Return the fleet with a slow link from ship to port that carries everything."""
    (boxes,) = (name for name, stream in fleet.topology.streams.items() if stream.owners)
    body = fleet.topology.model_dump(mode="json", by_alias=True)
    body["links"] = [
        {"from": fleet.ship, "to": fleet.port, "rate": "64 kbit/s", "streams": {"alerts": "all", boxes: "all"}}
    ]
    return Topology.model_validate(body)


async def backlog(ship: Cluster, log: TP) -> int:
    """Write batches that do not compress to a log of the ship; return its end."""
    for number in range(BATCHES):
        records = [NewRecord(secrets.token_bytes(990), timestamp_ms=1_700_000_000_000 + n) for n in range(4)]
        result = await ship.produce({log: term_batch(records, term=1, offset=4 * number, marker=0)})
        assert result[log].appended_now
    return 4 * BATCHES


@contextlib.asynccontextmanager
async def pulling(fleet: Fleet, topology: Topology) -> AsyncIterator[TcpProxy]:
    """Run the port's replicator over a link with a round trip of 300 ms and 64 kbit/s."""
    source = fleet.kafka[fleet.ship]
    async with TcpProxy(source.bootstrap, rtt=0.3, rate=LINE) as line:
        over = dataclasses.replace(source, address_overrides=line.address_overrides)
        stop = asyncio.Event()
        running = asyncio.create_task(
            Replicator(topology, fleet.port, fleet.kafka[fleet.port], lambda _: over).run(stop)
        )
        try:
            yield line
        finally:
            stop.set()
            await running


async def test_an_alert_comes_before_the_end_of_the_backlog(fleet: Fleet) -> None:
    full, lost = fleet.new_box(), fleet.new_box()
    log, alerts = TP(fleet.log(full)), TP(f"alerts.{fleet.ship}")
    topology = linked(fleet)
    async with (
        await Cluster.open(fleet.kafka[fleet.ship], client_id="test") as ship,
        await Cluster.open(fleet.kafka[fleet.port], client_id="test") as port,
        fleet.running(fleet.ship),
    ):
        await TopicMaker(fleet.kafka[fleet.ship], ship).create([log.topic])
        end = await backlog(ship, log)
        async with pulling(fleet, topology) as line:
            await until(lambda: line.down.bytes > 20_000, what="the line is full")
            with fleet.publisher(fleet.ship) as deck:
                await deck.readings(lost, range(1), **FALL)
            there = reached = 0
            while there < 2:  # the marker that opens the log, and the alert
                ends = await port.end_offsets([alerts, log])
                there, reached = (each if isinstance(each, int) else 0 for each in (ends[alerts], ends[log]))
                assert reached < end, "the backlog came first"
    (alert,) = fleet.read(fleet.port, alerts.topic)
    assert (alert.body["kind"], alert.body["equipmentReference"]) == ("OVERBOARD", lost)
