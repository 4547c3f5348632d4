"""A recording as a voyage: read, checked whole before anything is published, and sailed again."""

from __future__ import annotations

import datetime as dt
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import pydantic

from fairlead.errors import ConfigurationError, FairleadError
from fairlead.records import UNREADABLE
from simulators.mishaps import make_plan
from simulators.plan import Plan
from simulators.recording.form import FORMAT, VERSION, End, Header, Line, step_of
from simulators.recording.write import boxes_digest
from simulators.scenario import Scenario
from simulators.steps import LinkChange, Step
from topologies.model import Topology

_AGAIN = "record the voyage again: fairlead voyage --scenario NAME --record FILE --dry-run"
_LONGEST = 64 << 20  # bytes in a line; the last barrier names every log
_line = msgspec.json.Decoder(Line)


class BadRecording(ConfigurationError):
    """A file is no recording, not a whole one, or not one for this topology; nothing was published."""


class Replay:
    """A recording that has been read once to its end and is whole.

    Args:
        calm: Leave out the switching of links.

    Raises:
        BadRecording: it is not, or another version or topology made it.
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
        """The recorded steps, from the file; every call begins anew."""
        with self._path.open("rb") as stream:
            for step in read_steps(stream, str(self._path)):
                if not isinstance(step, End) and not (self._calm and isinstance(step, LinkChange)):
                    yield step

    def _verify(self) -> End:
        known = set(self.plan.topology.sites)
        with self._path.open("rb") as stream:
            for step in read_steps(stream, str(self._path)):
                if isinstance(step, End):
                    return step
                site = getattr(step, "site", "")
                if site and site not in known:
                    raise BadRecording(f"{self._path} publishes at {site}, which its header does not have", hint=_AGAIN)
        raise AssertionError("read_steps ends with an End")


def read_header(path: Path) -> Header:
    """What a recording says of itself.

    Raises:
        BadRecording: the file cannot be read, or is none of these.
    """
    try:
        with path.open("rb") as stream:
            return _header(_first(stream, str(path)), str(path))
    except OSError as error:
        raise BadRecording(f"{path} cannot be read: {error.strerror or error}", hint="give a recording") from error


def read_steps(stream: BinaryIO, name: str) -> Iterator[Step | End]:
    """Every step of a recording, and last its end, which is compared with what was read.

    Raises:
        BadRecording: damaged, or it ends too early or too late.
    """
    digest = hashlib.sha256()
    count = messages = 0
    ended: End | None = None
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
            if ended != End(messages, count, digest.hexdigest()):
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


def _header(text: bytes, name: str) -> Header:
    try:
        body = msgspec.json.decode(text)
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise BadRecording(f"{name} is no recording of a voyage", hint=_AGAIN)
        if body.get("version") != VERSION:
            raise BadRecording(
                f"{name} has version {body.get('version')} of the format, this Fairlead reads version {VERSION}",
                hint=f"it was made by Fairlead {body.get('made_by')}; {_AGAIN}",
            )
        return msgspec.convert(body, Header)
    except UNREADABLE as error:
        raise BadRecording(f"{name} is no recording of a voyage: {error}", hint=_AGAIN) from error


def _plan(path: Path, header: Header, topology: Topology) -> Plan:
    """The plan that was recorded, made anew: reports need it."""
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
            hint=f"fairlead voyage {header.topology} --replay {path}",
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
