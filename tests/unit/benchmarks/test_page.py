"""The benchmark page is made from the figures and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.replication.page import FIGURES, PAGE, fraction, number, render

ROOT = Path(__file__).parents[3]


@pytest.fixture
def figures() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / FIGURES).read_text(encoding="utf-8"))
    return found


def test_the_page_is_what_its_figures_make(figures: dict[str, Any]) -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == render(figures), (
        "run .venv/bin/python -m benchmarks.replication.page"
    )


def test_every_part_is_on_the_page(figures: dict[str, Any]) -> None:
    page = render(figures)
    for title in ("Many small logs", "One busy topic", "Standing by", "A fresh record", "Growth"):
        assert f"\n## {title}\n" in page


def test_a_part_that_was_not_measured_is_left_out(figures: dict[str, Any]) -> None:
    del figures["latency"]
    assert "A fresh record" not in render(figures)


def test_a_missed_target_is_said_to_be_missed(figures: dict[str, Any]) -> None:
    figures["latency"] |= {"p50_ms": 999.5, "target": {"p50_ms": 20.0}}
    assert "| 1000 | ms, median | at most 20 | **missed** |" in render(figures)


def test_every_setting_of_the_peer_is_on_the_page(figures: dict[str, Any]) -> None:
    page = render(figures)
    for setting in figures["peer"]["settings"]:
        assert f"| `{setting['key']}` | `{setting['value']}` | {setting['why']} |" in page


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.83, "0.83"), (0.05, "0.05"), (3.456, "3.46"), (224.6, "225"), (9000, "9,000"), (2500.4, "2,500"), (16.0, "16")],
)
def test_numbers_are_readable(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.025, "1/40"), (0.0163, "1/61"), (0.8, "0.8"), (2.0, "2")])
def test_parts_are_fractions(value: float, text: str) -> None:
    assert fraction(value) == text
