"""Write small files atomically, with their mode; explain a full disk; read the last lines of log files."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from fairlead.errors import RefusedError, UnavailableError
from fairlead.home import private_folder

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def write_file(path: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Replace a file atomically: readers see the old or the new content, even after a crash.

    Raises:
        UnavailableError: the disk or the quota is full; the old content is still there.
        RefusedError: this user may not write there.
    """
    data = content.encode() if isinstance(content, str) else content
    new = path.with_name(f".{path.name}.new")
    with explained(path):
        private_folder(path.parent)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)  # a file left by a crash would keep its old mode
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn a full disk into ``UnavailableError`` and missing rights into ``RefusedError``, with a hint."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise no_room(path) from error
        if error.errno in _NOT_ALLOWED:
            raise RefusedError(
                f"{path} cannot be written: {error.strerror}",
                hint="change the folder's permissions, or set FAIRLEAD_HOME to another folder",
                path=str(path),
            ) from error
        raise


def require_room(folder: Path, needed: int) -> None:
    """Check that a file system has enough free space.

    Args:
        folder: The folder that needs the space; it need not exist yet.
        needed: Bytes.

    Raises:
        UnavailableError: there is less space, or no inode is left.
    """
    existing = nearest_existing(folder)
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise no_room(folder, free=free, needed=needed)
    entries = os.statvfs(existing)
    if entries.f_files and entries.f_favail < 1000:  # file systems without a fixed number of inodes report 0 of 0
        raise no_room(folder, free=free)


def nearest_existing(folder: Path) -> Path:
    """Return the folder itself if it exists, else its nearest existing parent."""
    while not folder.exists():
        folder = folder.parent
    return folder


def no_room(path: Path, *, free: int | None = None, needed: int | None = None) -> UnavailableError:
    """Return the error for a disk without enough space or inodes."""
    if free is not None and needed is not None:
        what = f"the disk under {path} has {free >> 20} MB free and {needed >> 20} MB are needed"
    elif free is not None:
        what = f"the file system under {path} has no file entries (inodes) left"
    else:
        what = f"the disk or the quota under {path} is full"
    return UnavailableError(
        what,
        hint="make room, or set FAIRLEAD_HOME to a folder on another disk; 'fairlead down --purge' frees a "
        "topology's data",
        path=str(path),
        free_bytes=free,
        needed_bytes=needed,
    )


def tail(path: Path, lines: int = 5, *, containing: tuple[str, ...] = ()) -> str:
    """Return the last lines of a log file, if any have a word of ``containing`` only those; "" if it cannot be read."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 65536))
            text = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    chosen = [line for line in text if any(word in line for word in containing)] or text
    return "\n".join(line[:300] for line in chosen[-lines:])
