"""Records that were gone from a log before shore read them: noted where the tables are, until somebody acknowledges it.

A note is a small file, ``losses/<job>/<log>@<first>-<last>.json`` beside ``delta`` and ``checkpoints``. Its name says
what is lost, so that a batch that is repeated notes nothing twice; tasks and the driver note what each of them finds.
An acknowledged note moves to ``losses.acknowledged``. Nothing is deleted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

import msgspec

from shore.paths import TablePaths
from shore.storage import Storage

_LOSSES: Final = "losses"
_ACKNOWLEDGED: Final = "losses.acknowledged"


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of a log, ``first`` to ``last``, that one job can never read, and in words why."""

    log: str
    first: int
    last: int
    why: str
    found_at: dt.datetime
    job: str = ""

    @property
    def name(self) -> str:
        """The note's file name."""
        return f"{quote(self.log, safe='')}@{self.first}-{self.last}.json"


class LostLog(msgspec.Struct, frozen=True, kw_only=True):
    """What one job lost of one log: how many offsets, where they begin, and why the newest of them is gone."""

    job: str
    log: str
    records: int
    first: int
    why: str
    found_at: dt.datetime


def losses_folder(paths: TablePaths, job: str) -> str:
    """Where a job's losses are noted."""
    return f"{paths.base}/{_LOSSES}/{job}"


def note_losses(folder: str, losses: Iterable[Loss]) -> None:
    """Note losses; those that are noted already, or were acknowledged, are left alone.

    Raises:
        UnavailableError: the storage does not answer; nothing may go on without a note.
    """
    base, _, job = folder.rstrip("/").rpartition("/")
    files = Storage(base.removesuffix(f"/{_LOSSES}"))
    known = {name for kept in (_LOSSES, _ACKNOWLEDGED) for name in files.names(f"{kept}/{job}")}
    for loss in losses:
        if loss.name not in known:
            files.write(f"{_LOSSES}/{job}/{loss.name}", msgspec.json.encode(msgspec.structs.replace(loss, job=job)))


def read_losses(paths: TablePaths) -> tuple[LostLog, ...]:
    """What was lost and nobody has acknowledged, by job and log.

    Raises:
        UnavailableError: the storage does not answer.
    """
    found: dict[tuple[str, str], list[Loss]] = {}
    for loss in _notes(Storage(paths.base)):
        found.setdefault((loss.job, loss.log), []).append(loss)
    return tuple(_summed(found[key]) for key in sorted(found))


def acknowledge_losses(paths: TablePaths) -> tuple[LostLog, ...]:
    """Move all notes to ``losses.acknowledged``; gives what they were about."""
    found = read_losses(paths)
    files = Storage(paths.base)
    for path in files.files(_LOSSES):
        files.write(_ACKNOWLEDGED + path.removeprefix(_LOSSES), files.read(path))
    files.delete(_LOSSES)
    return found


def describe_loss(lost: LostLog) -> str:
    """One sentence."""
    count = "a record" if lost.records == 1 else f"{lost.records:,} records"
    return f"{lost.job} has lost {count} of {lost.log}, from offset {lost.first:,} on: {lost.why}"


def _notes(files: Storage) -> Iterator[Loss]:
    for path in files.files(_LOSSES):
        yield msgspec.json.decode(files.read(path), type=Loss)


def _summed(losses: list[Loss]) -> LostLog:
    """Losses of one log may overlap: the driver and a task may have found the same, or a part of it."""
    losses = sorted(losses, key=lambda each: (each.first, each.found_at))
    records, end = 0, -1
    for each in losses:
        if each.last > end:
            records += each.last - max(end, each.first - 1)
            end = each.last
    newest = max(losses, key=lambda each: each.found_at)
    return LostLog(
        job=newest.job,
        log=newest.log,
        records=records,
        first=losses[0].first,
        why=newest.why,
        found_at=newest.found_at,
    )
