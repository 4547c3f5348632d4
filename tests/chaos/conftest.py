"""Fixtures of long random runs: the sites, the duration, and the seed."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.local.sites import LocalSites, SiteSpec
from tests.chaos import worker

SPECS = (SiteSpec("alpha"), SiteSpec("beta"), SiteSpec("trio", brokers=3))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSites]:
    """Run sites ``alpha`` and ``beta`` with one broker each, and ``trio`` with three."""
    local = LocalSites(tmp_path_factory.mktemp("chaos"))
    local.up(SPECS)
    yield local
    local.down(purge=True)


@pytest.fixture
def seed(capsys: pytest.CaptureFixture[str]) -> int:
    """Return ``FAIRLEAD_CHAOS_SEED``, or a new seed; it is printed, so that a run can be repeated."""
    chosen = int(os.environ.get("FAIRLEAD_CHAOS_SEED") or random.SystemRandom().randrange(10**9))
    with capsys.disabled():
        print(f"\nFAIRLEAD_CHAOS_SEED={chosen}")  # noqa: T201 - what a test prints
    return chosen


@pytest.fixture
def seconds() -> float:
    """Return the duration: ``FAIRLEAD_CHAOS_SECONDS``, ten minutes by default."""
    return float(os.environ.get("FAIRLEAD_CHAOS_SECONDS") or 600)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Path:
    """Provide a folder for topologies, and an environment in which processes find this project's tests
    (``tests.chaos.worker``).
    """
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv(worker.WAYS, str(tmp_path / "ways.json"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    caplog.set_level(logging.INFO)
    caplog.handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    return tmp_path
