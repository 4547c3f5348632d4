"""librdkafka clients are closed after use, without waiting for garbage collection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator

import psutil
import pytest

from acl.kafka import Client, UserConsumer
from fairlead.kafka.endpoint import KafkaEndpoint
from replication.groups.client import GroupClient
from tests.support.waits import PATIENCE, until

pytestmark = pytest.mark.integration
USES = 20


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def administers(endpoint: KafkaEndpoint) -> None:
    with Client(endpoint) as client:
        client.cluster_operations()


def reads(endpoint: KafkaEndpoint) -> None:
    with UserConsumer(endpoint, group="admin.test", timeout=PATIENCE) as reader:
        reader.visible()


def looks_at_groups(endpoint: KafkaEndpoint) -> None:
    asyncio.run(GroupClient(endpoint, on_bytes=lambda _: None).groups())


@pytest.mark.parametrize("use", [administers, reads, looks_at_groups])
def test_clients_that_were_used_keep_no_connections(
    kafka: Callable[..., KafkaEndpoint], use: Callable[[KafkaEndpoint], None], uncollected: None
) -> None:
    use(kafka("alpha"))
    before = psutil.Process().num_fds()
    for _ in range(USES):
        use(kafka("alpha"))
    # The last ones may still be closing; one that is kept is never closed, because nothing is collected.
    until(lambda: psutil.Process().num_fds() < before + USES, "connections that are closed")
