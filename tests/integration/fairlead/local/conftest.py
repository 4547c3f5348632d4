"""One running site for tests that read from it or restore it afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlead.local.sites import LocalSites, SiteSpec


@pytest.fixture(scope="package")
def gamma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSites]:
    """Provide a state folder with the site ``gamma``, which runs when a test begins and when it ends."""
    local = LocalSites(tmp_path_factory.mktemp("gamma"))
    local.up([SiteSpec("gamma", ("bridge",))])
    yield local
    local.down(purge=True)


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSites]:
    """Provide an empty state folder; stop the sites that the test starts in it."""
    local = LocalSites(tmp_path_factory.mktemp("fresh"))
    yield local
    local.down(purge=True)
