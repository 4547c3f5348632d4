"""The benchmark of custody runs, and its own check of the logs holds, with very few boxes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import _results
from benchmarks.custody.__main__ import main
from benchmarks.custody.call import MOMENTS

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("sizes", [[5], pytest.param([5, 15], marks=pytest.mark.chaos)])  # a fleet is started for each
def test_both_parts_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> None:
    monkeypatch.setattr(_results, "FOLDER", tmp_path)
    main(["--sizes", ",".join(map(str, sizes)), "--logs", "200"])
    found = json.loads((tmp_path / "custody.json").read_text(encoding="utf-8"))
    rows = found["calls"]["rows"]
    assert [row["containers"] for row in rows] == sizes
    for row in rows:
        assert set(row["seconds_until"]) == set(MOMENTS)
        assert len(row["cpu_seconds"]) == len(row["peak_rss_mb"]) == 8  # bridge, replicator, Kafka, MQTT at each site
        assert row["seconds"] > 0
    for reader in ("bridge", "replicator"):
        assert found["ledger"][reader]["logs"] == 200
