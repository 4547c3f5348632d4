"""Two fake brokers, and an appender."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from tests.support.kafka.fake_broker import FakeCluster, running


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    """Two fake brokers, numbers 0 and 1."""
    async with running(brokers=2) as cluster:
        yield cluster


@pytest.fixture
async def appender(cluster: Cluster) -> AsyncIterator[Appender]:
    """An appender that does not wait for company."""
    instance = Appender(cluster, linger=0.0)
    yield instance
    await instance.close()
