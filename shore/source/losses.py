"""Notes of lost records: gone from a log before shore read them. Notes stay beside the tables until acknowledged.

With ``failOnDataLoss``, a job notes a loss and stops with ``DataLossError``. It goes on when the loss is acknowledged:
it skips a hole that begins at an acknowledged offset, even if retention has made the hole longer since.

A note is a small file, ``losses/<job>/<log>@<first>-<last>.json``, beside ``delta`` and ``checkpoints``. Its name says
what is lost, so a repeated batch notes nothing twice. Tasks and the driver each note what they find. An acknowledged
note moves to ``losses.acknowledged``. No note is deleted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
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
    """Offsets of a log, ``first`` to ``last`` inclusive, that one job can never read, and why in words."""

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
    """All that one job lost of one log: how many offsets, the first of them, and the reason of the newest loss."""

    job: str
    log: str
    records: int
    first: int
    why: str
    found_at: dt.datetime


def losses_folder(paths: TablePaths, job: str) -> str:
    """Return the folder of a job's notes."""
    return f"{paths.base}/{_LOSSES}/{job}"


def note_losses(folder: str, losses: Iterable[Loss]) -> None:
    """Write notes of losses, except of those that are noted or acknowledged already.

    Raises:
        UnavailableError: the storage does not answer; the caller must not go on without a note.
    """
    base, _, job = folder.rstrip("/").rpartition("/")
    files = Storage(base.removesuffix(f"/{_LOSSES}"))
    known = {name for kept in (_LOSSES, _ACKNOWLEDGED) for name in files.names(f"{kept}/{job}")}
    for loss in losses:
        if loss.name not in known:
            files.write(f"{_LOSSES}/{job}/{loss.name}", msgspec.json.encode(msgspec.structs.replace(loss, job=job)))


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The acknowledged losses of one job: inclusive ranges of offsets, by log."""

    ranges: Mapping[str, Sequence[tuple[int, int]]]

    @classmethod
    def read(cls, folder: str) -> Acknowledged:
        """Read the acknowledged notes in ``folder``, the ``losses_folder`` of a job.

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
        """Return the part of a loss that is not acknowledged; None where all of it is."""
        first = loss.first
        for begin, end in sorted(self.ranges.get(loss.log, ())):
            if begin <= first <= end:
                first = end + 1
        return msgspec.structs.replace(loss, first=first) if first <= loss.last else None

    def lets_pass(self, loss: Loss) -> bool:
        """Return whether the job may skip a loss: the loss begins at an acknowledged offset."""
        return any(begin <= loss.first <= end for begin, end in self.ranges.get(loss.log, ()))


def settle_losses(folder: str, losses: Sequence[Loss], *, fail: bool) -> None:
    """Note a job's losses as far as they are new.

    Args:
        folder: ``losses_folder`` of the job.
        fail: Whether the job must stop at losses that nobody has acknowledged.

    Raises:
        DataLossError: there is such a loss, and ``fail`` is set. The loss is noted first.
        UnavailableError: the storage does not answer; the caller must not go on without a note.
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
    """Return the losses that nobody has acknowledged, summed up by job and log.

    Raises:
        UnavailableError: the storage does not answer.
    """
    files = Storage(paths.base)
    return _by_log(files.read(path) for path in files.files(_LOSSES))


def acknowledge_losses(paths: TablePaths) -> tuple[LostLog, ...]:
    """Move all notes to ``losses.acknowledged``, but for those that jobs write meanwhile. Return the losses that they
    describe."""
    files = Storage(paths.base)
    notes = {path: files.read(path) for path in files.files(_LOSSES)}
    for path, note in notes.items():
        files.write(_ACKNOWLEDGED + path.removeprefix(_LOSSES), note)
        files.remove(path)
    return _by_log(notes.values())


def describe_loss(lost: LostLog) -> str:
    """Return a sentence about a loss."""
    count = "a record" if lost.records == 1 else f"{lost.records:,} records"
    return f"{lost.job} has lost {count} of {lost.log}, from offset {lost.first:,} on: {lost.why}"


def _by_log(notes: Iterable[bytes]) -> tuple[LostLog, ...]:
    """Return the losses that notes describe, summed up by job and log."""
    found: dict[tuple[str, str], list[Loss]] = {}
    for note in notes:
        loss = msgspec.json.decode(note, type=Loss)
        found.setdefault((loss.job, loss.log), []).append(loss)
    return tuple(_summed(found[key]) for key in sorted(found))


def _summed(losses: list[Loss]) -> LostLog:
    """Sum up losses of one log. They may overlap: driver and tasks may have found the same records, or a part."""
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
