"""Waiting for a child process to serve: ends when it does, when it dies, when it takes too long, or on Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil

from fairlead.errors import UnavailableError

_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PAUSE = 0.02  # seconds; a look costs less than a millisecond


class Cancelled(Exception):
    """The caller gave up waiting (Ctrl-C); never shown."""


@contextlib.contextmanager
def interruptible(cancel: threading.Event) -> Iterator[None]:
    """Within, Ctrl-C, SIGTERM and a closed terminal set ``cancel`` instead of raising at some unlucky moment.

    So cleaning up cannot be cut short, however often the keys are pressed. On leaving, ``KeyboardInterrupt`` is raised
    if one came. In threads other than the main one, which get no signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(_number: int, _frame: FrameType | None) -> None:
        cancel.set()

    before = {number: signal.signal(number, note) for number in _INTERRUPTIONS}
    try:
        yield
    except Cancelled:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if cancel.is_set():
        raise KeyboardInterrupt


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait for one process.

    Args:
        what: The program in words (``Kafka``).
        folder: Where its logs are.
        end: When to give up, on ``time.monotonic()``'s clock.
        last_words: Reads the end of its log.
    """

    process: psutil.Process
    what: str
    site: str
    folder: Path
    end: float
    last_words: Callable[[], str]
    cancel: threading.Event = field(default_factory=threading.Event)

    def pause(self) -> None:
        """Wait a moment before looking again.

        Raises:
            UnavailableError: there is nothing to wait for any more; says what the program's log ends with.
            Cancelled: the caller gave up.
        """
        if self.cancel.wait(_PAUSE):
            raise Cancelled
        if not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE:
            raise self._failed("ended while starting", f"its logs are in {self.folder}")
        if time.monotonic() > self.end:
            again = f"fairlead down {self.site}, then fairlead up {self.site}; its logs are in {self.folder}"
            raise self._failed(f"runs (pid {self.process.pid}) but does not answer", again)

    def refused(self, user: str | None, why: str) -> UnavailableError:
        """The error for a login that was answered, with no."""
        return UnavailableError(
            f"{self.site}'s {self.what} refused the user {user}: {why}",
            hint=f"restore secrets.json beside the site's data, or forget it all: fairlead down {self.site} --purge",
            site=self.site,
            user=user,
        )

    def _failed(self, how: str, hint: str) -> UnavailableError:
        words = self.last_words() or "it wrote nothing"
        return UnavailableError(
            f"{self.site}'s {self.what} {how}: {words}", hint=hint, site=self.site, folder=str(self.folder)
        )
