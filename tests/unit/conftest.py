"""Fixtures of unit tests of several folders."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fairlead.kafka.client.cluster import Cluster
from tests.support.kafka.fake_broker import FakeCluster, running


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder as ``tmp_path``, for sockets: their paths have some hundred characters at most."""
    with tempfile.TemporaryDirectory(prefix="s-") as folder:
        yield Path(folder)


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    """One fake broker, number 0."""
    async with running() as cluster:
        yield cluster


@pytest.fixture
async def cluster(fake: FakeCluster) -> AsyncIterator[Cluster]:
    """A client of ``fake`` with short timeouts."""
    async with await Cluster.open(fake.endpoint(), client_id="test", request_timeout=2.0) as client:
        yield client
