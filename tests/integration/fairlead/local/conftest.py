"""One running site for the tests that only look at it or do it no lasting harm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlead.local.sites import LocalSites, SiteSpec


@pytest.fixture(scope="package")
def gamma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSites]:
    """A state folder with the site ``gamma``, running when a test begins and ends."""
    local = LocalSites(tmp_path_factory.mktemp("gamma"))
    local.up([SiteSpec("gamma", ("bridge",))])
    yield local
    local.down(purge=True)


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSites]:
    """An empty state folder of its own; what is started there is stopped."""
    local = LocalSites(tmp_path_factory.mktemp("fresh"))
    yield local
    local.down(purge=True)
