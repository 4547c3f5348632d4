"""Links to files that carry their own right: a customer's client opens them without its token.

A link is good for some minutes, for one file, only from the process that made it, and only while the token with which
it was asked for is good.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import hmac
import secrets
from typing import Final

import msgspec

from board.sharing.tokens import Clock, Recipient

LIFETIME: Final = dt.timedelta(minutes=5)
_LONGEST: Final = 2000


class FileLink(msgspec.Struct, frozen=True):
    """What a link says: the file ``digest`` of a customer's table, until ``expires``, for a holder of ``token``."""

    customer: str
    table: str
    digest: str
    token: str
    expires: dt.datetime


class Links:
    """Make and check links, with a key that lives as long as this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)

    def make(self, to: Recipient, table: str, digest: str) -> tuple[str, dt.datetime]:
        """Return the text of a link, and when it ends."""
        expires = self._clock() + LIFETIME
        said = msgspec.json.encode(FileLink(to.customer, table, digest, to.token, expires))
        return f"{_text(said)}.{_text(self._sign(said))}", expires

    def read(self, text: str) -> FileLink | None:
        """Return what a link says; None when it was not made here, was changed, or has ended."""
        said, _, signature = text.partition(".")
        try:
            content, signed = _bytes(said), _bytes(signature)
        except (binascii.Error, ValueError):
            return None
        if len(text) > _LONGEST or not hmac.compare_digest(signed, self._sign(content)):
            return None
        link = msgspec.json.decode(content, type=FileLink)
        return link if link.expires > self._clock() else None

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, hashlib.sha256)


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    """Decode strictly: one content has one text."""
    found = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _text(found) != text:
        raise ValueError(text)
    return found
