"""Sign in with the name and password of a Kafka user, or at an OpenID Connect provider, and out again."""

from __future__ import annotations

import logging
import math
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from board.oidc import LASTS, SignInRefusedError
from board.openapi import Field
from board.security import COOKIE, local_path, origin_of, over_tls
from board.service import BoardService, Page, address_of
from board.viewer import LOCAL, Access, viewer_of
from fairlead.errors import FairleadError
from fairlead.kafka.credentials import PasswordVersion

log = logging.getLogger(__name__)

_RETURN: Final = "/sign-in/oidc/return"
_ATTEMPT: Final = "fairlead_oidc"
_NOT_BY_PROVIDER: Final = "has not signed you in, or you may see nothing here."
_UNCHECKED: Final = "Passwords cannot be checked now. Try again in a minute."
_WRONG: Final = "Name or password is wrong, or this name may see nothing here."


async def show(board: BoardService, request: Request) -> Response:
    """The form for name and password."""
    return _form(board, request, str(request.query_params.get("next") or ""))


async def sign_in(board: BoardService, request: Request) -> Response:
    """Check name and password at a broker, and open a session."""
    if not board.oidc.passwords:
        raise HTTPException(404)
    form = await request.form(max_files=0, max_fields=10, max_part_size=4096)
    name, password, target = (str(form.get(field) or "") for field in ("name", "password", "next"))
    address = address_of(request)
    wait = board.throttle.wait(name, address)
    if wait > 0:
        board.audit.note("sign-in-throttled", name[:64], address)
        trouble = f"Too many failed attempts. Try again in {math.ceil(wait)} seconds."
        return _again(board, request, target, name, trouble, 429, {"Retry-After": str(math.ceil(wait))})
    board.throttle.failed(name, address)  # before the check, so that attempts at the same moment are counted
    try:
        signed_in = await board.sign_in.check(name, password)
    except FairleadError as error:
        board.throttle.unchecked(name, address)
        log.warning("a sign-in could not be checked: %s", error)
        return _again(board, request, target, name, _UNCHECKED, 503)
    if signed_in is None:
        board.audit.note("sign-in-refused", name[:64], address)
        return _again(board, request, target, name, _WRONG, 403)
    board.throttle.succeeded(name, address)
    return _welcome(board, request, signed_in.viewer.name, local_path(target), signed_in.password)


async def to_provider(board: BoardService, request: Request) -> Response:
    """Send the browser to the provider. A cookie binds the attempt to this browser."""
    if not board.oidc.provider():
        raise HTTPException(404)
    target = local_path(request.query_params.get("next"))
    there, attempt = await board.oidc.begin(request, origin_of(request) + _RETURN, target)
    answer = RedirectResponse(there, 303)
    _set_cookie(request, answer, _ATTEMPT, attempt, path=_RETURN, max_age=int(LASTS))
    return answer


async def from_provider(board: BoardService, request: Request) -> Response:
    """Open a session for whom the provider's answer signs in."""
    if not board.oidc.provider():
        raise HTTPException(404)
    provider, name, target, version = board.oidc.provider(), "", "/", None
    try:
        name, subject, target = await board.oidc.finish(request, request.cookies.get(_ATTEMPT) or "")
        facts = {"by": provider, "subject": subject[:200]}
    except SignInRefusedError as error:
        facts = {"by": provider, "why": error.what[:200]}
    may = bool(name) and viewer_of(board.topology, name) is not None
    if may:
        version = await board.sign_in.password_version(name)
        if version is not None and version.salt is None:
            may, facts["why"] = False, "the Kafka user has no password"
    if may:
        answer = _welcome(board, request, name, target, version, **facts)
    else:
        board.audit.note("sign-in-refused", name, address_of(request), **facts)
        answer = _form(board, request, "", trouble=f"{provider} {_NOT_BY_PROVIDER}", status=403)
    answer.delete_cookie(_ATTEMPT, path=_RETURN)
    return answer


async def sign_out(board: BoardService, request: Request) -> Response:
    """End the session."""
    session = board.session(request)
    if session is not None:
        board.audit.note("sign-out", session.name, address_of(request))
        board.sessions.close(request.cookies[COOKIE])
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE)
    return answer


async def local(board: BoardService, request: Request) -> Response:
    """Sign in who has started the board, by the link that it printed. A link works once."""
    name = board.sessions.redeem(request.path_params["token"])
    if name is None:
        raise HTTPException(404, _USED)
    return _welcome(board, request, LOCAL.name, local_path(request.query_params.get("next")))


def _welcome(
    board: BoardService, request: Request, name: str, target: str, password: PasswordVersion | None = None, **facts: str
) -> Response:
    board.audit.note("sign-in", name, address_of(request), **facts)
    old = request.cookies.get(COOKIE)
    if old:
        board.sessions.close(old)
    token, _ = board.sessions.open(name, password)
    answer = RedirectResponse(target, 303)
    _set_cookie(request, answer, COOKIE, token)
    return answer


def _set_cookie(
    request: Request, answer: Response, name: str, value: str, *, path: str = "/", max_age: int | None = None
) -> None:
    # "lax", because a provider's answer, and a link in a mail, come from other sites.
    secure = over_tls(request.url.scheme, request.headers["host"])
    answer.set_cookie(name, value, httponly=True, secure=secure, samesite="lax", path=path, max_age=max_age)


def _again(
    board: BoardService,
    request: Request,
    target: str,
    name: str,
    trouble: str,
    status: int,
    headers: dict[str, str] | None = None,
) -> Response:
    answer = _form(board, request, target, name=name, trouble=trouble, status=status)
    answer.headers.update(headers or {})
    return answer


def _form(
    board: BoardService, request: Request, target: str, *, name: str = "", trouble: str = "", status: int = 200
) -> Response:
    values = {"next": local_path(target), "trouble": trouble, "name": name, "provider": board.oidc.provider()}
    return board.page(request, "sign_in.html.j2", status=status, passwords=board.oidc.passwords, **values)


_NEXT: Final = Field("next", "The path of the page to go to then.", example="/")
_NAME: Final = (
    Field("name", "The name of a Kafka user.", example="ducks", required=True),
    Field("password", "Its password.", {"type": "string", "format": "password"}, required=True),
)
_LINK: Final = Field("token", "What the command has printed.")
_USED: Final = "The link was used already, or is older than ten minutes."
_REFUSED: Final = {
    303: "Done: to the page `next`.",
    404: "People sign in at the provider only.",
    429: "Too many failed attempts.",
    503: "No broker can say whether the password is right.",
}

_NO_PROVIDER: Final = "The topology names no provider."
_AWAY: Final = "The provider does not answer."
_TO_PROVIDER: Final = {303: "To the provider.", 404: _NO_PROVIDER, 503: _AWAY}
_FROM_PROVIDER: Final = {
    303: "Done: to the page from which the sign-in began.",
    403: "The provider has not signed anybody in, or the name may see nothing.",
    404: _NO_PROVIDER,
    503: _AWAY,
}
_ANSWERED: Final = (
    Field("code", "As the provider gives it."),
    Field("state", "As the board has given it to the provider."),
    Field("error", "Why the provider signs nobody in."),
)

PAGES: Final = (
    Page("/sign-in", show, Access.ANYONE, fields=(_NEXT,)),
    Page("/sign-in", sign_in, Access.ANYONE, "POST", (*_NAME, _NEXT), (), _REFUSED),
    Page("/sign-in/oidc", to_provider, Access.ANYONE, "GET", (_NEXT,), (), _TO_PROVIDER),
    Page(_RETURN, from_provider, Access.ANYONE, "GET", _ANSWERED, (), _FROM_PROVIDER),
    Page("/sign-out", sign_out, Access.SIGNED_IN, "POST", media=(), answers={303: "Done: to /sign-in."}),
    Page("/local/{token}", local, Access.ANYONE, "GET", (_LINK, _NEXT), (), {303: "Done: to the page.", 404: _USED}),
)
