"""One writer of a topology's tables at a time: ``shore run``, and the commands that repair what it has written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from fairlead.home import private_folder
from shore.errors import AlreadyRunningError
from shore.lease import Lease, leased
from shore.places import Places


@contextlib.contextmanager
def only_one(folder: Path, places: Places) -> Iterator[Lease | None]:
    """Hold the state folder's lock; it ends with the process, however that ends. Where the tables are on a storage that
    other machines reach, too (a URL), hold the lease there as well.

    Raises:
        AlreadyRunningError: another process holds one of them.
        UnavailableError: the storage does not answer.
    """
    lock = FileLock(private_folder(folder / "run") / "shore.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise AlreadyRunningError(
            f"another 'fairlead shore run' is at work in {folder}",
            hint="wait until it is done, or stop it; 'fairlead shore status' shows what it does",
        ) from None
    try:
        if places.is_local:
            yield None
        else:
            with leased(places.base, str(folder.resolve())) as lease:
                yield lease
    finally:
        lock.release()
