"""Who has signed in: sessions in this process's memory. They end after an hour without a request, after 12 hours, and
when the name's Kafka password is changed or removed.

A browser keeps a random token in a cookie; here is only its SHA-256. When the board ends, all sessions end.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from board.security import digest_of
from fairlead.kafka.credentials import PasswordVersion

IDLE: Final = 3600.0  # seconds
LONGEST: Final = 12 * 3600.0
LINK_LASTS: Final = 600.0
"""Seconds for which a link that nobody has used signs in."""
CHANGED_FOR: Final = 30.0
"""Seconds for which brokers must report another password before sessions end. A broker that has just started, or lags
behind its controller, reports what was before."""
_MOST: Final = 20_000


@dataclass(slots=True)
class Session:
    """One sign-in. ``csrf`` is the token that every form of its pages carries; times are ``clock`` seconds.

    Args:
        password: The version of the name's Kafka password at the sign-in, or when a broker first answered after it.
        changed_since: When a broker began to report another version.
    """

    name: str
    csrf: str
    began: float
    used: float
    password: PasswordVersion | None = None
    changed_since: float | None = None


class Sessions:
    """All sessions of this process.

    Args:
        clock: Seconds that only rise.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._once: dict[str, tuple[str, float]] = {}

    def open(self, name: str, password: PasswordVersion | None = None) -> tuple[str, Session]:
        """Begin a session; return the token for its cookie."""
        self._forget_ended()
        if len(self._open) >= _MOST:
            del self._open[min(self._open, key=lambda key: self._open[key].used)]
        token, now = secrets.token_urlsafe(32), self._clock()
        session = self._open[digest_of(token)] = Session(name, secrets.token_urlsafe(32), now, now, password)
        return token, session

    def find(self, token: str) -> Session | None:
        """Return the session of a token, and count this as a request; None if there is none, or it has ended."""
        session = self._open.get(digest_of(token))
        if session is None or self._has_ended(session):
            self._open.pop(digest_of(token), None)
            return None
        session.used = self._clock()
        return session

    def is_open(self, token: str) -> bool:
        """Return whether a token's session goes on, without counting this as a request."""
        session = self._open.get(digest_of(token))
        return session is not None and not self._has_ended(session)

    def number(self) -> int:
        """Return how many are open."""
        return sum(not self._has_ended(session) for session in self._open.values())

    def close(self, token: str) -> None:
        """End a session; its token is worth nothing from now on."""
        self._open.pop(digest_of(token), None)

    def names_and_sites(self) -> set[tuple[str, str | None]]:
        """Return the names of open sessions, each with the site whose password counts; None if that is not known."""
        return {
            (session.name, None if session.password is None else session.password.site)
            for session in self._open.values()
            if not self._has_ended(session)
        }

    def end_outdated(self, name: str, password: PasswordVersion) -> int:
        """End the sessions of a name that began with another password of that site; return how many.

        A session without a password version takes this one. The others end when this has been called with another
        version for ``CHANGED_FOR`` seconds.
        """
        now, ended = self._clock(), []
        for key, session in self._open.items():
            if session.name != name or (session.password is not None and session.password.site != password.site):
                continue
            if session.password is None and password.salt is not None:
                session.password = password
            if session.password == password:
                session.changed_since = None
            elif session.changed_since is None:
                session.changed_since = now
            elif now - session.changed_since >= CHANGED_FOR:
                ended.append(key)
        for key in ended:
            del self._open[key]
        return len(ended)

    def link_for(self, name: str) -> str:
        """Return a token that signs ``name`` in once, within ``LINK_LASTS`` (``redeem``)."""
        token = secrets.token_urlsafe(32)
        self._once[digest_of(token)] = name, self._clock()
        return token

    def redeem(self, token: str) -> str | None:
        """Return the name that a token of ``link_for`` signs in, at its first use; None for every other token."""
        name, made = self._once.pop(digest_of(token), (None, 0.0))
        return name if self._clock() - made <= LINK_LASTS else None

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used > IDLE or now - session.began > LONGEST

    def _forget_ended(self) -> None:
        for key in [key for key, session in self._open.items() if self._has_ended(session)]:
            del self._open[key]
