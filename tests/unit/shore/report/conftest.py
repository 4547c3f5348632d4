"""The tables of ``tests.support.port_story``, written once for all tests of reports, which only read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shore.paths import TablePaths
from tests.support import port_story


@pytest.fixture(scope="package")
def story(tmp_path_factory: pytest.TempPathFactory) -> TablePaths:
    folder = tmp_path_factory.mktemp("story")
    port_story.write(folder)
    return TablePaths.of(Path(folder))


@pytest.fixture
def folder(story: TablePaths, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the state folder of topology ``minimal``, with the story's tables."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("FAIRLEAD_HOME", str(home))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal")
    (home / "minimal").mkdir()
    (home / "minimal" / "delta").symlink_to(f"{story.base}/delta")
    return home / "minimal"
