"""The board of a site without brokers or tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from board.service import BoardService
from topologies.context import open_topology


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoardService:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return BoardService(open_topology("minimal"), "tokyo")
