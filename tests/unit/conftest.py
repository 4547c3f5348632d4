"""Fixtures of unit tests of several folders."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder as ``tmp_path``, for sockets: their paths have some hundred characters at most."""
    with tempfile.TemporaryDirectory(prefix="s-") as folder:
        yield Path(folder)
