"""Fixtures for replication tests: streams of the test's own on the two shared sites, and a third site."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from fairlead.kafka.endpoint import KafkaEndpoint
from fairlead.local.sites import LocalSites, SiteSpec
from tests.integration.replication.resolving import Desk
from tests.support.replication.cleaner import eager
from tests.support.replication.lab import Lab

TRIO = "trio"


@pytest.fixture(scope="module")
def trio(sites: LocalSites) -> Iterator[LocalSites]:
    """Run a further site with three brokers."""
    sites.up([SiteSpec(TRIO, brokers=3)])
    yield sites
    if not os.environ.get("FAIRLEAD_TEST_KEEP"):
        sites.down([TRIO], purge=True)


@pytest.fixture
async def lab(kafka: Callable[..., KafkaEndpoint]) -> AsyncIterator[Lab]:
    made = Lab(kafka)
    yield made
    await made.close()


@pytest.fixture
def desk(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return an operator's environment."""
    return Desk.open(lab, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def cleaners(kafka: Callable[..., KafkaEndpoint]) -> Iterator[None]:
    """Make both sites' brokers look for logs to compact several times a second."""
    with eager(kafka("alpha")), eager(kafka("beta")):
        yield
