"""Fairlead's Kafka clients at site ``alpha``."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable

import pytest

from fairlead.kafka.admin import create_logs
from fairlead.kafka.client.appender import Appender
from fairlead.kafka.client.cluster import Cluster
from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.kafka.protocol.types import TP

MANY = 500


@pytest.fixture
async def cluster(kafka: Callable[..., KafkaEndpoint]) -> AsyncIterator[Cluster]:
    """Connect to site ``alpha`` as its administrator."""
    async with await Cluster.open(kafka("alpha"), client_id="test") as client:
        yield client


@pytest.fixture
async def appender(cluster: Cluster) -> AsyncIterator[Appender]:
    """Run an appender at ``alpha``."""
    instance = Appender(cluster)
    yield instance
    await instance.close()


@pytest.fixture(scope="module")
def many_logs(kafka: Callable[..., KafkaEndpoint]) -> list[TP]:
    """Create 500 empty logs at ``alpha``; they are deleted with the site."""
    run = secrets.token_hex(3)
    logs = [TP(f"many.{run}-{index:03d}") for index in range(MANY)]
    create_logs(kafka("alpha"), {log.topic: {} for log in logs})
    return logs
