"""Records that were gone from a log before shore read them: noted where the tables are, until somebody acknowledges it.

With ``failOnDataLoss`` a job notes a loss, and stops with ``DataLossError``. It goes on when the loss is acknowledged:
behind a hole that begins at an acknowledged offset, also where retention has made the hole longer since.

A note is a small file, ``losses/<job>/<log>@<first>-<last>.json`` beside ``delta`` and ``checkpoints``. Its name says
what is lost, so that a batch that is repeated notes nothing twice; tasks and the driver note what each of them finds.
An acknowledged note moves to ``losses.acknowledged``. Nothing is deleted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from shore.errors import DataLossError
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


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The losses of one job that somebody acknowledged: inclusive ranges of offsets, by log."""

    ranges: Mapping[str, Sequence[tuple[int, int]]]

    @classmethod
    def read(cls, folder: str) -> Acknowledged:
        """Args: folder: ``losses_folder`` of the job.

        Raises:
            UnavailableError: the storage does not answer.
        """
        base, _, job = folder.rstrip("/").rpartition("/")
        found: dict[str, list[tuple[int, int]]] = {}
        for name in Storage(base.removesuffix(f"/{_LOSSES}")).names(f"{_ACKNOWLEDGED}/{job}"):
            log, _, offsets = name.removesuffix(".json").rpartition("@")
            first, _, last = offsets.partition("-")
            found.setdefault(unquote(log), []).append((int(first), int(last)))
        return cls(found)

    def rest(self, loss: Loss) -> Loss | None:
        """What of a loss is not acknowledged; None where all of it is."""
        first = loss.first
        for begin, end in sorted(self.ranges.get(loss.log, ())):
            if begin <= first <= end:
                first = end + 1
        return msgspec.structs.replace(loss, first=first) if first <= loss.last else None

    def lets_pass(self, loss: Loss) -> bool:
        """Whether the job may go on behind a loss: it begins at an acknowledged offset."""
        return any(begin <= loss.first <= end for begin, end in self.ranges.get(loss.log, ()))


def settle_losses(folder: str, losses: Sequence[Loss], *, fail: bool) -> None:
    """Note what is new of a job's losses.

    Args:
        folder: ``losses_folder`` of the job.
        fail: Whether the job must not go on behind losses that nobody has acknowledged.

    Raises:
        DataLossError: there is such a loss, and ``fail``. It is noted.
        UnavailableError: the storage does not answer; nothing may go on without a note.
    """
    if not losses:
        return
    known = Acknowledged.read(folder)
    note_losses(folder, [rest for each in losses if (rest := known.rest(each)) is not None])
    stopped_by = [each for each in losses if not known.lets_pass(each)]
    if fail and stopped_by:
        first, *more = stopped_by
        others = f", and {len(more)} more logs have lost some" if more else ""
        raise DataLossError(
            f"{first.log} has lost records {first.first} to {first.last} before this job read them{others}",
            hint=LOSS_HINT,
            log=first.log,
            first=first.first,
            last=first.last,
        )


LOSS_HINT: Final = (
    "'fairlead shore losses' lists all of them; another site may still have them ('fairlead audit'). To go on without "
    "them: 'fairlead shore losses --acknowledge'; a run that goes on continues by itself within a minute. To never "
    "stop for this: 'shore: {fail_on_data_loss: false}' in the topology"
)


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
