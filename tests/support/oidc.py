"""An OpenID provider in a thread: a token endpoint for client credentials, and the key set with which brokers check."""

from __future__ import annotations

import base64
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.serving import served

AUDIENCE: Final = "kafka"
KEY_ID: Final = "first"


class Provider:
    """Issues tokens to the clients that it knows. Change ``lifetime`` (seconds) and ``down`` while it runs.

    ``issued`` counts the tokens of each client, ``scopes`` has the scope of each request.
    """

    def __init__(self, clients: Mapping[str, str], lifetime: float) -> None:
        self.clients = dict(clients)
        self.lifetime = lifetime
        self.audience = AUDIENCE
        self.down = False
        self.issued: Counter[str] = Counter()
        self.scopes: list[str | None] = []
        self.url = ""
        self._key = RSAKey.generate_key(2048, {"kid": KEY_ID})

    @property
    def endpoint(self) -> str:
        return f"{self.url}/token"

    @property
    def jwks(self) -> str:
        return f"{self.url}/keys"

    def keys(self) -> dict[str, Any]:
        """Return the key set (RFC 7517)."""
        return {"keys": [self._key.as_dict(private=False, alg="RS256", use="sig")]}

    def token(self, client: str) -> str:
        """Return a signed token (JWT) of a client."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": client,
            "aud": self.audience,
            "iat": now,
            "exp": int(now + self.lifetime),
            "scope": "kafka",
            "jti": str(self.issued.total()),
        }
        return jwt.encode({"alg": "RS256", "typ": "JWT", "kid": KEY_ID}, claims, self._key)

    def answer(self, authorization: str, form: Mapping[str, list[str]]) -> tuple[int, dict[str, Any]]:
        """Answer a request for a token."""
        if self.down:
            return 503, {"error": "temporarily_unavailable"}
        client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if form.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        if self.clients.get(client) != secret:
            return 401, {"error": "invalid_client"}
        self.issued[client] += 1
        self.scopes.append(form.get("scope", [None])[0])
        return 200, {"access_token": self.token(client), "token_type": "Bearer", "expires_in": self.lifetime}


@contextmanager
def running(clients: Mapping[str, str], *, lifetime: float = 3600.0) -> Iterator[Provider]:
    """Run a provider on a free port of this machine."""
    provider = Provider(clients, lifetime)

    def keys(_: Request) -> Response:
        return JSONResponse(provider.keys())

    async def token(request: Request) -> Response:
        form = parse_qs((await request.body()).decode())
        status, content = provider.answer(request.headers.get("authorization", ""), form)
        return JSONResponse(content, status)

    routes = [Route("/keys", keys), Route("/token", token, methods=["POST"])]
    with served(Starlette(routes=routes)) as address:
        provider.url = address
        yield provider
