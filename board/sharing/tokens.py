"""Customers' bearer tokens. The file has their SHA-256 only: who reads it cannot ask for anything.

A customer's new token ends its older ones, at once or after a while in which both are good. The file is read with each
question, so a revoked token is refused by the next one.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from filelock import FileLock

from board.security import digest_of
from fairlead.errors import ConfigurationError
from fairlead.home import private_folder
from fairlead.local.files import write_file

Clock: TypeAlias = Callable[[], dt.datetime]

LIFETIME: Final = dt.timedelta(days=90)
_LONGEST: Final = 200  # characters of what is looked up; a token has 43


def utc_now() -> dt.datetime:
    """Return the time now."""
    return dt.datetime.now(dt.UTC)


class _Stored(msgspec.Struct, frozen=True):
    digest: str
    customer: str
    expires: dt.datetime


@dataclass(frozen=True, slots=True)
class Recipient:
    """Who asks: a customer, with the digest of the token it has shown."""

    customer: str
    token: str


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token. It is shown once and not kept."""

    token: str
    expires: dt.datetime


class Tokens:
    """The tokens of one topology, in ``sharing/tokens.json`` of its state folder (mode 0600)."""

    def __init__(self, folder: Path, clock: Clock = utc_now) -> None:
        self._file = folder / "sharing" / "tokens.json"
        self._clock = clock

    def issue(
        self, customer: str, *, lifetime: dt.timedelta = LIFETIME, overlap: dt.timedelta = dt.timedelta(0)
    ) -> IssuedToken:
        """Make a customer's next token. Its older ones end after ``overlap``, or before if that is their time."""
        now = self._clock()
        issued = IssuedToken(secrets.token_urlsafe(32), now + lifetime)
        with self._locked():
            kept = [
                each
                if each.customer != customer
                else msgspec.structs.replace(each, expires=min(each.expires, now + overlap))
                for each in self._read()
            ]
            new = _Stored(digest_of(issued.token), customer, issued.expires)
            self._write([*(each for each in kept if each.expires > now), new])
        return issued

    def revoke(self, customer: str) -> int:
        """End all tokens of a customer now. Return how many were good until now."""
        now = self._clock()
        with self._locked():
            known = self._read()
            self._write([each for each in known if each.customer != customer and each.expires > now])
        return sum(each.customer == customer and each.expires > now for each in known)

    def known(self, customer: str) -> tuple[dt.datetime, ...]:
        """Return when the customer's tokens that are good end, the next one first."""
        now = self._clock()
        return tuple(sorted(each.expires for each in self._read() if each.customer == customer and each.expires > now))

    def recipient(self, token: str) -> Recipient | None:
        """Return whose token this is; None when it is nobody's, or no longer good."""
        return self.holder(digest_of(token)) if len(token) <= _LONGEST else None

    def holder(self, digest: str) -> Recipient | None:
        """Return whose token has this digest; None when it is nobody's, or no longer good."""
        good = (each for each in self._read() if each.digest == digest and each.expires > self._clock())
        return next((Recipient(each.customer, each.digest) for each in good), None)

    def _locked(self) -> FileLock:
        private_folder(self._file.parent)
        return FileLock(self._file.with_name(".tokens.lock"), mode=0o600)

    def _read(self) -> list[_Stored]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[_Stored])
        except FileNotFoundError:
            return []
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigurationError(
                f"{self._file} is damaged", hint="remove it, and give each customer a new profile file"
            ) from None

    def _write(self, tokens: list[_Stored]) -> None:
        write_file(self._file, msgspec.json.encode(tokens))
