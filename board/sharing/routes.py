"""Delta Sharing's routes, for the board's application. Everything needs a token, except files, whose links are signed.

Answers come from threads of their own: many customers who read large tables do not stop the pages of the board.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from board.sharing.profile import is_this_machine
from board.sharing.protocol import (
    NDJSON,
    PREFIX,
    VERSION_HEADER,
    ApiError,
    Moment,
    change_lines,
    file_lines,
    instant,
    metadata_lines,
    moment,
    page,
    query,
    span,
)
from board.sharing.service import Place, SharingService
from board.sharing.tokens import Recipient
from board.sharing.versions import History
from fairlead.errors import FairleadError

_LARGEST_BODY: Final = 1 << 20
_THREADS: Final = 8
_PRIVATE: Final = {"Cache-Control": "no-store"}
_TABLE: Final = f"{PREFIX}/shares/{{share}}/schemas/{{schema}}/tables/{{table}}"

_log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")
_Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def routes(service: SharingService) -> list[BaseRoute]:
    """Return the routes of a service, all below ``/delta-sharing``."""
    made = _Routes(service)
    found: list[tuple[str, str, _Handler]] = [
        ("GET", f"{PREFIX}/shares", made.shares),
        ("GET", f"{PREFIX}/shares/{{share}}", made.share),
        ("GET", f"{PREFIX}/shares/{{share}}/schemas", made.schemas),
        ("GET", f"{PREFIX}/shares/{{share}}/schemas/{{schema}}/tables", made.tables),
        ("GET", f"{PREFIX}/shares/{{share}}/all-tables", made.tables),
        ("GET", f"{_TABLE}/version", made.version),
        ("GET", _TABLE, made.version),  # HEAD, as older clients ask
        ("GET", f"{_TABLE}/metadata", made.metadata),
        ("POST", f"{_TABLE}/query", made.query),
        ("GET", f"{_TABLE}/changes", made.changes),
        ("GET", f"{PREFIX}/files/{{link}}", made.file),
    ]
    return [
        *(Route(path, _answered(handler), methods=[method]) for method, path, handler in found),
        Route(f"{PREFIX}/{{rest:path}}", _answered(made.nothing), methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
    ]


def _answered(handler: _Handler) -> _Handler:
    """Turn errors into answers of the protocol. This machine's own are logged; the customer learns nothing of them."""

    async def answer(request: Request) -> Response:
        try:
            response = await handler(request)
        except ApiError as error:
            headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
            response = JSONResponse(error.body, error.status, headers)
        except FairleadError as error:
            _log.warning("delta sharing: %s", error.what)
            response = JSONResponse(ApiError(503, "this cannot be read right now: try again").body, 503)
        response.headers.update(_PRIVATE)
        return response

    return answer


class _Routes:
    def __init__(self, service: SharingService) -> None:
        self._service = service
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="delta-sharing")

    async def shares(self, request: Request) -> Response:
        who = self._who(request)
        return JSONResponse(page(self._service.shares(who), request.query_params))

    async def share(self, request: Request) -> Response:
        who = self._who(request)
        return JSONResponse({"share": self._service.share(who, request.path_params["share"])})

    async def schemas(self, request: Request) -> Response:
        who = self._who(request)
        return JSONResponse(page(self._service.schemas(who, request.path_params["share"]), request.query_params))

    async def tables(self, request: Request) -> Response:
        who = self._who(request)
        return JSONResponse(page(self._service.tables(who, **request.path_params), request.query_params))

    async def version(self, request: Request) -> Response:
        _, _, history = await self._history(request)
        since = request.query_params.get("startingTimestamp")
        found = history.newest if since is None else history.since(instant("startingTimestamp", since))
        return Response(headers={VERSION_HEADER: str(found.number)})

    async def metadata(self, request: Request) -> Response:
        self._who(request)
        return await self._table(request, moment(request.query_params), with_files=False)

    async def query(self, request: Request) -> Response:
        self._who(request)  # before a body is read
        return await self._table(request, query(await _body(request)), with_files=True)

    async def changes(self, request: Request) -> Response:
        who = self._who(request)
        place = self._service.place(who, **request.path_params)
        asked = span(request.query_params)
        found = await self._in_thread(self._service.changes, place, asked)
        files = [
            (file, version.number, version.made)
            for version, rows in found
            for file in self._service.files(who, place, rows, self._linked(request))
        ]
        newest = (await self._in_thread(self._service.history, place)).newest
        lines = metadata_lines(place.identity, place.table.name, place.table.schema, (), newest.number)
        first = found[0][0] if found else newest
        text = "".join([*lines, *change_lines(files)])
        return Response(text, media_type=NDJSON, headers={VERSION_HEADER: str(first.number)})

    async def file(self, request: Request) -> Response:
        path = await self._in_thread(self._service.linked, request.path_params["link"])
        return FileResponse(path, media_type="application/vnd.apache.parquet")

    async def nothing(self, request: Request) -> Response:
        self._who(request)
        raise ApiError(404, "this server does not know that request")

    async def _table(self, request: Request, asked: Moment, *, with_files: bool) -> Response:
        who, place, history = await self._history(request)
        version = history.at(asked)
        files = self._service.files(who, place, version, self._linked(request))
        lines = metadata_lines(place.identity, place.table.name, place.table.schema, files, version.number)
        text = "".join([*lines, *(file_lines(files) if with_files else [])])
        return Response(text, media_type=NDJSON, headers={VERSION_HEADER: str(version.number)})

    async def _history(self, request: Request) -> tuple[Recipient, Place, History]:
        who = self._who(request)
        place = self._service.place(who, **request.path_params)
        return who, place, await self._in_thread(self._service.history, place)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args, **kwargs))

    def _linked(self, request: Request) -> Callable[[str], str]:
        """Return what makes a link's address from its text."""
        return lambda link: f"{_base(request)}{PREFIX}/files/{link}"

    def _who(self, request: Request) -> Recipient:
        return self._service.recipient(request.headers.get("Authorization", ""))


def _base(request: Request) -> str:
    """Return the board's address as the client has it. A board without TLS listens on its own machine only, so whoever
    comes by another name comes through a proxy with TLS."""
    here = request.url.scheme == "http" and is_this_machine(request.url.hostname or "")
    return f"{'http' if here else 'https'}://{request.url.netloc}"


async def _body(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        ApiError: it is too large.
    """
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > _LARGEST_BODY:
            raise ApiError(413, "the body is too large")
    return found
