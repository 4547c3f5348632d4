"""Read the Prometheus metrics of a component whose snapshot is given, as a Prometheus server reads them."""

from __future__ import annotations

import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.waits import PATIENCE

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Metric values by name and labels."""


class Fixed:
    """A component whose snapshot is always the same."""

    def __init__(self, shown: dict[str, Any]) -> None:
        self.shown = shown

    def snapshot(self) -> dict[str, Any]:
        return self.shown


def scrape(port: int, path: str = "/metrics") -> Found:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
