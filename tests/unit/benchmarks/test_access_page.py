"""The page of access's figures, and that its table says what it is about."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.access import growth, plan
from benchmarks.access.page import FIGURES, PAGE, render

ROOT = Path(__file__).parents[3]
_WHEN: dict[str, Any] = {
    "at": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu_count": 2, "platform": "Linux", "python": "3.11.7", "load_average": 0.25},
}


def small(monkeypatch: Any) -> dict[str, Any]:
    """Both parts that need no broker, on a small world."""
    monkeypatch.setattr(growth, "_WORLDS", ((3, 1, 100), (3, 1, 1_000), (5, 1, 100), (3, 2, 100)))
    parser = argparse.ArgumentParser()
    for part in (plan, growth):
        part.options(parser)
    options = parser.parse_args(["--customers", "5", "--owners", "2", "--containers", "100", "--rounds", "1"])
    told: list[str] = []
    return {
        "plan": {**plan.measure(options, told.append), **_WHEN},
        "growth": {**growth.measure(options, told.append), **_WHEN},
    }


def test_rules_grow_with_customers_and_streams_and_not_with_containers(monkeypatch: Any) -> None:
    figures = small(monkeypatch)
    base, more_containers, more_customers, more_streams = figures["growth"]["rows"]
    assert more_containers["rules"] == base["rules"] and more_containers["if_by_container"] > base["if_by_container"]
    assert more_customers["rules"] == base["rules"] + 2 * 2, "a feed and a consumer group each"
    assert more_streams["rules"] > base["rules"] and more_streams["streams"] == base["streams"] + 1
    assert figures["plan"]["to_add"] > 0 and figures["plan"]["to_remove"] == 20 * 6
    text = render(figures)
    assert f"| 3 | {base['streams']} | 1,000 | {base['rules']:,} |" in text
    assert "## Applying" not in text


def test_what_missed_its_target_is_said_and_what_failed_is_left_out() -> None:
    applied = {
        **_WHEN,
        "changes": 2_000,
        "rules": 1_500,
        "rounds": [{}],
        "apply_seconds": 11.5,
        "first_apply_seconds": 3.0,
        "plan_seconds_of_the_site": 0.5,
        "nothing_to_do_seconds": 0.25,
        "target": {"apply_seconds": 10.0},
    }
    text = render({"apply": applied, "plan": {"error": "no room", **_WHEN}})
    assert "| to apply | 11.5 | at most 10 | **missed** |" in text
    assert "## Planning" not in text


def test_the_page_is_that_of_the_figures_beside_it() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == render(json.loads((ROOT / FIGURES).read_text(encoding="utf-8")))
