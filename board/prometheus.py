"""Exports ``BoardService.snapshot`` as Prometheus metrics. A module of its own: few boards serve metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from board.metrics import BUCKETS
from fairlead.scrape import Snapshot, families

_GAUGES: Final = (
    ("sessions", "sessions", "Sessions that are open."),
    ("streams", "streams", "Event streams that are open: one for each page that somebody looks at."),
    ("reads_logs", "reads_logs", "1 while the site's Kafka answers, and all alerts and positions have been read."),
)


def board_metrics(taken: Sequence[Snapshot]) -> Iterator[Metric]:
    """Yield all metrics of the boards with these snapshots."""
    yield from families(GaugeMetricFamily, "fairlead_board", _GAUGES, "site", taken)
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


def _buckets(numbers: Sequence[float]) -> list[tuple[str, float]]:
    """Return the numbers as Prometheus has them: each bucket with all that are below it."""
    so_far, found = 0.0, []
    for bound, number in zip((*map(str, BUCKETS), "+Inf"), numbers, strict=True):
        so_far += number
        found.append((bound, so_far))
    return found
