"""A scripted cluster and clients of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from tests.support.kafka.fake_broker import FakeCluster, running


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    """One fake broker, number 0."""
    async with running() as cluster:
        yield cluster


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    """Two fake brokers, numbers 0 and 1."""
    async with running(brokers=2) as cluster:
        yield cluster


@pytest.fixture
async def cluster(fake: FakeCluster) -> AsyncIterator[Cluster]:
    """A client of ``fake`` with short timeouts."""
    async with await Cluster.open(fake.endpoint(), client_id="test", request_timeout=2.0) as client:
        yield client


@pytest.fixture
async def appender(cluster: Cluster) -> AsyncIterator[Appender]:
    """An appender that does not wait for company."""
    instance = Appender(cluster, linger=0.0)
    yield instance
    await instance.close()
