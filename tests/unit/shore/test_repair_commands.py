"""``fairlead shore verify``, ``backfill`` and ``rebuild`` as a person calls them, without a site."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.cli import run
from shore.places import Places
from shore.tables import TABLES


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOPOLOGY", "minimal")
    found = tmp_path / "minimal"
    for table in TABLES.values():
        table.create(Places.of(found).table(table.name))
    return found


@pytest.mark.usefixtures("filled")
def test_proof_and_repair_before_the_site_was_started(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["verify"], ["backfill", "--yes"], ["rebuild", "readings", "--yes"]):
        assert run(["shore", *command]) in (3, 4)
        assert "fairlead up" in capsys.readouterr().err
    assert run(["shore", "rebuild", "reading", "--yes"]) == 3
    assert "did you mean 'readings'" in capsys.readouterr().err
    assert run(["shore", "rebuild", "readings"]) == 0  # nobody at a terminal, and no --yes
    assert "with --yes" in capsys.readouterr().out
    assert run(["shore", "backfill", "--from", "yesterday"]) == 3
    assert "a day like 2026-03-01" in " ".join(capsys.readouterr().err.split())
