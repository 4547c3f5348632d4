"""The page of shore's figures has what the figures have, and says what was not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.shore.page import FIGURES, PAGE, plain, render

ROOT = Path(__file__).parents[3]
_WHEN = {
    "at": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu_count": 2, "platform": "Linux", "python": "3.11.7", "load_average": 0.25},
}


def ran(rows_per_second: int) -> dict[str, Any]:
    kinds = {"jvm": 5.5, "workers": 4.25, "brokers": 1.0}
    return {
        "rows_per_second": rows_per_second,
        "triggers": 7,
        "cpu_us_per_row": kinds,
        "peak_rss_mb": {"jvm": 900, "workers": 400},
        "small_logs_done_after_triggers": 1,
    }


INGEST = {
    **_WHEN,
    "logs": 10_000,
    "readings": 1_000_000,
    "batches": 500_000,
    "max_records": 500_000,
    "rounds": [ran(31_234), ran(123_456)],
    "rows_per_second": 123_456,
    "idle_trigger_seconds": 0.75,
    "target": {"rows_per_second": 100_000, "idle_trigger_seconds": 1.0},
    "memory": [{"max_records": 100_000, "peak_rss_mb": {"jvm": 700, "workers": 321}}],
}


def test_ingest_has_its_rounds_its_targets_and_what_was_not_run() -> None:
    text = render({"ingest": INGEST})
    assert "| cold | 31,234 | 5.5 | 4.25 | 1 | 900 | 400 |" in text
    assert "| at least 100,000 rows a second, warm | 123,456 |" in text
    assert "| 100,000 | 700 | 321 |" in text
    assert "Not run here" in text and "--with-kafka-connector" in text
    assert "## One log" not in text
    assert "Not run here" not in render({"ingest": INGEST | {"kafka_connector": [ran(1_000)]}})


def test_the_other_parts_are_shown_as_far_as_they_were_measured() -> None:
    skew = {
        **_WHEN,
        "small_logs": 9_999,
        "readings_of_a_small_log": 10,
        "readings_of_the_large_log": 1_000_000,
        "max_records": 200_000,
        "cold": ran(20_000),
        "warm": ran(90_000),
    }
    alerts = {**_WHEN, "restore_seconds": 1.5, "state": {"rows": 20_000}, "target": {"restore_seconds": 30}}
    text = render({"skew": skew, "alerts": alerts, "point_query": {**_WHEN, "error": "no room"}})
    assert "after 1 of 7 triggers" in text
    assert "| restore seconds | 1.5 |" in text and "| state: rows | 20,000 |" in text
    assert "no room" not in text
    assert plain({"a_b": True, "c": [1], "machine": {}}) == [("a b", True)]


def test_the_page_is_that_of_the_figures() -> None:
    if (ROOT / FIGURES).exists():
        figures = json.loads((ROOT / FIGURES).read_text(encoding="utf-8"))
        assert (ROOT / PAGE).read_text(encoding="utf-8") == render(figures)
