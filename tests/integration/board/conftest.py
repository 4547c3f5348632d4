"""The fixtures of the board's tests."""

from __future__ import annotations

from tests.integration.board.world import started, world
from tests.support.browser import browser, pages

__all__ = ["browser", "pages", "started", "world"]
