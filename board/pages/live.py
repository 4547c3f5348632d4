"""Server-sent events: ``/live`` for open pages of staff, as fragments of those pages; ``/mine/live`` for portals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from board.drawing import place_in_record, ship_at
from board.live import Changed, News, Subscription
from board.openapi import Field
from board.own_feed import version_of_own_feed
from board.pages.alerts import Wanted, alert_panel, row_of
from board.pages.port import concerning_port, port_view
from board.pages.voyage import of_ship
from board.security import COOKIE
from board.service import BoardService, Page
from board.viewer import Access
from fairlead.errors import FairleadError, UnavailableError
from fairlead.records.alert import Alert
from fairlead.records.ship import Position
from shore.delta.table_errors import open_table

Subscribed = contextlib.AbstractContextManager[Subscription]

_KEEP_ALIVE: Final = 5.0
"""Seconds between two signs of life. ``board.js`` says that the connection is lost after three of them."""
_LOOK: Final = 5.0  # seconds between two looks at tables and status files, while any page is open
_AGAIN: Final = 60.0  # seconds after which a portal is read again without news: it says how long ago a box was heard
_ALL: Final = "all"  # voyages
_WATCHED: Final = (
    "containers_now",
    "alerts_now",
    "ships_now",
    "dock_movements",
    "port_calls",
    "voyages",
    "excursions",
    "outlook",
    "custody",
    "milestones",
)


async def live(board: BoardService, request: Request) -> Response:
    """The events: alerts of the page's port, container or ship (``?port=``, ``?container=``, ``?voyage=``), or all;
    positions; what to read again. The stream ends with the session."""
    return _stream(board, request, board.live.subscribe(), _wanted(board, request))


async def mine(board: BoardService, request: Request) -> Response:
    """The events of a customer's portal: its own table has changed since ``?version=``. The stream ends with the
    session."""
    shown = request.query_params.get("version", "")
    version = int(shown) if shown.isascii() and shown.isdecimal() else None
    return _stream(board, request, board.live.subscribe(board.signed_in(request).name, version))


def _stream(
    board: BoardService, request: Request, subscribed: Subscribed, wanted: Wanted = lambda _alert: True
) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    events = _events(board, request, subscribed, wanted)
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


async def alerts(board: BoardService, request: Request) -> Response:
    """The rows of a page's open alerts, for a page that may have missed some of the events, or whose tables have
    changed: which alerts concern a port follows from them."""
    port = request.query_params.get("port")
    if port:
        with contextlib.suppress(FairleadError):  # the page itself says what is wrong with its tables
            await port_view(board, port)
    panel = alert_panel(board, board.signed_in(request), _wanted(board, request), _page_of(request))
    return board.page(request, "alert_rows.html.j2", **panel)


async def _events(board: BoardService, request: Request, subscribed: Subscribed, wanted: Wanted) -> AsyncIterator[str]:
    token = request.cookies[COOKIE]
    with subscribed as subscription:
        yield ": welcome\n\n"
        async for news in _until_end(subscription):
            if not board.sessions.is_open(token):
                return
            if news is None:
                yield ": still here\n\n"
            elif not isinstance(news, Alert) or news.state == "CLEARED" or wanted(news):  # its row may be there still
                yield _event(board, request, news)


async def _until_end(subscription: Subscription) -> AsyncIterator[News | None]:
    with contextlib.suppress(StopAsyncIteration):
        while True:
            yield await subscription.next(_KEEP_ALIVE)


def _event(board: BoardService, request: Request, news: News) -> str:
    match news:
        case Changed(what):
            return _written("changed", {"what": what})
        case Position():
            here = place_in_record(news)
            return _written("position", ship_at(news.vessel_imo_number, here)) if here is not None else ""
        case Alert():
            element = f"alert-{news.raised_at}-{news.alert_id}"
            html = None if news.state == "CLEARED" else _row(board, request, news)
            return _written("fragment", {"target": "alerts", "id": element, "html": html})


def _row(board: BoardService, request: Request, alert: Alert) -> str | None:
    viewer = board.viewer(request)
    if viewer is None:
        return None
    return board.fragment(request, "alert_row.html.j2", row=row_of(board, viewer, alert), next=_page_of(request))


def _page_of(request: Request) -> str:
    port, container = request.query_params.get("port"), request.query_params.get("container")
    voyage = request.query_params.get("voyage")
    if voyage:
        return "/voyages" if voyage == _ALL else f"/voyages/{voyage}"
    return f"/ports/{port}" if port else f"/containers/{container}" if container else "/"


def _written(event: str, data: dict[str, Any]) -> str:
    return f"event: {event}\ndata: {json.dumps(data)}\n\n"


def _wanted(board: BoardService, request: Request) -> Wanted:
    """Return whether an alert belongs on the page that asks."""
    port, container = request.query_params.get("port"), request.query_params.get("container")
    if container:
        return lambda alert: alert.equipment_reference == container
    voyage = request.query_params.get("voyage")
    if voyage and voyage != _ALL:
        return lambda alert: of_ship(board.topology, voyage, alert)
    if port:
        return concerning_port(board, port)
    return lambda _: True


async def watch(board: BoardService) -> None:
    """Tell open pages when tables have changed, and every few seconds that sites may have a new state, until
    cancelled.

    Tables that changed while no page was open count as changed at the first look after one is.
    """
    known: dict[str, int] = {}
    again = time.monotonic() + _AGAIN
    while True:
        await asyncio.sleep(_LOOK)
        if customers := board.live.customers:
            due = time.monotonic() >= again
            board.live.tell_customers(await board.read(_versions_of_feeds, board, customers), all_of_them=due)
            if due:
                again = time.monotonic() + _AGAIN
        if not board.live.has_staff:
            continue
        versions = await board.read(_versions, board)
        if versions != known:
            board.tables_changed()
            board.live.tell(Changed("tables"))
        known = versions
        board.live.tell(Changed("status"))


def _versions(board: BoardService) -> dict[str, int]:
    """Return the versions of the tables that pages show; tables that cannot be opened are left out."""
    found = {}
    for name in _WATCHED:
        with contextlib.suppress(Exception):  # the pages themselves say what is wrong with a table
            delta = open_table(board.paths, name)
            if delta is not None:
                found[name] = delta.version()
    return found


def _versions_of_feeds(board: BoardService, customers: Iterable[str]) -> dict[str, int | None]:
    """Return the versions of customers' own tables; those that cannot be read now are left out, as above."""
    found = {}
    for customer in customers:
        with contextlib.suppress(UnavailableError):
            found[customer] = version_of_own_feed(board.paths, board.topology, customer)
    return found


_PAGE: Final = (
    Field("port", "Only alerts of this port, by its UN/LOCODE.", example="JPTYO"),
    Field("container", "Only alerts of this container.", example="CSQU3054383"),
    Field("voyage", "Only alerts of this ship, by its IMO number; `all`: of every ship.", example="9074729"),
)

_SHOWN: Final = Field("version", "The version of the customer's table that the page shows.", example="7")

PAGES: Final = (
    Page("/live", live, Access.STAFF, fields=_PAGE, media=("text/event-stream",)),
    Page("/live/alerts", alerts, Access.STAFF, fields=_PAGE),
    Page("/mine/live", mine, Access.CUSTOMER, fields=(_SHOWN,), media=("text/event-stream",)),
)
