"""Define the audit log of access: every change at a site, its time, its author and its result.

Each site has its own log in the topic ``fairlead.access``. No rule names the topic, so only the site's administrator
writes and reads it. Entries are only appended. Every change has two entries, an intent before the change and an outcome
after it. An intent without outcome is an interrupted change. Entries never have passwords.

The log also shows which users are suspended because a password leaked: ``acl rotate --now`` revokes a user's ACLs and
restores them when no old session can be open any more (``acl.rotate``). Nothing else may restore them earlier, because
a thief's open sessions could read again.

Pure; ``acl.kafka`` appends and reads entries.
"""

from __future__ import annotations

import datetime as dt
import getpass
import platform
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from acl.rules import Binding
from fairlead.errors import FairleadError

TOPIC: Final = "fairlead.access"
PART: Final = 2000  # rules in one entry; keeps a record well below the topic's size limit


class Phase(StrEnum):
    """The phase of an entry: ``INTENT`` is written before a change, the others after it."""

    INTENT = "intent"
    DONE = "done"
    FAILED = "failed"


class Noted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The fields of all entries. ``change`` is the same in a change's intent and outcome; ``by`` is the user of the
    operating system, ``host`` its machine."""

    at: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    by: str
    host: str
    topology: str
    site: str
    change: str
    phase: Phase
    error: str = ""


class RulesChange(Noted, frozen=True, kw_only=True, tag="rules"):
    """Access rules were added and removed. The intent has the rules, split into ``parts`` entries if there are many.
    The outcome has the number of rules that were certainly changed, counted from the first."""

    plan: str
    add: tuple[Binding, ...] = ()
    remove: tuple[Binding, ...] = ()
    part: int = 1
    parts: int = 1
    added: int = 0
    removed: int = 0


class UserChange(Noted, frozen=True, kw_only=True, tag="user"):
    """A user was created, changed or removed. ``action`` is one word (``create``, ``rotate``, ``delete``)."""

    user: str
    action: str
    detail: dict[str, str] = msgspec.field(default_factory=dict)


class QuotaChange(Noted, frozen=True, kw_only=True, tag="quota"):
    """A user's quotas were set; null means that the quota was removed."""

    user: str
    quotas: dict[str, float | None]


Entry = RulesChange | UserChange | QuotaChange

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    """Encode an entry as a record's value."""
    return _encoder.encode(entry)


def decode_entry(record: bytes) -> Entry:
    """Decode a record's value.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: this version of Fairlead cannot read it.
    """
    return _decoder.decode(record)


@dataclass(frozen=True, slots=True)
class Change:
    """One change with its intent, and its outcome if there is one."""

    intent: tuple[Entry, ...]
    outcome: Entry | None = None

    @property
    def first(self) -> Entry:
        """The first entry of the change."""
        return self.intent[0]

    @property
    def state(self) -> str:
        """``done``, ``failed``, or ``interrupted`` if the change has no outcome."""
        return self.outcome.phase.value if self.outcome else "interrupted"


def stamp(topology: str, site: str) -> dict[str, Any]:
    """Return the common fields of an intent, with the current time, user and host: ``RulesChange(**stamp(…), …)``."""
    return {
        "at": dt.datetime.now(dt.UTC),
        "by": getpass.getuser(),
        "host": platform.node(),
        "topology": topology,
        "site": site,
        "change": uuid.uuid4().hex,
        "phase": Phase.INTENT,
    }


def outcome(intent: Entry, error: str = "", **facts: Any) -> Entry:
    """Return the entry that ends a change. It does not repeat the rules of the intent."""
    if isinstance(intent, RulesChange):
        facts = {"add": (), "remove": (), "part": 1, "parts": 1, **facts}
    phase = Phase.FAILED if error else Phase.DONE
    return msgspec.structs.replace(intent, at=dt.datetime.now(dt.UTC), phase=phase, error=error, **facts)


def rules_intent(
    topology: str, site: str, plan: str, add: tuple[Binding, ...], remove: tuple[Binding, ...]
) -> list[Entry]:
    """Return the intent to change rules, in entries of at most ``PART`` rules."""
    common = stamp(topology, site)
    both = [*((True, b) for b in add), *((False, b) for b in remove)]
    cut = [both[start : start + PART] for start in range(0, len(both), PART)] or [[]]
    return [
        RulesChange(
            **common,
            plan=plan,
            add=tuple(b for adding, b in piece if adding),
            remove=tuple(b for adding, b in piece if not adding),
            part=number,
            parts=len(cut),
        )
        for number, piece in enumerate(cut, 1)
    ]


Write = Callable[[Iterable[Entry]], None]


@contextmanager
def noting(
    write: Write, *intent: Entry, facts: Callable[[], dict[str, Any]] = dict, failed: Write | None = None
) -> Iterator[None]:
    """Write the intent of a change before the block, and its outcome after it, also when the block fails.

    Args:
        write: Appends entries: ``functools.partial(acl.kafka.note, endpoint)``.
        facts: Returns further fields of the outcome; called when the change has ended.
        failed: Appends the outcome of a failed change instead of ``write``, which would wait too long for a site that
            does not answer. If it fails, too, the intent without outcome shows that the change was interrupted.
    """
    write(intent)
    try:
        yield
    except BaseException as problem:
        what = problem.what if isinstance(problem, FairleadError) else type(problem).__name__
        with suppress(FairleadError):
            (failed or write)([outcome(intent[0], what, **facts())])
        raise
    write([outcome(intent[0], **facts())])


def changes(entries: Iterable[Entry]) -> tuple[Change, ...]:
    """Group the entries of one or several sites into changes, in the order of their first entries."""
    intents: dict[str, list[Entry]] = {}
    outcomes: dict[str, Entry] = {}
    for entry in entries:
        if entry.phase is Phase.INTENT:
            intents.setdefault(entry.change, []).append(entry)
        else:
            outcomes[entry.change] = entry
    alone = [Change((entry,), entry) for change, entry in outcomes.items() if change not in intents]
    found = [Change(tuple(parts), outcomes.get(change)) for change, parts in intents.items()]
    return tuple(sorted([*found, *alone], key=lambda change: change.first.at))


LEAKED: Final = {"because": "leaked"}
UNTIL: Final = "until"
SuspendedUsers = Mapping[str, dt.datetime | None]
"""The end of each user's suspension; None if unknown: sessions never end there, or the rotation was interrupted."""


def suspended_users(entries: Iterable[Entry], now: dt.datetime) -> dict[str, dt.datetime | None]:
    """Return the users that are suspended at a site, and until when. ``entries`` is the site's whole audit log."""
    found: dict[str, dt.datetime | None] = {}
    for entry in entries:
        if not isinstance(entry, UserChange):
            continue
        if entry.action == "rotate" and entry.detail.get("because") == LEAKED["because"]:
            until = entry.detail.get(UNTIL)
            found[entry.user] = dt.datetime.fromisoformat(until) if until else None
        elif entry.action in ("readmit", "delete"):
            found.pop(entry.user, None)
    return {user: until for user, until in found.items() if until is None or until > now}


@dataclass(frozen=True, slots=True)
class DamagedEntry:
    """A record of the log that this version of Fairlead cannot read."""

    offset: int
    problem: str
