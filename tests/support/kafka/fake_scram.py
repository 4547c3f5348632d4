"""The server's side of SCRAM-SHA-512 (RFC 5802), enough to accept or refuse a login."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping

ITERATIONS = 4096


class ScramServer:
    """One login. ``lying`` proves itself with the wrong key, as a server that does not know the password."""

    def __init__(self, users: Mapping[str, str], *, lying: bool = False) -> None:
        self._users = users
        self._lying = lying
        self._bare = b""
        self._first = b""
        self._salted = b""

    def step(self, message: bytes) -> bytes | None:
        """The answer to a client's message, None for "refused"."""
        if not self._bare:
            self._bare = message.removeprefix(b"n,,")
            fields = dict(pair.split("=", 1) for pair in self._bare.decode().split(","))
            password = self._users.get(fields["n"])
            if password is None:
                return None
            salt = os.urandom(16)
            self._salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
            nonce = fields["r"] + "server"
            self._first = f"r={nonce},s={base64.b64encode(salt).decode()},i={ITERATIONS}".encode()
            return self._first
        without_proof, _, proof = message.partition(b",p=")
        auth = self._bare + b"," + self._first + b"," + without_proof
        client_key = hmac.digest(self._salted, b"Client Key", "sha512")
        signature = hmac.digest(hashlib.sha512(client_key).digest(), auth, "sha512")
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if not hmac.compare_digest(expected, base64.b64decode(proof)):
            return None
        server_key = hmac.digest(self._salted, b"Server Key", "sha512")
        if self._lying:
            server_key = bytes(64)
        return b"v=" + base64.b64encode(hmac.digest(server_key, auth, "sha512"))
