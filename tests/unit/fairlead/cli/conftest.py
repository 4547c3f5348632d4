"""How wide the terminal of commands is."""

from __future__ import annotations

import pytest

from fairlead.cli.console import console


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are printed at 80 columns. The variable COLUMNS counts only before the console is made."""
    monkeypatch.setattr(console, "width", 80)
