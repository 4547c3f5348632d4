"""One writer of a topology's tables at a time: ``shore run``, and the commands that repair what it has written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from shore.errors import AlreadyRunningError


@contextlib.contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the state folder's lock; it ends with the process, however that ends.

    Raises:
        AlreadyRunningError: another process holds it.
    """
    (folder / "run").mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "run" / "shore.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise AlreadyRunningError(
            f"another 'fairlead shore run' is at work in {folder}",
            hint="wait until it is done, or stop it; 'fairlead shore status' shows what it does",
        ) from None
    try:
        yield
    finally:
        lock.release()
