"""What the board adds to every answer, and which requests it refuses before any page sees them.

Pages carry no content from elsewhere and run no script but the board's own (``CONTENT_POLICY``). A request that changes
something must come from a page of the same origin: browsers say so in ``Origin`` or ``Sec-Fetch-Site``, and the form
carries the session's token. Names of the board are fixed, so that no other name can lead a browser to it (DNS
rebinding).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from topologies.values import LOOPBACK

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
"""Headers of every answer. Pages and data also have ``Cache-Control: no-store``; files of ``/static`` may be kept."""

COOKIE: Final = "fairlead_board"


class SecureHeaders:
    """ASGI middleware: refuse requests for other hosts, and add ``HEADERS`` to every answer.

    Args:
        hosts: The names under which browsers may reach the board, without ports.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app, self._hosts = app, frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")

        async def add_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if over_tls(scope["scheme"], host):
                    headers["Strict-Transport-Security"] = "max-age=31536000"
                if "cache-control" not in headers:
                    kept = scope["path"].startswith("/static/")
                    headers["Cache-Control"] = "no-cache" if kept else "no-store"
            await send(message)

        if host_of(host) not in self._hosts:
            await _refuse(add_headers, 421, b"This board does not answer to that name.\n")
            return
        await self._app(scope, receive, add_headers)


def host_of(header: str) -> str:
    """Return the name or address in a ``Host`` header, without port and brackets, in small letters."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def over_tls(scheme: str, host: str) -> bool:
    """Return whether a request comes over TLS, as far as its client knows.

    A board without TLS listens on its own machine only, so whoever comes by another name comes through a proxy with
    TLS.

    Args:
        scheme: Of the request as it reaches the board.
        host: Its header ``Host``.
    """
    return scheme == "https" or host_of(host) not in LOOPBACK


def origin_of(request: Request) -> str:
    """Return the address by which the client reaches the board, without a slash at its end."""
    host = request.headers["host"]
    return f"{'https' if over_tls(request.url.scheme, host) else 'http'}://{host}"


def is_same_origin(headers: Headers) -> bool:
    """Return whether a browser sent the request from one of the board's own pages.

    Programs that are no browsers send neither header; the session's token protects those requests.
    """
    origin, fetched = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        return urlsplit(origin).netloc == headers.get("host")
    return fetched in (None, "same-origin")


def local_path(text: object) -> str:
    """Return a path of this board; the first page for anything else, such as another site's address."""
    if not isinstance(text, str) or not text.startswith("/") or not text.isprintable():
        return "/"
    return "/" if text.startswith(("//", "/\\", "/sign-")) else text


def masked(token: str) -> str:
    """Return a session's token as a page carries it: another text each time.

    Pages are compressed, and some repeat what a request says. If the token were the same in each, the length of the
    compressed page would tell whether a guess is in it (the BREACH attack, 2013).
    """
    content = token.encode()
    mask = secrets.token_bytes(len(content))
    return base64.urlsafe_b64encode(mask + _xor(mask, content)).decode()


def digest_of(token: str) -> str:
    """Return the SHA-256 of a token. Tokens are 256 random bits, so nobody finds one from it."""
    return hashlib.sha256(token.encode()).hexdigest()


def is_token(given: object, expected: str) -> bool:
    """Compare the masked token of a form with the session's, in constant time."""
    try:
        both = base64.urlsafe_b64decode(str(given).encode("ascii"))
    except (ValueError, UnicodeEncodeError):
        return False
    middle = len(both) // 2
    return hmac.compare_digest(_xor(both[:middle], both[middle:]), expected.encode())


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=False))


async def _refuse(send: Send, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})
