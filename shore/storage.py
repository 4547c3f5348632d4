"""Small files beside tables (checkpoints, the lock, notes of losses), on this machine or on an object storage.

delta-rs opens a storage URL, as it opens tables. An object storage has no folders: a folder exists while there is a
file below it, and moving a folder copies its files and deletes the old ones.

**S3 is configured once**, in the environment (``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``) or, except for the keys, by Hadoop's settings in ``shore.settings``
(``spark.hadoop.fs.s3a.endpoint``, ...). ``open_paths`` passes to delta-rs what only Hadoop's settings say.
``spark_settings`` passes to Spark's driver and executors what only the environment says. A setting that both have stays
as it is on both sides.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from fairlead.errors import UnavailableError, first_line
from shore.paths import TablePaths

if TYPE_CHECKING:  # Spark's Python workers, which note losses, start twice as fast without this import
    from topologies.model import Shore

_BUFFER = 1 << 16
_UNFINISHED: Final = ".unfinished"  # the end of a file's name while it is written
_CHECK_URL = (
    "is it up, and is what delta-rs reads from the environment set (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
    "AWS_REGION, AWS_ENDPOINT_URL, ...)?"
)


class Storage:
    """The files below one location. Paths are relative to it, with ``/``.

    All methods raise ``UnavailableError`` where the storage does not answer or refuses.
    """

    def __init__(self, location: str) -> None:
        """Open a location: a path, or a URL that delta-rs knows."""
        self.location = location.rstrip("/")
        self.is_url = "://" in location
        self._root = "" if self.is_url else f"{self.location}/"
        with self._told():
            self._files = _opened(self.location) if self.is_url else pafs.LocalFileSystem()

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: there is no such file.
        """
        with self._told(), self._files.open_input_stream(self._root + path) as stream:
            return bytes(stream.read())

    def write(self, path: str, content: bytes) -> None:
        """Create or replace a file. Readers see the old or the new content, even after a crash."""
        with self._told():
            if not self.is_url:
                _replace(Path(self._root + path), content)
                return
            # delta-rs accepts only bytes, and pyarrow passes bytes only for data that went through its own buffer.
            with self._files.open_output_stream(path, buffer_size=_BUFFER) as stream:
                for begin in range(0, len(content), _BUFFER // 2):
                    stream.write(content[begin : begin + _BUFFER // 2])

    def names(self, folder: str) -> list[str]:
        """Return the names of files and folders in a folder, sorted; empty when the folder does not exist."""
        return sorted({path.removeprefix(f"{folder}/").partition("/")[0] for path in self.files(folder)})

    def files(self, folder: str) -> list[str]:
        """Return the paths of all files in a folder and below it, sorted."""
        with self._told():
            found = self._files.get_file_info(
                pafs.FileSelector(self._root + folder, allow_not_found=True, recursive=True)
            )
            files = [info for info in found if info.type is pafs.FileType.File and not info.path.endswith(_UNFINISHED)]
            return sorted(info.path.removeprefix(self._root) for info in files)

    def move(self, folder: str, target: str) -> bool:
        """Rename a folder. Return False when there was none. If interrupted on an object storage, the old folder or the
        new one is complete."""
        with self._told():
            if not self.is_url:
                if self._files.get_file_info(self._root + folder).type is pafs.FileType.NotFound:
                    return False
                self._files.move(self._root + folder, self._root + target)
                return True
            found = self.files(folder)
            for path in found:
                self.write(target + path.removeprefix(folder), self.read(path))  # copying by delta-rs does not work
            if found:
                self._files.delete_dir(folder)
            return bool(found)

    def delete(self, folder: str) -> None:
        """Delete a folder if it exists."""
        with self._told():
            if self.files(folder):
                self._files.delete_dir(self._root + folder)

    def remove(self, path: str) -> None:
        """Delete a file."""
        with self._told():
            self._files.delete_file(self._root + path)

    def _is_of_delta(self, error: Exception) -> bool:
        if not self.is_url:
            return False
        from deltalake.exceptions import DeltaError  # workers start faster without, as above

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
            why = first_line(error)
            raise UnavailableError(
                f"the storage {self.location} does not answer, or refuses: {why}",
                hint=_CHECK_URL if self.is_url else "look at the disk, and whether the folder may be written",
                location=self.location,
            ) from error


def _replace(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{uuid.uuid4().hex}{_UNFINISHED}")  # tasks and machines may write side by side
    try:
        with new.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _opened(url: str) -> pafs.FileSystem:
    if url.startswith("file://"):  # delta-rs opens only folders that exist
        Path(unquote(urlsplit(url).path)).mkdir(parents=True, exist_ok=True)
    from deltalake.fs import DeltaStorageHandler  # workers start faster without, as above

    return pafs.PyFileSystem(DeltaStorageHandler(url))


_S3A: Final = "spark.hadoop.fs.s3a."
_SAME: Final = {
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_REGION": "endpoint.region",
    "AWS_ACCESS_KEY_ID": "access.key",
    "AWS_SECRET_ACCESS_KEY": "secret.key",
    "AWS_SESSION_TOKEN": "session.token",
}
"""Environment variables that delta-rs reads, and Hadoop's setting with the same meaning."""
_TEMPORARY: Final = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"


def open_paths(shore: Shore | None, folder: Path, environment: MutableMapping[str, str] = os.environ) -> TablePaths:
    """Return the locations of a topology's tables. Add to the environment what only ``shore.settings`` say about S3, so
    that delta-rs in this process can read them.

    Args:
        folder: The topology's state folder, where tables are when ``shore.tables`` names no other place.
    """
    paths = TablePaths.of(folder, shore.tables if shore is not None else None)
    if shore is not None and is_s3(paths):
        for name, value in reader_environment(shore.settings, environment).items():
            environment.setdefault(name, value)
    return paths


def is_s3(paths: TablePaths) -> bool:
    """Return whether the tables are on S3 or a storage with its protocol."""
    return paths.base.startswith(("s3a://", "s3://"))


def reader_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that tell delta-rs what Hadoop's settings, or the environment itself, say about S3."""
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
    """Return the settings by which Spark reaches tables on S3 as the environment says; empty for tables elsewhere.

    A cluster's executors get the variables, too, because their Python notes lost records beside the tables.
    """
    if not is_s3(paths):
        return {}
    known = {"AWS_REGION": environment.get("AWS_DEFAULT_REGION", "")} | dict(environment)
    known = {name: known[name] for name in (*_SAME, "AWS_ALLOW_HTTP") if known.get(name)}
    known |= {name: value for name, value in reader_environment({}, known).items() if name not in known}
    found = {_S3A + own: known[name] for name, own in _SAME.items() if name in known}
    found["spark.hadoop.fs.s3.impl"] = "org.apache.hadoop.fs.s3a.S3AFileSystem"
    if "AWS_ENDPOINT_URL" in known:  # a private server has no host name for each bucket
        found[f"{_S3A}path.style.access"] = "true"
    if "AWS_SESSION_TOKEN" in known:
        found[f"{_S3A}aws.credentials.provider"] = _TEMPORARY
    if not master.startswith("local"):
        found |= {f"spark.executorEnv.{name}": value for name, value in known.items()}
    return found
