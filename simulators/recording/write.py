"""Writing a recording, step by step, while a voyage is sailed or modelled."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import importlib.metadata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from fairlead.local.files import explained
from simulators.plan import Plan
from simulators.recording.form import End, Header, Line, line_of
from simulators.steps import Publish, Step
from simulators.voyage import Course
from topologies.values import format_duration

_LEVEL = 5  # of gzip: 6 takes a third longer for 2 % less


class Writer:
    """Writes to a stream that it does not close. The same steps give the same bytes."""

    def __init__(self, stream: BinaryIO, header: Header) -> None:
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=_LEVEL, mtime=0)
        self._digest = hashlib.sha256()
        self._encoder = msgspec.json.Encoder()
        self.steps = self.messages = 0
        self._write(header)

    def write(self, step: Step) -> None:
        self._write(line_of(step))
        self.steps += 1
        self.messages += isinstance(step, Publish)

    def finish(self) -> None:
        """The voyage is whole: write its end. Without it a reader takes the file for one that was cut short."""
        self._write(Line(end=End(self.messages, self.steps, self._digest.hexdigest())))
        self._file.close()

    def _write(self, line: Header | Line) -> None:
        encoded = self._encoder.encode(line) + b"\n"
        self._digest.update(encoded)
        self._file.write(encoded)


class Recorded:
    """A voyage that is written down as its steps are taken: once. ``whole``: all of them were."""

    def __init__(self, course: Course, writer: Writer, path: Path) -> None:
        self._course = course
        self._writer = writer
        self._path = path
        self.plan: Plan = course.plan
        self.starts: dt.datetime = course.starts
        self.ends: dt.datetime = course.ends
        self.whole = False

    def expected_messages(self) -> int:
        return self._course.expected_messages()

    def steps(self) -> Iterator[Step]:
        for step in self._course.steps():
            with explained(self._path):
                self._writer.write(step)
            yield step
        with explained(self._path):
            self._writer.finish()
        self.whole = True


@contextmanager
def recording(course: Course, path: Path, *, with_bad: bool) -> Iterator[Recorded]:
    """A voyage that is recorded into ``path``: there when all steps were taken and the block is left, whatever becomes
    of the report; else there is no file, or the one from before.

    Raises:
        UnavailableError, RefusedError: the disk is full, or nobody may write there.
    """
    new = path.with_name(path.name + ".part")
    recorded: Recorded | None = None
    try:
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = new.open("wb")
        with stream:
            recorded = Recorded(course, Writer(stream, header_of(course.plan, with_bad=with_bad)), path)
            yield recorded
    finally:
        if recorded is not None and recorded.whole:
            new.replace(path)
        else:
            new.unlink(missing_ok=True)


def header_of(plan: Plan, *, with_bad: bool) -> Header:
    return Header(
        made_by=importlib.metadata.version("fairlead"),
        topology=plan.topology.name,
        sites={name: str(site.kind) for name, site in plan.topology.sites.items()},
        customers=tuple(plan.topology.customers),
        scenario=_plain(plan.scenario.model_dump()),
        seed=plan.seed,
        with_bad=with_bad,
        containers=len(plan.boxes),
        boxes=boxes_digest(plan),
        starts=plan.starts,
        ends=plan.ends,
    )


def boxes_digest(plan: Plan) -> str:
    """The same for the same plan, in any process and version."""
    total = hashlib.sha256()
    for box in plan.boxes:
        total.update(f"{box.number} {box.device_id} {box.lot_name}\n".encode())
        for move in box.moves:
            total.update(f"{move.time.isoformat()} {move.code} {move.site} {move.to}\n".encode())
    return total.hexdigest()


def _plain(value: Any) -> Any:
    """As a scenario file writes it."""
    match value:
        case dt.timedelta():
            return format_duration(value)
        case dt.datetime():
            return value.isoformat()
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case str():
            return str(value)
        case Iterable():
            return [_plain(each) for each in value]
        case _:
            return value
