"""Count what the board answers, and how soon."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUCKETS: Final = (0.05, 0.2, 1.0, 5.0, 20.0)
"""Upper bounds of the seconds until an answer begins."""
NOWHERE: Final = "(no such page)"


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
