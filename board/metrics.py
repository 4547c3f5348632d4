"""Count what the board answers, and export it with its sessions, streams and audited events as Prometheus metrics."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlead.scrape import ADDRESS, MetricsServer, Snapshot, Watched, serve

BUCKETS: Final = (0.05, 0.2, 1.0, 5.0, 20.0)
"""Upper bounds of the seconds until an answer begins."""
NOWHERE: Final = "(no such page)"

_GAUGES: Final = (
    ("sessions", "Sessions that are open."),
    ("streams", "Event streams that are open: one for each page that somebody looks at."),
    ("reads_logs", "1 while the site's Kafka answers, and all alerts and positions have been read."),
)


@dataclass(slots=True)
class RequestCounts:
    """Answers by page and status, and the seconds until they began by page; the last of the numbers is the sum."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def count(self, page: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self.answers[page, status] += 1
        found = self.seconds.setdefault(page, [0.0] * (len(BUCKETS) + 2))
        found[bisect.bisect_left(BUCKETS, seconds)] += 1
        found[-1] += seconds


class CountedRequests:
    """ASGI middleware: count every answer when it begins. An event stream begins at once and ends hours later.

    Args:
        routes: The application's routes; a page is counted under the path that its route has.
    """

    def __init__(self, app: ASGIApp, *, counts: RequestCounts, routes: Sequence[BaseRoute]) -> None:
        self._app, self._counts = app, counts
        self._pages: dict[object, str] = {
            (each.endpoint if isinstance(each, Route) else each.app): each.path
            for each in routes
            if isinstance(each, Route | Mount)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, answered = time.perf_counter(), False

        def count(status: int) -> None:
            page = self._pages.get(scope.get("endpoint"), NOWHERE)
            self._counts.count(page, status, time.perf_counter() - began)

        async def counted(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                count(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:
            if not answered:
                count(500)
            raise


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

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering the collector takes no snapshot."""
        return ()


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
