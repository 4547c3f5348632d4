"""Record a voyage into a file while it runs, read it back, and replay it.

A recording is gzip'd JSON Lines, one line per step (docs/simulators.md describes it). The first line is the
``RecordingHeader``, the last one the ``RecordingEnd`` with a count and a digest, which reveal a file that was cut short
or changed. Every line between has one key, its step (``RecordingLine``). Times are simulated, RFC 3339 in UTC, to the
microsecond. Payloads are text; those that are not UTF-8 are in ``payload_base64``.
"""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import pydantic

from fairlead.errors import ConfigurationError, FairleadError
from fairlead.local.files import explained
from fairlead.records import UNREADABLE
from fairlead.versions import fairlead_version
from simulators.fleet.plan import VoyagePlan
from simulators.fleet.planner import make_plan
from simulators.fleet.scenario import Scenario
from simulators.steps import (
    LinkChange,
    MessageKind,
    Probes,
    Publish,
    ReadingId,
    ShipSeized,
    ShipSinks,
    Step,
    VoyageBarrier,
)
from simulators.voyage.voyage import VoyageSource
from topologies.model import Topology
from topologies.values import format_duration

FORMAT = "fairlead-recording"
VERSION = 1


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The voyage that was recorded, and the sites that it needs.

    Args:
        scenario: The scenario as sailed: rescaled, moved, with its interval; in the form of a scenario file.
        sites: The kind of each site, by name.
        customers: The names of the topology's customers.
        boxes: Digest of the plan's container numbers, devices and moves.
        made_by: The version of Fairlead that recorded it.
    """

    format: str = FORMAT
    version: int = VERSION
    made_by: str
    topology: str
    sites: dict[str, str]
    customers: tuple[str, ...]
    scenario: dict[str, Any]
    seed: int
    with_bad: bool
    containers: int
    boxes: str
    starts: dt.datetime
    ends: dt.datetime


class RecordedMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A published message with what a report needs (``simulators.steps.Publish``)."""

    at: dt.datetime
    site: str
    topic: str
    kind: MessageKind
    qos: int = 1
    payload: str | None = None
    payload_base64: bytes | None = None
    key: str = ""
    log: str | None = None
    reading: ReadingId | None = None
    customer: str | None = None
    detail: str = ""
    probes: Probes | None = None
    place: tuple[float, float] | None = None
    decides: bool = False
    moves_log: str | None = None


_AS_THEY_ARE: Final = tuple(one.name for one in fields(Publish) if one.name not in ("sim_time", "payload"))


class RecordingEnd(msgspec.Struct, frozen=True):
    """``sha256``: of all lines before this one, each with its newline, not compressed."""

    messages: int
    steps: int
    sha256: str


class RecordingLine(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line after the header. Exactly one field is set."""

    publish: RecordedMessage | None = None
    barrier: VoyageBarrier | None = None
    link: LinkChange | None = None
    sinks: ShipSinks | None = None
    seized: ShipSeized | None = None
    end: RecordingEnd | None = None


def line_of(step: Step) -> RecordingLine:
    match step:
        case Publish():
            return RecordingLine(publish=_message(step))
        case VoyageBarrier():
            return RecordingLine(barrier=step)
        case LinkChange():
            return RecordingLine(link=step)
        case ShipSinks():
            return RecordingLine(sinks=step)
        case ShipSeized():
            return RecordingLine(seized=step)


def step_of(line: RecordingLine) -> Step | None:
    """Return the step of a line; None for the end.

    Raises:
        ValueError: the line has no field, or several.
    """
    lines = (line.publish, line.barrier, line.link, line.sinks, line.seized, line.end)
    found = [each for each in lines if each is not None]
    if len(found) != 1:
        raise ValueError("expected one of publish, barrier, link, sinks, seized, end")
    match found[0]:
        case RecordedMessage() as message:
            return _publish(message)
        case RecordingEnd():
            return None
        case step:
            return step


def _message(step: Publish) -> RecordedMessage:
    try:
        text, raw = step.payload.decode(), None
    except UnicodeDecodeError:
        text, raw = None, step.payload
    return RecordedMessage(
        at=step.sim_time, payload=text, payload_base64=raw, **{name: getattr(step, name) for name in _AS_THEY_ARE}
    )


def _publish(message: RecordedMessage) -> Publish:
    if (message.payload is None) == (message.payload_base64 is None):
        raise ValueError("expected either payload or payload_base64")
    if message.qos != 1:
        raise ValueError(f"expected QoS 1, not {message.qos}")
    return Publish(
        sim_time=message.at,
        payload=message.payload.encode() if message.payload is not None else message.payload_base64 or b"",
        **{name: getattr(message, name) for name in _AS_THEY_ARE},
    )


_LEVEL = 5  # of gzip: level 6 takes a third longer and saves 2 %


class RecordingWriter:
    """Writes to a stream that it does not close. The same steps give the same bytes."""

    def __init__(self, stream: BinaryIO, header: RecordingHeader) -> None:
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
        """Write the end of a complete voyage. Readers refuse a file without it."""
        self._write(RecordingLine(end=RecordingEnd(self.messages, self.steps, self._digest.hexdigest())))
        self._file.close()

    def _write(self, line: RecordingHeader | RecordingLine) -> None:
        encoded = self._encoder.encode(line) + b"\n"
        self._digest.update(encoded)
        self._file.write(encoded)


class RecordingVoyage:
    """A voyage that is recorded while its steps are read once. ``whole``: all steps were read."""

    def __init__(self, voyage: VoyageSource, writer: RecordingWriter, path: Path) -> None:
        self._voyage = voyage
        self._writer = writer
        self._path = path
        self.plan: VoyagePlan = voyage.plan
        self.starts: dt.datetime = voyage.starts
        self.ends: dt.datetime = voyage.ends
        self.whole = False

    def expected_messages(self) -> int:
        return self._voyage.expected_messages()

    def steps(self) -> Iterator[Step]:
        for step in self._voyage.steps():
            with explained(self._path):
                self._writer.write(step)
            yield step
        with explained(self._path):
            self._writer.finish()
        self.whole = True


@contextmanager
def recording(voyage: VoyageSource, path: Path, *, with_bad: bool) -> Iterator[RecordingVoyage]:
    """Record a voyage into ``path``. The file appears at the end of the block if all steps were read; else an earlier
    file stays.

    Raises:
        UnavailableError, RefusedError: the disk is full, or the folder cannot be written.
    """
    new = path.with_name(path.name + ".part")
    recorded: RecordingVoyage | None = None
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = new.open("wb")
    try:
        with stream:
            recorded = RecordingVoyage(voyage, RecordingWriter(stream, header_of(voyage.plan, with_bad=with_bad)), path)
            yield recorded
    finally:
        if recorded is not None and recorded.whole:
            new.replace(path)
        else:
            new.unlink(missing_ok=True)


def header_of(plan: VoyagePlan, *, with_bad: bool) -> RecordingHeader:
    return RecordingHeader(
        made_by=fairlead_version(),
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


def boxes_digest(plan: VoyagePlan) -> str:
    """Return a digest of the plan's boxes; the same plan gives the same digest in any process and version."""
    total = hashlib.sha256()
    for box in plan.boxes:
        total.update(f"{box.number} {box.device_id} {box.lot_name}\n".encode())
        for move in box.moves:
            total.update(f"{move.time.isoformat()} {move.code} {move.site} {move.to}\n".encode())
    return total.hexdigest()


def _plain(value: Any) -> Any:
    """Return a value in the form of a scenario file."""
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


_AGAIN = "record the voyage again: fairlead voyage record FILE --scenario NAME"
_LONGEST = 64 << 20  # bytes in a line; the last barrier names every log
_line = msgspec.json.Decoder(RecordingLine)


class BadRecording(ConfigurationError):
    """A file is not a recording, is incomplete, or does not fit this topology; nothing was published."""


class ReplayedVoyage:
    """A recording to replay. Creating the object reads the file to its end, to check that it is complete.

    Args:
        calm: Leave out the switching of links.

    Raises:
        BadRecording: the file is no complete recording, or does not fit this topology or this version of Fairlead.
    """

    def __init__(self, path: Path, topology: Topology, *, calm: bool = False) -> None:
        self._path = path
        self._calm = calm
        self.header = read_header(path)
        self.plan = _plan(path, self.header, topology)
        self._end = self._verify()

    @property
    def starts(self) -> dt.datetime:
        return self.header.starts

    @property
    def ends(self) -> dt.datetime:
        return self.header.ends

    def expected_messages(self) -> int:
        return self._end.messages

    def steps(self) -> Iterator[Step]:
        """Yield the recorded steps from the file; every call starts at the beginning."""
        with self._path.open("rb") as stream:
            for step in read_steps(stream, str(self._path)):
                if not isinstance(step, RecordingEnd) and not (self._calm and isinstance(step, LinkChange)):
                    yield step

    def _verify(self) -> RecordingEnd:
        known = set(self.plan.topology.sites)
        with self._path.open("rb") as stream:
            for step in read_steps(stream, str(self._path)):
                if isinstance(step, RecordingEnd):
                    return step
                site = getattr(step, "site", "")
                if site and site not in known:
                    raise BadRecording(f"{self._path} publishes at {site}, which its header does not have", hint=_AGAIN)
        raise AssertionError("read_steps ends with an End")


def read_header(path: Path) -> RecordingHeader:
    """Return the header of a recording.

    Raises:
        BadRecording: the file cannot be read, or is not a recording.
    """
    try:
        with path.open("rb") as stream:
            return _header(_first(stream, str(path)), str(path))
    except OSError as error:
        raise BadRecording(f"{path} cannot be read: {error.strerror or error}", hint="give a recording") from error


def read_steps(stream: BinaryIO, name: str) -> Iterator[Step | RecordingEnd]:
    """Yield every step of a recording and then its end, after checking its count and digest.

    Raises:
        BadRecording: the recording is damaged, or ends too early or too late.
    """
    digest = hashlib.sha256()
    count = messages = 0
    ended: RecordingEnd | None = None
    for number, text in enumerate(_lines(stream, name), 1):
        if number == 1:
            _header(text, name)
            digest.update(text)
            continue
        if ended is not None:
            raise BadRecording(f"{name} goes on after its end", hint=_AGAIN)
        try:
            line = _line.decode(text)
            step = step_of(line)
        except (*UNREADABLE, ValueError) as error:
            raise BadRecording(f"{name}, line {number}, is no step of a voyage: {error}", hint=_AGAIN) from error
        if step is None:
            ended = line.end
            if ended != RecordingEnd(messages, count, digest.hexdigest()):
                raise BadRecording(f"{name} has been changed: its end does not fit what comes before", hint=_AGAIN)
            continue
        digest.update(text)
        count += 1
        messages += line.publish is not None
        yield step
    if ended is None:
        raise _short(name, count)
    yield ended


def _short(name: str, steps: int) -> BadRecording:
    return BadRecording(f"{name} is cut short after {steps:,} steps: it has no end", hint=_AGAIN)


def _lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    count = 0
    try:
        with gzip.GzipFile(fileobj=stream) as file:
            while text := file.readline(_LONGEST):
                if not text.endswith(b"\n"):
                    raise _short(name, max(0, count - 1))
                yield text
                count += 1
    except EOFError as error:
        raise _short(name, max(0, count - 1)) from error
    except (OSError, zlib.error) as error:
        raise BadRecording(f"{name} is no gzip file, or damaged: {error}", hint=_AGAIN) from error


def _first(stream: BinaryIO, name: str) -> bytes:
    first = next(_lines(stream, name), None)
    if first is None:
        raise _short(name, 0)
    return first


def _header(text: bytes, name: str) -> RecordingHeader:
    try:
        body = msgspec.json.decode(text)
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise BadRecording(f"{name} is no recording of a voyage", hint=_AGAIN)
        if body.get("version") != VERSION:
            raise BadRecording(
                f"{name} has version {body.get('version')} of the format, this Fairlead reads version {VERSION}",
                hint=f"it was made by Fairlead {body.get('made_by')}; {_AGAIN}",
            )
        return msgspec.convert(body, RecordingHeader)
    except UNREADABLE as error:
        raise BadRecording(f"{name} is no recording of a voyage: {error}", hint=_AGAIN) from error


def _plan(path: Path, header: RecordingHeader, topology: Topology) -> VoyagePlan:
    """Make the recorded plan again; reports need it."""
    sites = {name: str(site.kind) for name, site in topology.sites.items()}
    if header.topology != topology.name or header.sites != sites or header.customers != tuple(topology.customers):
        differ = sorted(
            f"{name} ({header.sites.get(name, 'none')} there, {sites.get(name, 'none')} here)"
            for name in header.sites.keys() | sites.keys()
            if header.sites.get(name) != sites.get(name)
        )
        raise BadRecording(
            f"{path} was recorded on topology {header.topology}, not on {topology.name}"
            + (f": sites differ: {', '.join(differ)}" if differ else ""),
            hint=f"fairlead voyage replay {path} {header.topology}",
            differ=differ,
        )
    hint = f"it was made by Fairlead {header.made_by}; {_AGAIN}"
    try:
        plan = make_plan(Scenario.model_validate(header.scenario), topology, header.seed)
    except (pydantic.ValidationError, FairleadError) as error:
        raise BadRecording(f"{path}: its scenario is none that this Fairlead can sail: {error}", hint=hint) from error
    if boxes_digest(plan) != header.boxes:
        raise BadRecording(f"{path}: this Fairlead plans that scenario differently, so no report fits it", hint=hint)
    return plan
