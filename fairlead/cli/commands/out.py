"""Option ``--out``: the error for a file or folder that cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from fairlead.errors import UnavailableError
from fairlead.home import private_folder


@contextlib.contextmanager
def writing(where: Path, what: Literal["file", "folder"]) -> Iterator[None]:
    """Turn an OSError while writing into an error that names the option."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{where} cannot be written: {error.strerror or error}", hint=f"name another {what} with --out"
        ) from error


def require_writable(file: Path) -> None:
    """Check that a file can be written, before anything else is done. Creates missing folders above it.

    Raises:
        UnavailableError: it is a folder, or its folder cannot be created or written.
    """
    with writing(file, "file"):
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.TemporaryFile(dir=private_folder(file.parent)):
            pass
