"""Small files beside tables (checkpoints, the lock, notes of losses), on this machine or on an object storage.

A storage URL is opened by delta-rs, as the tables are. An object storage has no folders: a folder is there while a file
below it is, and to move one is to copy its files and to delete them.

**S3 is configured once**, in the environment (``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``) or, all but the keys, by Hadoop's settings in ``shore.settings``
(``spark.hadoop.fs.s3a.endpoint``, ...). ``open_paths`` gives delta-rs what only Hadoop's settings say, and
``spark_settings`` gives Spark's driver and executors what only the environment says. A setting that both have is left
alone on both sides.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from fairlead.errors import UnavailableError
from shore.paths import TablePaths

if TYPE_CHECKING:  # Spark's Python workers, which note losses, start twice as fast without
    from topologies.model import Shore

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

    def _is_of_delta(self, error: Exception) -> bool:
        if not self.is_url:
            return False
        from deltalake.exceptions import DeltaError  # as above

        return isinstance(error, DeltaError)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, UnavailableError):
            raise
        except Exception as error:
            if not isinstance(error, (OSError, pa.ArrowException)) and not self._is_of_delta(error):
                raise
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise UnavailableError(
                f"the storage {self.location} does not answer, or refuses: {why}",
                hint=_CHECK_URL if self.is_url else "look at the disk, and whether the folder may be written",
                location=self.location,
            ) from error


def _opened(url: str) -> pafs.FileSystem:
    if url.startswith("file://"):  # delta-rs opens only folders that are there
        Path(unquote(urlsplit(url).path)).mkdir(parents=True, exist_ok=True)
    from deltalake.fs import DeltaStorageHandler  # as above

    return pafs.PyFileSystem(DeltaStorageHandler(url))


_S3A: Final = "spark.hadoop.fs.s3a."
_SAME: Final = {
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_REGION": "endpoint.region",
    "AWS_ACCESS_KEY_ID": "access.key",
    "AWS_SECRET_ACCESS_KEY": "secret.key",
    "AWS_SESSION_TOKEN": "session.token",
}
"""Variables that delta-rs reads, and Hadoop's setting of the same meaning."""
_TEMPORARY: Final = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"


def open_paths(shore: Shore | None, folder: Path, environment: MutableMapping[str, str] = os.environ) -> TablePaths:
    """Where a topology's tables are, for readers of this process: the environment gets what ``shore.settings`` say
    about S3 and it does not.

    Args:
        folder: The topology's state folder, where tables are when ``shore.tables`` names no other place.
    """
    paths = TablePaths.of(folder, shore.tables if shore is not None else None)
    if shore is not None and is_s3(paths):
        for name, value in reader_environment(shore.settings, environment).items():
            environment.setdefault(name, value)
    return paths


def is_s3(paths: TablePaths) -> bool:
    """Whether the tables are on S3 or a storage that speaks its protocol."""
    return paths.base.startswith(("s3a://", "s3://"))


def reader_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which delta-rs finds what Hadoop's settings, or the environment itself, say about S3."""
    found = {name: settings[_S3A + own] for name, own in _SAME.items() if _S3A + own in settings}
    endpoint = environment.get("AWS_ENDPOINT_URL") or found.get("AWS_ENDPOINT_URL", "")
    if endpoint and "://" not in endpoint:
        plain = settings.get(f"{_S3A}connection.ssl.enabled", "true").lower() == "false"
        endpoint = f"{'http' if plain else 'https'}://{endpoint}"
        found["AWS_ENDPOINT_URL"] = endpoint
    if endpoint.startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    return found


def spark_settings(paths: TablePaths, master: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings by which Spark reaches tables on S3 as the environment says; none for tables elsewhere.

    Executors get the variables, too: their Python notes lost records beside the tables.
    """
    if not is_s3(paths):
        return {}
    known = {"AWS_REGION": environment.get("AWS_DEFAULT_REGION", "")} | dict(environment)
    known = {name: known[name] for name in (*_SAME, "AWS_ALLOW_HTTP") if known.get(name)}
    known |= {name: value for name, value in reader_environment({}, known).items() if name not in known}
    found = {_S3A + own: known[name] for name, own in _SAME.items() if name in known}
    found["spark.hadoop.fs.s3.impl"] = "org.apache.hadoop.fs.s3a.S3AFileSystem"
    if "AWS_ENDPOINT_URL" in known:  # a server of one's own has no name for each bucket
        found[f"{_S3A}path.style.access"] = "true"
    if "AWS_SESSION_TOKEN" in known:
        found[f"{_S3A}aws.credentials.provider"] = _TEMPORARY
    if not master.startswith("local"):
        found |= {f"spark.executorEnv.{name}": value for name, value in known.items()}
    return found
