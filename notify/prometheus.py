"""Exports ``NotifyService.snapshot`` as Prometheus metrics. A module of its own: few services serve metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.scrape import ADDRESS, MetricsServer, Snapshot, Watched, serve

_COUNTED: Final = (
    ("delivered", "Notifications that receivers have taken."),
    ("refused", "Notifications that receivers refused for good."),
    ("failed", "Attempts that failed and are repeated."),
)
_GAUGES: Final = (
    ("lag", "Records of alerts that the route has yet to look at."),
    ("held", "Alerts that wait for the end of quiet hours."),
    ("failing", "1 while the route cannot deliver or cannot read."),
)


class NotifyCollector(Collector):
    """Builds metrics from the service's snapshot at each scrape."""

    def __init__(self, snapshots: Callable[[], Iterable[Snapshot]]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of all routes as they are now."""
        routes = [each for snapshot in self._snapshots() for each in snapshot["routes"]]
        made: list[tuple[str, CounterMetricFamily | GaugeMetricFamily]] = [
            *((key, CounterMetricFamily(f"fairlead_notify_{key}", what, labels=["route"])) for key, what in _COUNTED),
            *((key, GaugeMetricFamily(f"fairlead_notify_{key}", what, labels=["route"])) for key, what in _GAUGES),
        ]
        for key, family in made:
            for each in routes:
                family.add_metric([each["route"]], float(each[key]))
            yield family


def start_metrics(service: Watched, port: int, address: str = ADDRESS) -> MetricsServer:
    """Serve the metrics of the routes, see ``fairlead.scrape.serve``."""
    return serve(NotifyCollector, [service], port, address)
