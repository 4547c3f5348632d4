"""The OpenAPI document is valid, and has every route of the board with all that its handler reads."""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import httpx
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

import board.pages.access
import board.pages.alerts
import board.pages.container
import board.pages.fleet
import board.pages.live
import board.pages.port
import board.pages.portal
import board.pages.signing_in
import board.pages.voyage
import board.sharing.protocol
import board.sharing.routes
from board.app import OPERATIONS, PAGES, create_app, openapi_document
from board.openapi import Field, PathOperation, document
from board.server import shares
from board.service import BoardService, Page
from board.viewer import Access
from tests.support.openapi import DOCUMENT

MODULES: tuple[ModuleType, ...] = (
    board.pages.access,
    board.pages.alerts,
    board.pages.container,
    board.pages.fleet,
    board.pages.live,
    board.pages.port,
    board.pages.portal,
    board.pages.signing_in,
    board.pages.voyage,
)
READ_BY_LIBRARY = {"code", "state", "error"}
"""Of a provider's answer."""


def test_the_document_is_openapi_31() -> None:
    validate(DOCUMENT, cls=OpenAPIV31SpecValidator)
    assert DOCUMENT["openapi"].startswith("3.1")


def test_every_route_is_in_the_document_and_nothing_else(service: BoardService) -> None:
    served: set[tuple[str, str]] = set()
    hidden = []
    for route in create_app(service, further=shares(service)).routes:
        if isinstance(route, Mount):
            served.add(("GET", f"{route.path}/{{file:path}}"))
            continue
        assert isinstance(route, Route)
        if not route.include_in_schema:
            hidden.append(route.path)
            continue
        served |= {(method, route.path) for method in (route.methods or ()) if method != "HEAD"}
    assert {(each.method, each.path) for each in OPERATIONS} == served
    assert hidden == ["/delta-sharing/{rest:path}"], "what answers with 404 alone is in no document, all else is"


def test_modules_of_pages_are_all_looked_at() -> None:
    assert [page for module in MODULES for page in module.PAGES if page not in PAGES] == []
    assert len(PAGES) == sum(len(module.PAGES) for module in MODULES)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_what_a_handler_reads_is_described_and_what_is_described_is_read(module: ModuleType) -> None:
    source = inspect.getsource(module)
    described = {each.name for page in module.PAGES for each in page.fields}
    read = set(re.findall(r'(?:query_params|form|path_params)(?:\.get\(|\[)"(\w+)"', source))
    assert read <= described
    code = re.sub(r'Field\(\s*"\w+"', "", source)
    assert [name for name in described if f'"{name}"' not in code and name not in READ_BY_LIBRARY] == []


def test_what_delta_sharing_reads_is_described() -> None:
    source = inspect.getsource(board.sharing.protocol) + inspect.getsource(board.sharing.routes)
    read = set(re.findall(r'(?:asked|query_params|path_params)(?:\.get\(|\[)"(\w+)"', source))
    assert read - {"endingVersion", "startingVersion"} <= {
        each.name for operation in board.sharing.routes.OPERATIONS for each in operation.fields
    }


async def undescribed(_: BoardService, __: Request) -> Response:
    raise NotImplementedError


async def described(_: BoardService, __: Request) -> Response:
    """Say something."""
    raise NotImplementedError


def test_a_page_without_a_description_makes_no_document() -> None:
    with pytest.raises(ValueError, match="GET /new: the handler has no docstring"):
        document([Page("/new", undescribed, Access.STAFF).operation()], "1")
    with pytest.raises(ValueError, match="what is not described"):
        document([Page("/new/{what}", described, Access.STAFF).operation()], "1")
    with pytest.raises(ValueError, match="is there twice"):
        document([Page("/new", described, Access.STAFF).operation()] * 2, "1")


def operation(page: Page) -> dict[str, Any]:
    found: PathOperation = page.operation()
    return found.as_json()


def test_fields_go_where_the_request_has_them() -> None:
    fields = (Field("number", "A number.", example="1"), Field("reason", "Why.", required=True))
    read = operation(Page("/new/{number:path}", described, Access.CUSTOMER, fields=fields))
    assert [(each["name"], each["in"], each["required"]) for each in read["parameters"]] == [
        ("number", "path", True),
        ("reason", "query", True),
    ]
    assert read["security"] == [{"session": ["customer"]}]
    assert "requestBody" not in read
    sent = operation(Page("/new/{number}", described, Access.ANYONE, "POST", fields))
    assert [each["name"] for each in sent["parameters"]] == ["number"]
    body = sent["requestBody"]["content"]["application/x-www-form-urlencoded"]["schema"]
    assert (list(body["properties"]), body["required"]) == (["reason"], ["reason"])
    assert sent["security"] == []


async def test_the_board_serves_it_to_everybody_and_it_names_nothing_of_a_topology(service: BoardService) -> None:
    transport = httpx.ASGITransport(create_app(service))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == openapi_document()
    assert service.topology.title not in answer.text
    assert str(service.context.folder) not in answer.text
