"""The form of a recording: gzip'd JSON Lines, one line a step. Pure data; ``docs/simulators.md`` describes it.

The first line is the ``Header``, the last one the ``End`` with a count and a digest, so that a file that was cut short
or changed is noticed. Every line between has one key: ``publish``, ``barrier`` or ``link``. Times are simulated, RFC
3339 in UTC, to the microsecond. Payloads are text; those that are not UTF-8 stand in ``payload_base64``.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import fields
from typing import Any, Final

import msgspec

from simulators.steps import Barrier, Kind, LinkChange, Probes, Publish, ReadingId, Step

FORMAT = "fairlead-recording"
VERSION = 1


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded, and on what it can be played.

    Args:
        scenario: As it was sailed: rescaled, moved, with its interval. Durations as a scenario file writes them.
        sites: Name to kind. customers: those of the topology.
        boxes: Digest of the plan's container numbers, devices and moves.
        made_by: Version of Fairlead.
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


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A published message, and what a report has to know of it (``simulators.steps.Publish``)."""

    at: dt.datetime
    site: str
    topic: str
    kind: Kind
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


class End(msgspec.Struct, frozen=True):
    """``sha256``: of all lines before this one, each with its newline, not compressed."""

    messages: int
    steps: int
    sha256: str


class Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line after the header: exactly one of these."""

    publish: Message | None = None
    barrier: Barrier | None = None
    link: LinkChange | None = None
    end: End | None = None


def line_of(step: Step) -> Line:
    match step:
        case Publish():
            return Line(publish=_message(step))
        case Barrier():
            return Line(barrier=step)
        case LinkChange():
            return Line(link=step)


def step_of(line: Line) -> Step | None:
    """The step of a line; None for the end.

    Raises:
        ValueError: a line of nothing, or of several things.
    """
    found = [each for each in (line.publish, line.barrier, line.link, line.end) if each is not None]
    if len(found) != 1:
        raise ValueError("expected one of publish, barrier, link, end")
    match found[0]:
        case Message() as message:
            return _publish(message)
        case End():
            return None
        case step:
            return step


def _message(step: Publish) -> Message:
    try:
        text, raw = step.payload.decode(), None
    except UnicodeDecodeError:
        text, raw = None, step.payload
    return Message(
        at=step.sim_time, payload=text, payload_base64=raw, **{name: getattr(step, name) for name in _AS_THEY_ARE}
    )


def _publish(message: Message) -> Publish:
    if (message.payload is None) == (message.payload_base64 is None):
        raise ValueError("expected either payload or payload_base64")
    if message.qos != 1:
        raise ValueError(f"expected QoS 1, not {message.qos}")
    return Publish(
        sim_time=message.at,
        payload=message.payload.encode() if message.payload is not None else message.payload_base64 or b"",
        **{name: getattr(message, name) for name in _AS_THEY_ARE},
    )
