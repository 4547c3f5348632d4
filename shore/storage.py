"""Small files beside tables (checkpoints, the lock, notes of losses), on this machine or on an object storage.

A storage URL is opened by delta-rs, as the tables are: what it needs to log in (``AWS_ENDPOINT_URL``, ``AWS_REGION``,
...) is set once for both. An object storage has no folders: a folder is there while a file below it is, and to move one
is to copy its files and to delete them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler

from fairlead.errors import UnavailableError

_BUFFER = 1 << 16
_CHECK_URL = (
    "is it up, and is what delta-rs reads from the environment set (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "AWS_REGION, AWS_ENDPOINT_URL, ...)?"
)


class Storage:
    """The files below one location. Paths are relative to it, with ``/``.

    All methods raise ``UnavailableError`` where the storage does not answer or refuses.
    """

    def __init__(self, location: str) -> None:
        """Args: location: A path, or a URL that delta-rs knows."""
        self.location = location.rstrip("/")
        self.is_url = "://" in location
        self._root = "" if self.is_url else f"{self.location}/"
        with self._told():
            self._files = _opened(self.location) if self.is_url else pafs.LocalFileSystem()

    def read(self, path: str) -> bytes:
        """The content of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        with self._told(), self._files.open_input_stream(self._root + path) as stream:
            return bytes(stream.read())

    def write(self, path: str, content: bytes) -> None:
        """Make or replace a file."""
        with self._told():
            if not self.is_url:
                self._files.create_dir((self._root + path).rpartition("/")[0], recursive=True)
            # delta-rs takes only bytes, and pyarrow gives it bytes only of what has been in a buffer of its own.
            with self._files.open_output_stream(self._root + path, buffer_size=_BUFFER) as stream:
                for begin in range(0, len(content), _BUFFER // 2):
                    stream.write(content[begin : begin + _BUFFER // 2])

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted: files and folders; nothing when it is not there."""
        return sorted({path.removeprefix(f"{folder}/").partition("/")[0] for path in self._below(folder)})

    def files(self, folder: str) -> list[str]:
        """The paths of all files in a folder and below it, sorted."""
        return self._below(folder)

    def move(self, folder: str, target: str) -> bool:
        """Rename a folder; False when there was none. Broken off on an object storage, the old one is still whole, or
        the new one is."""
        with self._told():
            if not self.is_url:
                if self._files.get_file_info(self._root + folder).type is pafs.FileType.NotFound:
                    return False
                self._files.move(self._root + folder, self._root + target)
                return True
            found = self._below(folder)
            for path in found:
                self.write(target + path.removeprefix(folder), self.read(path))  # delta-rs's own copy does not work
            if found:
                self._files.delete_dir(folder)
            return bool(found)

    def delete(self, folder: str) -> None:
        """Delete a folder, if it is there."""
        with self._told():
            if self._below(folder):
                self._files.delete_dir(self._root + folder)

    def _below(self, folder: str) -> list[str]:
        with self._told():
            found = self._files.get_file_info(
                pafs.FileSelector(self._root + folder, allow_not_found=True, recursive=True)
            )
            return sorted(info.path.removeprefix(self._root) for info in found if info.type is pafs.FileType.File)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, UnavailableError):
            raise
        except (OSError, DeltaError, pa.ArrowException) as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise UnavailableError(
                f"the storage {self.location} does not answer, or refuses: {why}",
                hint=_CHECK_URL if self.is_url else "look at the disk, and whether the folder may be written",
                location=self.location,
            ) from error


def _opened(url: str) -> pafs.FileSystem:
    if url.startswith("file://"):  # delta-rs opens only folders that are there
        Path(unquote(urlsplit(url).path)).mkdir(parents=True, exist_ok=True)
    return pafs.PyFileSystem(DeltaStorageHandler(url))
