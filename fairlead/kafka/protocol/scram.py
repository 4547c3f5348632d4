"""The client's side of SCRAM-SHA-512 and SCRAM-SHA-256 (RFC 5802), without channel binding. Pure.

User names and passwords are used unchanged, as Kafka's brokers do (they do not apply SASLprep to ASCII either).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from functools import lru_cache
from typing import Final

LEAST_ITERATIONS: Final = 4096  # fewer would let a false server guess the password from the proof
MOST_ITERATIONS: Final = 1_000_000  # more would only cost us time
_NO_BINDING: Final = b"c=biws"  # base64 of "n,,"


class ScramClient:
    """One login: send ``first``, pass the answer to ``final``, send its result, pass that answer to ``verify``.

    ``digest`` is the mechanism's hash function: ``sha512`` or ``sha256``.
    """

    def __init__(self, user: str, password: str, *, digest: str = "sha512", nonce: str | None = None) -> None:
        self._digest = digest
        self._password = password.encode()
        self._nonce = (nonce or secrets.token_hex(16)).encode()
        self._bare = b"n=" + user.replace("=", "=3D").replace(",", "=2C").encode() + b",r=" + self._nonce
        self._signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return b"n,," + self._bare

    def final(self, answer: bytes) -> bytes:
        """Return the second message, which proves that we know the password.

        Raises:
            ValueError: the server's answer does not belong to this login, or wants an unreasonable number of
                iterations.
        """
        fields = _fields(answer)
        nonce, salt = fields[b"r"], base64.b64decode(fields[b"s"], validate=True)
        iterations = int(fields[b"i"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ValueError("the server's nonce does not continue ours")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise ValueError(f"{iterations} iterations")
        digest = self._digest
        salted = _salted(digest, self._password, salt, iterations)
        without_proof = _NO_BINDING + b",r=" + nonce
        message = b",".join((self._bare, answer, without_proof))
        client_key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", digest), message, digest)
        return without_proof + b",p=" + base64.b64encode(proof)

    def verify(self, answer: bytes) -> None:
        """Check that the server knows the password too; raise ``ValueError`` when it does not."""
        found = base64.b64decode(_fields(answer)[b"v"], validate=True)
        if not self._signature or not hmac.compare_digest(found, self._signature):
            raise ValueError("wrong signature")


def salt_of(answer: bytes) -> bytes:
    """Return the salt in a server's first message, as it is on the wire.

    Raises:
        ValueError: there is none.
    """
    salt = _fields(answer)[b"s"]
    if not salt:
        raise ValueError("no salt")
    return salt


@lru_cache(maxsize=32)
def _salted(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Derive the salted password, cached because it costs 10 ms.

    A process logs in to each of its brokers several times with one password; RFC 5802 (section 5.1) allows caching.
    """
    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)


def _fields(message: bytes) -> dict[bytes, bytes]:
    """Return attributes by their letter; a missing one is empty, which is never valid."""
    found = dict.fromkeys((b"r", b"s", b"i", b"v"), b"")
    for part in message.split(b","):
        letter, _, value = part.partition(b"=")
        found[letter] = value
    return found
