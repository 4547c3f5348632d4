"""An OpenID provider in a thread: a token endpoint for client credentials, and the key set with which brokers check."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

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
        self._key = rsa.generate_private_key(65537, 2048)

    @property
    def endpoint(self) -> str:
        return f"{self.url}/token"

    @property
    def jwks(self) -> str:
        return f"{self.url}/keys"

    def keys(self) -> dict[str, Any]:
        """Return the key set (RFC 7517)."""
        numbers = self._key.public_key().public_numbers()
        return {
            "keys": [
                {
                    "kty": "RSA",
                    "use": "sig",
                    "alg": "RS256",
                    "kid": KEY_ID,
                    "n": _text(numbers.n.to_bytes(256)),
                    "e": _text(numbers.e.to_bytes(3)),
                }
            ]
        }

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
        head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = ".".join(_text(json.dumps(part).encode()) for part in (head, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_text(signature)}"

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


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@contextmanager
def running(clients: Mapping[str, str], *, lifetime: float = 3600.0) -> Iterator[Provider]:
    """Run a provider on a free port of this machine."""
    provider = Provider(clients, lifetime)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(200, provider.keys())

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._reply(*provider.answer(self.headers.get("Authorization", ""), form))

        def _reply(self, status: int, content: Mapping[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
