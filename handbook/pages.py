"""All generated pages by their place under ``docs/``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from handbook import commands, runbook, topology

DOCS: Final = Path(__file__).parents[1] / "docs"


def pages() -> dict[str, str]:
    """Each page's text by its file name."""
    return {commands.PAGE: commands.page(), topology.PAGE: topology.page(), runbook.PAGE: runbook.page()}
