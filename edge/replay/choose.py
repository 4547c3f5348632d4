"""Which dead letters are to be replayed: all that were not yet, as far as an operator's choice goes. Pure."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from edge.deadletters import KEPT_TOPIC
from edge.messages import ROOT
from fairlead.records import UNREADABLE
from fairlead.records.edge import DeadLetter


@dataclass(frozen=True, slots=True)
class Choice:
    """What an operator wants replayed; what is empty or None does not narrow it.

    Args:
        reasons: Codes of ``edge.messages.Reason``.
        since, until: When the bridge received it; ``until`` itself is out.
        devices: Device ids, as in the payload.
        logs: A container's log or number, or a ship's log.
        again: Also what was replayed before.
    """

    reasons: Collection[str] = ()
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    devices: Collection[str] = ()
    logs: Collection[str] = ()
    again: bool = False

    def wants(self, letter: DeadLetter) -> bool:
        """Whether a letter is among those chosen, whatever became of it."""
        if self.reasons and letter.reason not in self.reasons:
            return False
        if self.since is not None and letter.received_date_time < self.since:
            return False
        if self.until is not None and letter.received_date_time >= self.until:
            return False
        if not (self.devices or self.logs):
            return True
        device, about = said_of(letter)
        if self.devices and device not in self.devices:
            return False
        return not self.logs or any(_is_log_of(about, log) for log in self.logs)


@dataclass(slots=True)
class Tally:
    """Letters of one reason: how many, when the oldest and the newest were received."""

    count: int = 0
    size: int = 0  # bytes
    oldest: dt.datetime | None = None
    newest: dt.datetime | None = None

    def add(self, letter: DeadLetter) -> None:
        at = letter.received_date_time
        self.count += 1
        self.size += letter.payload_bytes
        self.oldest = min(self.oldest or at, at)
        self.newest = max(self.newest or at, at)


@dataclass(slots=True)
class Plan:
    """What would be replayed, in the order of arrival; and what was chosen but is left out.

    Args:
        offsets: Of the letters to replay.
        reasons: The same by reason.
        before: Replayed before.
        refused_again: Messages that were replayed and refused again.
        cut: Not kept whole, so they cannot be replayed.
        end: Where the log ended when this plan was made.
    """

    offsets: list[int] = field(default_factory=list)
    reasons: dict[str, Tally] = field(default_factory=dict)
    before: int = 0
    refused_again: int = 0
    cut: int = 0
    end: int = 0


def plan(letters: Iterable[tuple[int, DeadLetter]], replayed: Collection[int], choice: Choice) -> Plan:
    """Choose among the letters of a log.

    Args:
        letters: Offset and letter, offsets ascending.
        replayed: Offsets of letters that were replayed before.
    """
    made = Plan()
    for offset, letter in letters:
        add(made, offset, letter, replayed, choice)
    return made


def add(made: Plan, offset: int, letter: DeadLetter, replayed: Collection[int], choice: Choice) -> None:
    """Take one more letter, the newest so far, into a plan."""
    made.end = offset + 1
    if not choice.wants(letter):
        return
    if letter.replay_of is not None:  # its first letter has the same message: never both, or they would multiply
        made.refused_again += 1
    elif is_cut(letter):
        made.cut += 1
    elif offset in replayed and not choice.again:
        made.before += 1
    else:
        made.offsets.append(offset)
        made.reasons.setdefault(letter.reason, Tally()).add(letter)


def is_cut(letter: DeadLetter) -> bool:
    """Whether a letter lacks a part of its message, or of its topic."""
    whole_topic = letter.mqtt_topic.startswith(f"{ROOT}/") and len(letter.mqtt_topic) < KEPT_TOPIC
    return not whole_topic or len(letter.payload) != letter.payload_bytes


def said_of(letter: DeadLetter) -> tuple[str | None, str | None]:
    """The device, and the container number or ship's log, that a message names: as far as it can be read at all."""
    body: Any = None
    with contextlib.suppress(*UNREADABLE):
        body = msgspec.json.decode(letter.payload)
    device = _text(_inner(body, "device", "deviceId"))
    match letter.mqtt_topic.split("/"):
        case ["fairlead", _, "containers", number, *_]:
            return device, number
        case ["fairlead", _, "ships", imo, what]:
            return device, f"ships.{imo}.{'location' if what == 'position' else what}"
        case _:
            number = _inner(body, "payload", "equipmentReference") or _inner(body, "equipmentReference")
            return device, _text(number)


def _is_log_of(about: str | None, log: str) -> bool:
    """Whether ``log`` is what a message is about; a container's log is named by its number too."""
    return about is not None and (log == about or (not about.startswith("ships.") and log.rpartition(".")[2] == about))


def _inner(body: Any, *names: str) -> Any:
    for name in names:
        body = body.get(name) if isinstance(body, dict) else None
    return body


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
