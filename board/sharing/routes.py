"""Delta Sharing's routes, for the board's application. Everything needs a token, except files, whose links are signed.

Answers come from threads of their own: many customers who read large tables do not stop the pages of the board.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from board.openapi import JSON, MOMENT, NUMBER, TEXT, TOKEN, Answer, Field, PathOperation
from board.security import origin_of
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
from board.sharing.service import CustomerTable, SharingService
from board.sharing.tokens import Recipient
from board.sharing.versions import History
from fairlead.errors import FairleadError

_LARGEST_BODY: Final = 1 << 20
_THREADS: Final = 8
_PARQUET: Final = "application/vnd.apache.parquet"
_PRIVATE: Final = {"Cache-Control": "no-store"}
_IN_SCHEMA: Final = f"{PREFIX}/shares/{{share}}/schemas/{{schema}}"
_TABLE: Final = f"{_IN_SCHEMA}/tables/{{table}}"

_log = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")
_Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


def routes(service: SharingService) -> list[BaseRoute]:
    """Return the routes of a service, all below ``/delta-sharing``."""
    made = _Routes(service)
    rest, every = f"{PREFIX}/{{rest:path}}", ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return [
        *(Route(each.path, _answered(partial(handler, made)), methods=[each.method]) for each, handler in _SERVED),
        Route(rest, _answered(made.nothing), methods=every, include_in_schema=False),  # nothing is there
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
        """List the customer's shares: its one."""
        who = self._who(request)
        return JSONResponse(page(self._service.shares(who), request.query_params))

    async def share(self, request: Request) -> Response:
        """Name one share."""
        who = self._who(request)
        return JSONResponse({"share": self._service.share(who, request.path_params["share"])})

    async def schemas(self, request: Request) -> Response:
        """List the schemas of a share: its one, `default`."""
        who = self._who(request)
        return JSONResponse(page(self._service.schemas(who, request.path_params["share"]), request.query_params))

    async def tables(self, request: Request) -> Response:
        """List the tables of a share or schema."""
        who = self._who(request)
        return JSONResponse(page(self._service.tables(who, **request.path_params), request.query_params))

    async def version(self, request: Request) -> Response:
        """Say which version of a table is the newest, or the first since a time."""
        _, _, history = await self._history(request)
        since = request.query_params.get("startingTimestamp")
        found = history.newest if since is None else history.since(instant("startingTimestamp", since))
        return Response(headers={VERSION_HEADER: str(found.number)})

    async def metadata(self, request: Request) -> Response:
        """Protocol and schema of a table."""
        self._who(request)
        return await self._table(request, moment(request.query_params), with_files=False)

    async def query(self, request: Request) -> Response:
        """Protocol, schema and links to the files of one version of a table."""
        self._who(request)  # before a body is read
        return await self._table(request, query(await _body(request)), with_files=True)

    async def changes(self, request: Request) -> Response:
        """Protocol, schema and links to the files of what changed between versions of a table."""
        who = self._who(request)
        customer_table = self._service.customer_table(who, **request.path_params)
        asked = span(request.query_params)
        found = await self._in_thread(self._service.changes, customer_table, asked)
        files = [
            (file, version.number, version.made)
            for version, rows in found
            for file in self._service.files(who, customer_table, rows, self._linked(request))
        ]
        newest = (await self._in_thread(self._service.history, customer_table)).newest
        lines = metadata_lines(
            customer_table.identity, customer_table.table.name, customer_table.table.schema, (), newest.number
        )
        first = found[0][0] if found else newest
        text = "".join([*lines, *change_lines(files)])
        return Response(text, media_type=NDJSON, headers={VERSION_HEADER: str(first.number)})

    async def file(self, request: Request) -> Response:
        """A Parquet file, by a link from another answer. The link is signed and good for five minutes."""
        path = await self._in_thread(self._service.linked, request.path_params["link"])
        return FileResponse(path, media_type=_PARQUET)

    async def nothing(self, request: Request) -> Response:
        self._who(request)
        raise ApiError(404, "this server does not know that request")

    async def _table(self, request: Request, asked: Moment, *, with_files: bool) -> Response:
        who, customer_table, history = await self._history(request)
        version = history.at(asked)
        files = self._service.files(who, customer_table, version, self._linked(request))
        lines = metadata_lines(
            customer_table.identity, customer_table.table.name, customer_table.table.schema, files, version.number
        )
        text = "".join([*lines, *(file_lines(files) if with_files else [])])
        return Response(text, media_type=NDJSON, headers={VERSION_HEADER: str(version.number)})

    async def _history(self, request: Request) -> tuple[Recipient, CustomerTable, History]:
        who = self._who(request)
        customer_table = self._service.customer_table(who, **request.path_params)
        return who, customer_table, await self._in_thread(self._service.history, customer_table)

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args, **kwargs))

    def _linked(self, request: Request) -> Callable[[str], str]:
        """Return what makes a link's address from its text."""
        return lambda link: f"{origin_of(request)}{PREFIX}/files/{link}"

    def _who(self, request: Request) -> Recipient:
        return self._service.recipient(request.headers.get("Authorization", ""))


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


# --- how the OpenAPI document has them

_ERROR: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["errorCode", "message"],
    "properties": {"errorCode": TEXT, "message": TEXT},
}
_ERRORS: Final[Mapping[int, str]] = {
    400: "A value is malformed, or that version is not kept.",
    401: "The token is wrong, has ended, or was revoked.",
    403: "The customer has no share now.",
    404: "There is no such share or table for this customer.",
    413: "The body is too large.",
    503: "The table cannot be read now. Try again.",
}
_NAMED: Final[Mapping[str, Any]] = {"type": "object", "required": ["name"], "properties": {"name": TEXT}}
_LIST: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["items"],
    "properties": {"items": {"type": "array", "items": _NAMED}, "nextPageToken": TEXT},
}
_ONE: Final[Mapping[str, Any]] = {"type": "object", "required": ["share"], "properties": {"share": _NAMED}}
_SHARE: Final = Field("share", "The customer's name.", example="ducks")
_SCHEMA: Final = Field("schema", "The schema's name.", example="default")
_IN_TABLE: Final = (_SHARE, _SCHEMA, Field("table", "The table's name.", example="readings"))
_PAGED: Final = (
    Field("maxResults", "The most items in one answer.", NUMBER),
    Field("pageToken", "`nextPageToken` of the answer before.", TEXT),
)
_AT: Final = (
    Field("version", "A version of the table; the newest without.", NUMBER),
    Field("timestamp", "The version of that time.", MOMENT),
)
_SINCE: Final = (Field("startingTimestamp", "A time with its zone.", MOMENT),)
_HINTS: Final = tuple(
    Field(name, "A hint. It is passed over: a client filters what it gets.", schema)
    for name, schema in (
        ("predicateHints", {"type": "array", "items": TEXT}),
        ("jsonPredicateHints", TEXT),
        ("limitHint", NUMBER),
    )
)
_SPAN: Final = (
    Field("startingVersion", "The first version.", NUMBER),
    Field("startingTimestamp", "The time of the first version.", MOMENT),
    Field("endingVersion", "The last version; the newest without.", NUMBER),
    Field("endingTimestamp", "The time of the last version.", MOMENT),
)
_VERSION: Final = {VERSION_HEADER: "The version of the table."}
_LINES: Final = Answer("One JSON object a line.", (NDJSON.partition(";")[0],), headers=_VERSION)
_NUMBER_ONLY: Final = Answer("The version is in the header.", headers=_VERSION)


_Method: TypeAlias = Callable[[_Routes, Request], Awaitable[Response]]


def _operation(
    path: str,
    handler: _Method,
    fields: tuple[Field, ...],
    answer: Answer,
    *,
    method: str = "GET",
    errors: tuple[int, ...] = (401, 403, 404),
) -> tuple[PathOperation, _Method]:
    answers = {status: Answer(_ERRORS[status], (JSON,), _ERROR) for status in errors}
    readers = "For the customer that the token was made for."
    given = {200: answer, **answers}
    return PathOperation(method, path, handler, "delta-sharing", readers, TOKEN, fields, given, JSON), handler


_OF_TABLE: Final = (400, 401, 403, 404, 503)
_LIST_ERRORS: Final = (400, 401, 403, 404)
_LISTED: Final = Answer("A page of the list.", (JSON,), _LIST)
_LINKED: Final = PathOperation(
    "GET",
    f"{PREFIX}/files/{{link}}",
    _Routes.file,
    "delta-sharing",
    "The link itself is the right to it.",
    "",
    (Field("link", "As an answer has it."),),
    {
        200: Answer("The file.", (_PARQUET,)),
        206: Answer("The part that `Range` asks for.", (_PARQUET,)),
        400: Answer("`Range` is malformed.", ("text/plain",)),
        403: Answer("The link is wrong or has ended.", (JSON,), _ERROR),
        404: Answer("The version is not kept any more.", (JSON,), _ERROR),
        416: Answer("The file is shorter than `Range` asks for.", ("text/plain",)),
    },
)

_SERVED: Final = (
    _operation(f"{PREFIX}/shares", _Routes.shares, _PAGED, _LISTED, errors=(400, 401, 403)),
    _operation(f"{PREFIX}/shares/{{share}}", _Routes.share, (_SHARE,), Answer("The share.", (JSON,), _ONE)),
    _operation(f"{PREFIX}/shares/{{share}}/schemas", _Routes.schemas, (_SHARE, *_PAGED), _LISTED, errors=_LIST_ERRORS),
    _operation(f"{_IN_SCHEMA}/tables", _Routes.tables, (_SHARE, _SCHEMA, *_PAGED), _LISTED, errors=_LIST_ERRORS),
    _operation(
        f"{PREFIX}/shares/{{share}}/all-tables", _Routes.tables, (_SHARE, *_PAGED), _LISTED, errors=_LIST_ERRORS
    ),
    _operation(f"{_TABLE}/version", _Routes.version, (*_IN_TABLE, *_SINCE), _NUMBER_ONLY, errors=_OF_TABLE),
    _operation(_TABLE, _Routes.version, (*_IN_TABLE, *_SINCE), _NUMBER_ONLY, errors=_OF_TABLE),  # older clients: HEAD
    _operation(f"{_TABLE}/metadata", _Routes.metadata, (*_IN_TABLE, *_AT), _LINES, errors=_OF_TABLE),
    _operation(
        f"{_TABLE}/query", _Routes.query, (*_IN_TABLE, *_AT, *_HINTS), _LINES, method="POST", errors=(*_OF_TABLE, 413)
    ),
    _operation(f"{_TABLE}/changes", _Routes.changes, (*_IN_TABLE, *_SPAN), _LINES, errors=_OF_TABLE),
    (_LINKED, _Routes.file),
)

OPERATIONS: Final = tuple(operation for operation, _ in _SERVED)
"""What the routes answer."""
