"""A quota slows a link down, and breaks none of its connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import replication.link.source_link
import replication.replicator
from fairlead.kafka.client.connection import Connection
from fairlead.kafka.convention import term_batch
from fairlead.kafka.protocol.admin_codec import alter_quotas_request
from tests.support.replication.lab import Lab, records, states

pytestmark = [pytest.mark.long, pytest.mark.integration]

TIMEOUT = 4.0  # seconds; the broker mutes connections for longer
QUOTA = 300_000.0  # bytes per second; brokers let ten seconds of it pass before they throttle
LOGS = 10
BATCHES = 5  # of each log, so that requests follow the one after which the broker mutes the connection
RECORDS = 100  # of each batch
SIZE = 1000


@asynccontextmanager
async def quota(lab: Lab, site: str, key: str) -> AsyncIterator[None]:
    """Limit the replicator's user at a site."""

    async def alter(value: float | None) -> None:
        cluster = await lab.cluster(site)
        connection = await cluster.pool.any("control")
        assert await connection.call(alter_quotas_request({"admin": {key: value}})) == {"admin": 0}

    await alter(QUOTA)
    try:
        yield
    finally:
        await alter(None)


@pytest.mark.parametrize(("site", "key"), [("beta", "producer_byte_rate"), ("alpha", "consumer_byte_rate")])
async def test_a_throttled_link_keeps_its_connections(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, site: str, key: str
) -> None:
    monkeypatch.setattr(replication.link.source_link, "REQUEST_TIMEOUT", TIMEOUT)
    monkeypatch.setattr(replication.replicator, "REQUEST_TIMEOUT", TIMEOUT)
    longest: dict[Connection, int] = {}  # throttle_time_ms
    throttle = Connection.throttle

    def noted(connection: Connection, milliseconds: int) -> None:
        longest[connection] = max(milliseconds, longest.get(connection, 0))
        throttle(connection, milliseconds)

    topics = [lab.log(f"alpha.{number}") for number in range(LOGS)]
    await lab.make("alpha", *topics)
    for topic in topics:
        await lab.open_term("alpha", topic, term=1, at=0)
        for at in range(1, 1 + BATCHES * RECORDS, RECORDS):
            batch = term_batch(records(at, RECORDS, size=SIZE), term=1, offset=at, marker=0)
            await lab.append("alpha", {topic: batch})
    monkeypatch.setattr(Connection, "throttle", noted)
    beta = lab.replicator(lab.one_way(), "beta")
    async with quota(lab, site, key), lab.running(beta):
        for topic in topics:
            await lab.reaches("beta", topic, 1 + BATCHES * RECORDS)
        assert states(beta.snapshot()) == {}
        assert not any(connection.closed for connection in longest)
    assert max(longest.values()) > TIMEOUT * 1000
    assert all([await lab.same(topic) for topic in topics])
