"""The benchmark of the way in runs, and its own count of what is stored holds, with very few boxes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import _results
from benchmarks.edge import __main__ as edge
from benchmarks.edge import chain

pytestmark = pytest.mark.integration


def test_every_part_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_results, "FOLDER", tmp_path)
    small = "--logs 20 --readings 100 --plain-readings 20 --queued 60 --detection-boxes 5 --containers 20 --hours 0.2"
    edge.main(small.split())
    found = json.loads((tmp_path / "edge.json").read_text(encoding="utf-8"))
    assert found["bridge"]["fairlead"]["readings"] <= 100
    assert found["bridge"]["plain"]["readings"] <= 20
    for name in ("readings_per_second_per_core", "speed_ratio", "cpu_ratio"):
        assert found["bridge"][name] > 0
    assert found["catch_up"]["queued"] == 60
    assert found["catch_up"]["ratio_to_steady"] > 0
    assert found["detection_us"] == pytest.approx(found["detection"]["detection_us"], abs=0.01)
    assert found["simulator"]["readings"] > 0


def test_a_part_that_fails_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_results, "FOLDER", tmp_path)

    def stuck(*_: object) -> None:
        raise SystemExit("waited for 20 logs to be opened, got 3")

    monkeypatch.setattr(chain, "measure", stuck)
    with pytest.raises(SystemExit, match="failed: bridge, catch_up"):
        edge.main(["--only", "bridge,catch_up"])
    found = json.loads((tmp_path / "edge.json").read_text(encoding="utf-8"))
    assert (
        found["bridge"]["error"] == found["catch_up"]["error"] == "SystemExit: waited for 20 logs to be opened, got 3"
    )
