"""Sign in with the name and password of a Kafka user, and out again."""

from __future__ import annotations

import math
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from board.security import COOKIE, local_path
from board.service import Board, Page, address_of
from board.viewer import LOCAL, Access

_WRONG: Final = "Name or password is wrong, or this name may see nothing here."


async def show(board: Board, request: Request) -> Response:
    """The form."""
    return board.page(
        request, "sign_in.html.j2", next=local_path(request.query_params.get("next")), trouble="", name=""
    )


async def sign_in(board: Board, request: Request) -> Response:
    """Check name and password at a broker, and open a session."""
    form = await request.form(max_files=0, max_fields=10, max_part_size=4096)
    name, password, target = (str(form.get(field) or "") for field in ("name", "password", "next"))
    address = address_of(request)
    wait = board.throttle.wait(name, address)
    if wait > 0:
        board.audit.note("sign-in-throttled", name[:64], address)
        trouble = f"Too many failed attempts. Try again in {math.ceil(wait)} seconds."
        return _again(board, request, target, name, trouble, 429, {"Retry-After": str(math.ceil(wait))})
    board.throttle.failed(name, address)  # before the check, so that attempts at the same moment are counted
    viewer = await board.sign_in.check(name, password)
    if viewer is None:
        board.audit.note("sign-in-refused", name[:64], address)
        return _again(board, request, target, name, _WRONG, 403)
    board.throttle.succeeded(name, address)
    return _welcome(board, request, viewer.name, local_path(target))


async def sign_out(board: Board, request: Request) -> Response:
    """End the session."""
    session = board.session(request)
    if session is not None:
        board.audit.note("sign-out", session.name, address_of(request))
        board.sessions.close(request.cookies[COOKIE])
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE)
    return answer


async def local(board: Board, request: Request) -> Response:
    """Sign in who has started the board, by the link that it printed. A link works once."""
    name = board.sessions.redeem(request.path_params["token"])
    if name is None:
        raise HTTPException(404, "The link was used already.")
    return _welcome(board, request, LOCAL.name, "/")


def _welcome(board: Board, request: Request, name: str, target: str) -> Response:
    board.audit.note("sign-in", name, address_of(request))
    old = request.cookies.get(COOKIE)
    if old:
        board.sessions.close(old)
    token, _ = board.sessions.open(name)
    answer = RedirectResponse(target, 303)
    answer.set_cookie(COOKIE, token, httponly=True, secure=request.app.state.tls, samesite="lax", path="/")
    return answer


def _again(
    board: Board,
    request: Request,
    target: str,
    name: str,
    trouble: str,
    status: int,
    headers: dict[str, str] | None = None,
) -> Response:
    values = {"next": local_path(target), "trouble": trouble, "name": name}
    answer = board.page(request, "sign_in.html.j2", status=status, **values)
    answer.headers.update(headers or {})
    return answer


PAGES: Final = (
    Page("/sign-in", show, Access.ANYONE),
    Page("/sign-in", sign_in, Access.ANYONE, "POST"),
    Page("/sign-out", sign_out, Access.SIGNED_IN, "POST"),
    Page("/local/{token}", local, Access.ANYONE),
)
