"""A small board with made-up content, which shows every part of the front end and lets a test drive its events."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jinja2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from board.service import templates as board_templates

BOARD: Final = Path(__file__).parents[3] / "board"
NOW: Final = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class Viewer:
    name: str
    customer: bool = False
    operates: bool = True


@dataclass(frozen=True)
class Alert:
    container: str
    place: str
    what: str
    tone: str
    since: datetime = NOW


PORTS: Final = [
    {"name": "Tokyo", "code": "JPTYO", "latitude": 35.61, "longitude": 139.79, "href": "/ports/tokyo", "tone": "good"},
    {"name": "Singapore", "code": "SGSIN", "latitude": 1.26, "longitude": 103.84, "href": "/", "tone": "warn"},
    {"name": "Sydney", "code": "AUSYD", "latitude": -33.86, "longitude": 151.2, "href": "/", "tone": "good"},
    {"name": "Honolulu", "code": "USHNL", "latitude": 21.3, "longitude": -157.87, "href": "/", "tone": "bad"},
]
SHIPS: Final = [
    {"id": 9074729, "name": "Duck Star", "latitude": 14.2, "longitude": 122.0, "course": 214, "speed": 17.4}
    | {"seen": "2026-03-01T11:58:00Z", "href": "/", "tone": "good"},
    {"id": 9395044, "name": "Big Blue", "latitude": 17.0, "longitude": -179.2, "course": 96, "speed": 14.9}
    | {"seen": "2026-03-01T09:12:00Z", "href": "/", "tone": "bad"},
    {"id": 9811000, "name": "Reefer Lady", "latitude": -33.9, "longitude": 151.25, "course": None, "speed": 0.0}
    | {"seen": "2026-03-01T11:59:00Z", "href": "/", "tone": "quiet"},
]
LINKS: Final = [
    {"from": [14.2, 122.0], "to": [1.26, 103.84], "tone": "good", "title": "duck-star to singapore: open, lag 4 s"},
    {"from": [1.26, 103.84], "to": [35.61, 139.79], "tone": "warn", "title": "singapore to tokyo: thin, 38 kB/s"},
    {"from": [17.0, -179.2], "to": [21.3, -157.87], "tone": "bad", "title": "big-blue to honolulu: cut since 09:12"},
    {"from": [35.61, 139.79], "to": [-33.86, 151.2], "tone": "good", "title": "tokyo to sydney: open, lag 1 s"},
]
FLEET_MAP: Final = {"ports": PORTS, "ships": SHIPS, "links": LINKS}
ALERTS: Final = [
    Alert("BIGU 100001 0", "Duck Star, bay 14", "Unplugged for 42 min", "bad"),
    Alert("BIGU 100017 6", "Singapore, dock 3", "Return air 3.1 °C above the set point", "bad"),
    Alert("BIGU 100023 7", "Big Blue, bay 2", "No reading for 2 h 48 min", "warn"),
    Alert("MSKU 907032 3", "Tokyo, gate 2", "Set point differs from the booking", "warn"),
    Alert("BIGU 100042 8", "Sydney, dock 1", "Defrost ends in 12 min", "quiet"),
]


def readings() -> dict[str, Any]:
    """Return a chart: three days of a reefer with an excursion, a gap, defrosts and an hour without power."""
    start, step, count = int(NOW.timestamp()) - 3 * 86400, 900, 288
    times = [start + step * each for each in range(count)]

    def supply(at: int) -> float | None:
        if 150 <= at < 178:
            return None
        warmer = 5.2 * math.exp(-((at - 92) ** 2) / 60)
        return round(-18 + 0.35 * math.sin(at / 5) + warmer, 2)

    supplies = [supply(at) for at in range(count)]
    returns = [
        None if each is None else round(each + 0.9 + 0.3 * math.sin(at / 9), 2) for at, each in enumerate(supplies)
    ]
    power = [
        None if each is None else (0.0 if 84 <= at < 96 else 4.2 + math.sin(at / 4)) for at, each in enumerate(supplies)
    ]
    humid = [None if each is None else round(84 + 3 * math.sin(at / 13), 1) for at, each in enumerate(supplies)]
    return {
        "times": times,
        "panels": [
            {
                "title": "Temperature",
                "unit": "°C",
                "series": [
                    {"label": "supply", "tone": None, "values": supplies},
                    {"label": "return", "tone": None, "values": returns},
                ],
                "band": {"low": [-19.5] * count, "high": [-16.5] * count},
            },
            {
                "title": "Power",
                "unit": "kW",
                "series": [{"label": "drawn", "tone": None, "values": power}],
                "band": None,
            },
            {
                "title": "Humidity",
                "unit": "%",
                "series": [{"label": "relative", "tone": None, "values": humid}],
                "band": None,
            },
        ],
        "spans": [
            {"from": times[86], "to": times[101], "kind": "excursion", "label": "warmer than its band for 3 h 45 min"},
            {"from": times[150], "to": times[178], "kind": "gap", "label": "no signal at sea, back-filled later"},
            {"from": times[84], "to": times[86], "kind": "unplugged", "label": "2 h at the gate"},
            {"from": times[40], "to": times[43], "kind": "defrost", "label": ""},
            {"from": times[220], "to": times[223], "kind": "defrost", "label": ""},
        ],
    }


TRACK: Final = {
    "ports": PORTS[:2],
    "ships": SHIPS[:1],
    "tracks": [
        {
            "name": "Duck Star",
            "points": [[35.61, 139.79], [33.0, 139.0], [27.5, 131.5], [21.8, 124.6], [18.4, 121.9], [14.2, 122.0]],
        }
    ],
    "events": [{"label": "Unplugged", "latitude": 30.0, "longitude": 134.8, "tone": "bad"}],
}


@dataclass
class Board:
    """The example's state. ``send`` reaches every page that listens."""

    alerts: list[Alert] = field(default_factory=lambda: list(ALERTS))
    fetched: list[str] = field(default_factory=list)  # the paths of parts that pages have fetched again
    status: int = 200  # of these parts
    silent: bool = False  # no keep-alives
    refusing: bool = False  # no new streams
    _listening: dict[asyncio.Queue[str], asyncio.AbstractEventLoop] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def listening(self) -> int:
        """How many pages listen."""
        return len(self._listening)

    def send(self, event: str, data: dict[str, Any]) -> None:
        text = f"event: {event}\ndata: {json.dumps(data)}\n\n"
        with self._lock:
            for queue, loop in self._listening.items():
                loop.call_soon_threadsafe(queue.put_nowait, text)

    async def stream(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        with self._lock:
            self._listening[queue] = asyncio.get_running_loop()
        try:
            yield ": welcome\n\n"
            while True:
                try:
                    text = await asyncio.wait_for(queue.get(), 5)
                except TimeoutError:
                    if self.silent:
                        continue
                    text = ": still here\n\n"
                yield text
        finally:
            with self._lock:
                del self._listening[queue]

    def application(self) -> Starlette:
        """Return the application: pages, parts of pages, events, static files."""
        folders = jinja2.FileSystemLoader([Path(__file__).parent / "pages", BOARD / "templates"])
        templates = board_templates().overlay(loader=folders)

        def render(request: Request, template: str, viewer: Viewer | None, **more: Any) -> Response:
            frame = {
                "viewer": viewer,
                "csrf": "token",
                "topology": "Big Blue",
                "path": request.url.path,
                "written": NOW,
                "exported": False,
            }
            text = templates.get_template(template).render({"warnings": [], **frame, **more})
            return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})

        staff = Viewer("maren")

        def fleet(request: Request) -> Response:
            doubts = ["Site honolulu has sent no status since 09:12 UTC."] if "doubts" in request.query_params else []
            return render(request, "fleet.html.j2", staff, alerts=self.alerts, content=FLEET_MAP, warnings=doubts)

        def alerts(request: Request) -> Response:
            self.fetched.append(request.url.path)
            if self.status != 200:
                return Response(status_code=self.status)
            return render(request, "alerts.html.j2", staff, alerts=self.alerts)

        def open_alerts(_: Request) -> Response:
            return HTMLResponse(f"{len(self.alerts)}")

        def port(request: Request) -> Response:
            return render(request, "port.html.j2", staff, alerts=self.alerts * 3, arrivals=SHIPS)

        def container(request: Request) -> Response:
            customer = Viewer("ducks", customer=True, operates=False)
            return render(request, "container.html.j2", customer, track=TRACK, readings=readings())

        def sign_in(request: Request) -> Response:
            return render(request, "sign-in.html.j2", None)

        async def live(request: Request) -> Response:
            if self.refusing:
                return Response(status_code=503)
            return StreamingResponse(self.stream(), media_type="text/event-stream")

        return Starlette(
            routes=[
                Route("/", fleet),
                Route("/parts/alerts", alerts),
                Route("/open-alerts", open_alerts),
                Route("/ports/tokyo", port),
                Route("/mine", container),
                Route("/sign-in", sign_in),
                Route("/live", live),
                Mount("/static", StaticFiles(directory=BOARD / "static")),
            ]
        )
