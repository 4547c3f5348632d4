"""The fixtures of the board's tests."""

from __future__ import annotations

from tests.integration.board.world import started, world

__all__ = ["started", "world"]
