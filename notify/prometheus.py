"""Exports ``NotifyService.snapshot`` as Prometheus metrics. A module of its own: few services serve metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fairlead.scrape import Snapshot, families

_COUNTED: Final = (
    ("delivered", "delivered", "Notifications that receivers have taken."),
    ("refused", "refused", "Notifications that receivers refused for good."),
    ("failed", "failed", "Attempts that failed and are repeated."),
)
_GAUGES: Final = (
    ("lag", "lag", "Records of alerts that the route has yet to look at."),
    ("held", "held", "Alerts that wait for the end of quiet hours."),
    ("failing", "failing", "1 while the route cannot deliver or cannot read."),
)


def notify_metrics(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    """Yield all metrics of all routes of the services with these snapshots."""
    routes = [each for snapshot in taken for each in snapshot["routes"]]
    yield from families(CounterMetricFamily, "fairlead_notify", _COUNTED, "route", routes)
    yield from families(GaugeMetricFamily, "fairlead_notify", _GAUGES, "route", routes)
