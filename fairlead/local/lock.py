"""One program at a time in a state folder: whoever starts, stops, or changes what its sites know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from fairlead.errors import UnavailableError
from fairlead.local.files import explained

PATIENCE: Final = 600.0  # seconds; a start of sites holds the lock


@contextmanager
def locked(folder: Path, on_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Alone at work in a state folder, across processes; made where it is missing.

    Args:
        on_waiting: Told when somebody else is at work there.

    Raises:
        UnavailableError: somebody else has been for ``PATIENCE`` seconds.
    """
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_waiting()
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout as error:
            raise UnavailableError(
                f"another fairlead up or down has been at work in {folder} for {PATIENCE:.0f} s",
                hint="look for it with ps, and end it",
            ) from error
    try:
        yield
    finally:
        lock.release()
