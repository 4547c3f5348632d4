"""Read the Prometheus metrics of a component whose snapshot is given, as a Prometheus server reads them."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from tests.support.waits import PATIENCE

Found = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""Metric values by name and labels."""


class Fixed:
    """A component whose snapshot is always the same."""

    def __init__(self, shown: dict[str, Any]) -> None:
        self.shown = shown

    def snapshot(self) -> dict[str, Any]:
        return self.shown


def registry_of(metrics: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    """Return a registry that has these metrics, as they are when it is asked."""

    class Asked(Collector):
        def collect(self) -> Iterable[Metric]:
            return metrics()

    registry = CollectorRegistry()
    registry.register(Asked())
    return registry


def page(metrics: Iterable[Metric]) -> str:
    """Return the text in which Prometheus reads these metrics."""
    return generate_latest(registry_of(lambda: metrics)).decode()


def scrape(port: int, path: str = "/metrics") -> Found:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
