"""Keep the progress of an audit of two sites in a file, so that it can continue after an interruption.

The file has, for each log, the offset below which both copies are equal, and the topic's ids at both sites, because a
topic that was deleted and created again is another log. The mark of a log that differs stays below the difference, so
the next audit finds it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from fairlead.errors import ConfigurationError
from fairlead.local.files import write_file
from replication.audit.ranges import Common

FORMAT: Final = 1
EVERY: Final = 2.0  # seconds between two writes


class AuditMark(msgspec.Struct, frozen=True, array_like=True):
    """The mark of one log: all below ``to`` is equal. ``ids`` are the topic's ids, in the order of ``File.sites``."""

    to: int
    ids: tuple[str, str]


class File(msgspec.Struct, forbid_unknown_fields=True):
    """The file's content. ``sites`` are sorted, so the order of the arguments does not matter."""

    format: int
    mode: str
    sites: tuple[str, str]
    logs: dict[str, AuditMark]


class Marks:
    """Marks of one pair of sites in one mode.

    Args:
        path: The file; with None nothing is kept.
        clock: Returns monotonic seconds.
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._logs: dict[str, AuditMark] = {}
        self._mode = ""
        self._sites = ("", "")
        self._swap = False
        self._saved = clock()

    def load(self, mode: str, a: str, b: str, *, resume: bool) -> None:
        """Start with the file's marks, or without any.

        Raises:
            ConfigurationError: the file is not a file of marks, or belongs to other sites or another mode.
        """
        self._mode, self._sites, self._swap = mode, (min(a, b), max(a, b)), a > b
        self._logs = self._read() if resume and self._path and self._path.exists() else {}

    def resumed(self, log: Common) -> Common:
        """Return the part of a log that is not compared yet; it may be empty."""
        mark = self._logs.get(str(log.tp))
        if mark is None or mark.ids != self._ids(log) or not log.start < mark.to <= log.stop:
            return log
        return log._replace(start=mark.to)

    def mark_equal(self, log: Common, to: int) -> None:
        """Record that the log is equal below ``to``; saves from time to time."""
        self._logs[str(log.tp)] = AuditMark(to, self._ids(log))
        if self._clock() - self._saved >= EVERY:
            self.save()

    def save(self) -> None:
        """Write the file atomically.

        Raises:
            UnavailableError: the disk is full. RefusedError: the file may not be written.
        """
        self._saved = self._clock()
        if self._path is not None:
            write_file(self._path, msgspec.json.encode(File(FORMAT, self._mode, self._sites, self._logs)))

    def _ids(self, log: Common) -> tuple[str, str]:
        return (log.ids[1], log.ids[0]) if self._swap else log.ids

    def _read(self) -> dict[str, AuditMark]:
        assert self._path is not None  # noqa: S101 - asked before
        try:
            file = msgspec.json.decode(self._path.read_bytes(), type=File)
        except (OSError, msgspec.DecodeError) as error:
            raise self._unfit(str(error)) from error
        if (file.format, file.mode, file.sites) != (FORMAT, self._mode, self._sites):
            raise self._unfit(f"it is of a {file.mode} audit of {' and '.join(file.sites)}, format {file.format}")
        return file.logs

    def _unfit(self, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"the audit cannot continue from {self._path}: {why}",
            hint="start over without --resume",
            path=str(self._path),
        )


def mark_file(folder: Path, mode: str, a: str, b: str) -> Path:
    """Return the path of the marks of two sites below a topology's folder."""
    return folder / "run" / f"audit.{mode}.{min(a, b)}.{max(a, b)}.json"
