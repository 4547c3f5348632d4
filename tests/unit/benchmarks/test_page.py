"""The benchmark page is made from the figures and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks._page import number
from benchmarks.replication.mirrormaker_side import described
from benchmarks.replication.page import FIGURES, PAGE, fraction, render
from benchmarks.replication.ratios import compare, growth, growth_targets, secure

ROOT = Path(__file__).parents[3]


_SIDE = {
    "records": 2000,
    "seconds_from_start": 2.0,
    "seconds_from_first_record": 1.0,
    "cpu_seconds": 1.0,
    "rss_mb": 70.0,
    "source_broker_cpu_seconds": 0.5,
    "target_broker_cpu_seconds": 0.5,
}
_MACHINE = {"cpu_count": 2, "platform": "Linux", "python": "3.11.7", "load_average": 0.25}
_WHEN = {"at": "2026-01-02T03:04:05+00:00", "machine": _MACHINE}


@pytest.fixture
def figures() -> dict[str, Any]:
    """Every part, with invented figures."""
    sides = {**compare(_SIDE, _SIDE), "fairlead": _SIDE, "mirrormaker": _SIDE, **_WHEN}
    rows = [{"logs": logs, **_SIDE} for logs in (1000, 4000, 16000)]
    brokers = {f"{broker}_broker_core_percent{kind}": 7.0 for broker in ("source", "target") for kind in ("", "_alone")}
    wire = {f"wire{way}_kb_per_second": 4.0 for way in ("", "_to_source", "_to_target")}
    secured = {**secure(_SIDE, _SIDE), "plaintext": _SIDE, "tls": _SIDE, "target": {"throughput_ratio": 0.4}}
    return {
        "peer": described(),
        "many_topics": {"topics": 100, "records_per_topic": 20, "record_bytes": 190, "records_per_batch": 5, **sides},
        "bulk": {"partitions": 8, "records": 2000, "record_bytes": 500, "records_per_batch": 30.5, **sides},
        "idle": {"logs": 100, "seconds": 30.0, "core_percent": 0.2, "rss_mb": 70.0, **brokers, **wire, **_WHEN},
        "latency": {
            "logs": 100,
            "records": 400,
            "p50_ms": 7.0,
            "p90_ms": 9.0,
            "p99_ms": 30.0,
            "max_ms": 40.0,
            "source_append_p50_ms": 2.0,
            **_WHEN,
        },
        "tls": {"partitions": 8, "records": 2000, "record_bytes": 500, "rounds": 3, **secured, **_WHEN},
        "growth": {"rows": rows, **growth(rows), "target": growth_targets(rows), **_WHEN},
    }


def test_the_page_is_what_its_figures_make() -> None:
    kept = json.loads((ROOT / FIGURES).read_text(encoding="utf-8"))
    assert (ROOT / PAGE).read_text(encoding="utf-8") == render(kept), (
        "run .venv/bin/python -m benchmarks.replication.page"
    )


def test_every_part_is_on_the_page(figures: dict[str, Any]) -> None:
    page = render(figures)
    for title in ("Many small logs", "One busy topic", "Standing by", "A fresh record", "Through TLS", "Growth"):
        assert f"\n## {title}\n" in page


def test_a_part_that_was_not_measured_is_left_out(figures: dict[str, Any]) -> None:
    del figures["latency"]
    assert "A fresh record" not in render(figures)


def test_a_missed_target_is_said_to_be_missed(figures: dict[str, Any]) -> None:
    figures["latency"] |= {"p50_ms": 999.5, "target": {"p50_ms": 20.0}}
    assert "| 1000 | ms, median | at most 20 | **missed** |" in render(figures)


def test_every_setting_of_the_peer_is_on_the_page(figures: dict[str, Any]) -> None:
    page = render(figures)
    for setting in [each for kind in ("settings", "lean", "tuning") for each in figures["peer"][kind]]:
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
