"""Exports ``Board.snapshot`` as Prometheus metrics. A module of its own: few boards serve metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from board.metrics import BUCKETS
from fairlead.scrape import ADDRESS, MetricsServer, Snapshot, Watched, serve

_GAUGES: Final = (
    ("sessions", "Sessions that are open."),
    ("streams", "Event streams that are open: one for each page that somebody looks at."),
    ("reads_logs", "1 while the site's Kafka answers, and all alerts and positions have been read."),
)


class BoardCollector(Collector):
    """Builds metrics from the boards' snapshots at each scrape."""

    def __init__(self, snapshots: Callable[[], Iterable[Snapshot]]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as they are now."""
        taken = list(self._snapshots())
        for key, what in _GAUGES:
            gauge = GaugeMetricFamily(f"fairlead_board_{key}", what, labels=["site"])
            for each in taken:
                gauge.add_metric([each["site"]], float(each[key]))
            yield gauge
        requests = CounterMetricFamily("fairlead_board_requests", "Answers.", labels=["site", "page", "status"])
        seconds = HistogramMetricFamily(
            "fairlead_board_request_seconds", "Seconds until an answer begins.", labels=["site", "page"]
        )
        audited = CounterMetricFamily(
            "fairlead_board_audited",
            "Lines of the audit log.",
            labels=["site", "event"],
        )
        for each in taken:
            site, counts = each["site"], each["requests"]
            for (page, status), number in counts.answers.items():
                requests.add_metric([site, page, str(status)], number)
            for page, (*numbers, total) in counts.seconds.items():
                seconds.add_metric([site, page], _buckets(numbers), total)
            for event, number in each["audited"].items():
                audited.add_metric([site, event], number)
        yield from (requests, seconds, audited)


def start_metrics(board: Watched, port: int, address: str = ADDRESS) -> MetricsServer:
    """Serve the metrics of a board, see ``fairlead.scrape.serve``."""
    return serve(BoardCollector, [board], port, address)


def _buckets(numbers: Sequence[float]) -> list[tuple[str, float]]:
    """Return the numbers as Prometheus has them: each bucket with all that are below it."""
    so_far, found = 0.0, []
    for bound, number in zip((*map(str, BUCKETS), "+Inf"), numbers, strict=True):
        so_far += number
        found.append((bound, so_far))
    return found
