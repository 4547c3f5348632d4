"""docs/port-operator.ipynb runs from its first cell to its last."""

from __future__ import annotations

from pathlib import Path

import pytest

from shore.paths import TablePaths
from tests.support.notebook import run
from tests.support.port_story import WARM, WRONG

NOTEBOOK = Path(__file__).parents[4] / "docs" / "port-operator.ipynb"


def test_the_notebook_tells_the_story(story: TablePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.delenv("FAIRLEAD_TOPOLOGY", raising=False)
    monkeypatch.delenv("PORT", raising=False)
    (tmp_path / "big-blue").mkdir()
    (tmp_path / "big-blue" / "delta").symlink_to(f"{story.base}/delta")
    found = run(NOTEBOOK)
    assert list(found["ships"]["ship"]) == ["MV Duck Star"]
    assert list(found["ships"]["for here"]) == [2]
    assert found["box"] == WARM
    assert found["warm"].minutes_out[0] == 225
    assert list(found["wrong"].equipment_reference) == [WRONG]
    assert len(found["readings"]) == 210
    assert list(found["chain"].holder) == ["singapore", "duck-star"]
    assert (tmp_path / "big-blue" / "reports" / WARM / "manifest.json").exists()
