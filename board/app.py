"""The board as an ASGI application: which pages there are, and who may open each.

Every request goes through ``_endpoint``: it finds out who looks, answers 404 to those who may not know that the page
exists, and checks the token of what changes something. No page decides that itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import board.pages.access
import board.pages.alerts
import board.pages.container
import board.pages.fleet
import board.pages.live
import board.pages.port
import board.pages.portal
import board.pages.signing_in
import board.pages.voyage
import board.sharing.routes
from board import ForEveryoneError
from board.metrics import CountedRequests
from board.openapi import JSON, Answer, Field, PathOperation, document
from board.security import SecureHeaders, is_same_origin, is_token
from board.service import READERS, BoardService, Page
from board.viewer import Access
from fairlead.errors import ConfigurationError, FairleadError, RefusedError, UnavailableError
from fairlead.versions import fairlead_version
from fairlead.waiting import in_background
from topologies.values import LOOPBACK

log = logging.getLogger(__name__)

PAGES: Final[tuple[Page, ...]] = (
    *board.pages.signing_in.PAGES,
    *board.pages.fleet.PAGES,
    *board.pages.voyage.PAGES,
    *board.pages.port.PAGES,
    *board.pages.container.PAGES,
    *board.pages.alerts.PAGES,
    *board.pages.access.PAGES,
    *board.pages.live.PAGES,  # /mine/live, before what takes it for a container's number
    *board.pages.portal.PAGES,
)
"""All pages, and the answers to their scripts."""


def create_app(
    service: BoardService,
    *,
    hosts: Collection[str] = LOOPBACK,
    further: Sequence[BaseRoute] = (),
) -> Starlette:
    """Return the application.

    Args:
        hosts: The names under which browsers may reach it, without ports.
        further: Routes with their own way to sign in.
    """
    routes: list[BaseRoute] = [
        Route("/healthz", _healthz),
        Route("/openapi.json", _openapi),
        *further,
        *(Route(page.path, _endpoint(service, page), methods=[page.method]) for page in PAGES),
        Mount("/static", StaticFiles(directory=str(resources.files("board") / "static"))),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with (
            service.live.running(),
            in_background(service.watch_passwords()),
            in_background(board.pages.live.watch(service)),
        ):
            yield

    handlers: dict[Any, Callable[[Request, Exception], Coroutine[Any, Any, Response]]] = {
        HTTPException: _on_http_error,
        FairleadError: _on_error,
        Exception: _on_failure,
    }
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(CountedRequests, counts=service.requests, routes=routes),
            Middleware(SecureHeaders, hosts=hosts),
            Middleware(CompressedPages),
        ],
        exception_handlers=handlers,
        lifespan=lifespan,
    )
    app.state.board = service
    return app


class CompressedPages:
    """ASGI middleware: compress pages and static files, and leave alone what is compressed in itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._compressed = app, GZipMiddleware(app, minimum_size=1000, compresslevel=6)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        stored = path.startswith("/delta-sharing") or path.endswith((".parquet", "/pack"))
        await (self._app if stored else self._compressed)(scope, receive, send)


def _endpoint(service: BoardService, page: Page) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def endpoint(request: Request) -> Response:
        if page.method != "GET" and not is_same_origin(request.headers):
            raise HTTPException(403, "The form was not sent by a page of this board.")
        viewer = service.viewer(request)
        if page.access is not Access.ANYONE:
            if viewer is None:
                return _to_sign_in(request)
            if not viewer.may(page.access):
                raise HTTPException(404)
            if page.method != "GET":
                await _check_token(service, request)
        return await page.handler(service, request)

    return endpoint


def _to_sign_in(request: Request) -> Response:
    if request.method != "GET" or request.headers.get("sec-fetch-dest", "document") != "document":
        raise HTTPException(401, "Sign in first.")
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/sign-in?next={quote(asked, safe='')}", 303)


async def _check_token(service: BoardService, request: Request) -> None:
    session = service.session(request)
    form = await request.form(max_files=0, max_fields=100, max_part_size=1 << 16)
    given = request.headers.get("x-csrf-token") or form.get("csrf")
    if session is None or not is_token(given, session.csrf):
        raise HTTPException(403, "The page is too old: open it again, and repeat what you did.")


async def _healthz(_: Request) -> Response:
    """Say that the board serves."""
    return PlainTextResponse("ok\n")


async def _openapi(_: Request) -> Response:
    """This document. It is the same for every topology, and says nothing of one."""
    return Response(_described(), media_type=JSON)


@cache
def _described() -> bytes:
    return json.dumps(openapi_document(), ensure_ascii=False).encode()


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of all that the board serves, as ``/openapi.json`` has it."""
    return document(OPERATIONS, fairlead_version())


def _for_anyone(
    path: str, about: Callable[..., object] | str, media: str, *, fields: tuple[Field, ...] = ()
) -> PathOperation:
    answers = {200: Answer("The answer.", (media,))}
    if fields:
        answers |= {
            304: Answer("The file is as the browser has it."),
            404: Answer("There is no such file.", ("text/html",)),
        }
    return PathOperation("GET", path, about, "board", READERS[Access.ANYONE], "", fields, answers)


_FILE: Final = Field("file", "Its path.", example="board.css")

OPERATIONS: Final = (
    _for_anyone("/healthz", _healthz, "text/plain"),
    _for_anyone("/openapi.json", _openapi, JSON),
    *board.sharing.routes.OPERATIONS,
    *(page.operation() for page in PAGES),
    _for_anyone("/static/{file:path}", "A script, style or picture of the pages.", "*/*", fields=(_FILE,)),
)
"""All that the board answers, in the order in which routes are tried."""


_NOT_FOUND: Final = "There is no such page, or it is not for you."
_FAILED: Final = "The board has an error; its log has the details."
_UNTOLD: Final = {
    404: _NOT_FOUND,
    409: "That cannot be done now.",
    500: _FAILED,
    503: "The board cannot answer this now.",
}


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - as registered
    texts = {404: _NOT_FOUND, 405: "That page cannot do this."}
    text = texts.get(error.status_code, error.detail)
    return _message(request, error.status_code, text, "", dict(error.headers or {}))


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, FairleadError)  # noqa: S101 - as registered
    status = 500
    for kind, code in ((ConfigurationError, 404), (UnavailableError, 503), (RefusedError, 409)):
        if isinstance(error, kind):
            status = code
    if error.retriable:
        status = 503
    viewer = request.app.state.board.viewer(request)
    if isinstance(error, ForEveryoneError) or (viewer is not None and viewer.reads):
        return _message(request, status, _sentence(error.what), _sentence(error.hint))
    log.warning("%s: %s", request.url.path, error)  # it may name brokers, files and others' records
    return _message(request, status, _UNTOLD[status], "Try again in a minute." if status == 503 else "")


async def _on_failure(request: Request, error: Exception) -> Response:
    log.error("%s failed", request.url.path, exc_info=error)
    return _message(request, 500, _FAILED, "")


def _message(request: Request, status: int, text: str, hint: str, headers: dict[str, str] | None = None) -> Response:
    service: BoardService = request.app.state.board
    answer = service.page(request, "message.html.j2", status=status, text=text, hint=hint, code=status)
    answer.headers.update(headers or {})
    return answer


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""
