"""The board of a site without brokers or tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from board.service import Board
from topologies.context import open_topology


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    return Board(open_topology("minimal"), "tokyo")
