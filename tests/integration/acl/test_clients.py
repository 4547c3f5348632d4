"""Clients end with their use, without waiting for a search of the garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import psutil
import pytest

from acl.kafka import Client
from acl.reader import Reader
from tests.integration.acl.conftest import PORT, World
from tests.support.waits import PATIENCE

pytestmark = pytest.mark.integration
USES = 20


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_clients_that_were_used_keep_no_connections(world: World, uncollected: None) -> None:
    def use() -> None:
        with Client(world.kafka(PORT)) as client:
            client.cluster_operations()
        with Reader(world.kafka(PORT), group="admin.test", timeout=PATIENCE) as reader:
            reader.visible()

    use()
    before = psutil.Process().num_fds()
    for _ in range(USES):
        use()
    assert psutil.Process().num_fds() < before + USES
