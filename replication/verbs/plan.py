"""The plan of one verb as data: what will be written where, and what has to be so before and after. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from replication.orders import Order


class Verb(StrEnum):
    """What can be done with a link, or with logs on it."""

    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    FAILOVER = "failover"
    REVERSE = "reverse"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A log (``topic`` or ``topic/partition``) and its end offset."""

    log: str
    end: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Ask both ends until they have been equal to ``ends`` and unchanged for ``seconds``; refuse when they move."""

    source: str
    target: str
    ends: tuple[LogEnd, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class WriteOrders:
    """Append these to the orders of ``site``."""

    site: str
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class AwaitActed:
    """Wait until the replicator of ``site`` shows that it has acted on ``orders``."""

    site: str
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class StillEqual:
    """The source must still end where it did; if not, ``undo`` is written at ``target`` and the verb is refused."""

    source: str
    target: str
    ends: tuple[LogEnd, ...]
    undo: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class TellMissing:
    """Wait until nothing is appended at ``target``; say from which offset on ``source`` may have records beyond."""

    source: str
    target: str
    ends: tuple[LogEnd, ...]


@dataclass(frozen=True, slots=True)
class AwaitFollowing:
    """Wait until the replicator of ``site`` follows these logs over ``link`` without trouble."""

    site: str
    link: str
    logs: tuple[str, ...]


Step = Settle | WriteOrders | AwaitActed | StillEqual | TellMissing | AwaitFollowing


@dataclass(frozen=True, slots=True)
class Plan:
    """What a verb will do. ``notes`` are what a person should know before; without steps nothing is to be done."""

    verb: Verb
    links: tuple[str, ...]
    logs: tuple[str, ...]  # of single logs; empty when the whole link is meant
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether everything is already as it shall be."""
        return not self.steps

    @property
    def identity(self) -> str:
        """A digest: equal plans have the same."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    def to_builtins(self) -> dict[str, Any]:
        """For programs: JSON-ready, each step with its kind, and the plan's ``identity``."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        kinds = [
            {"step": type(step).__name__, **fields} for step, fields in zip(self.steps, body["steps"], strict=True)
        ]
        return {"plan": self.identity, **body, "steps": kinds}
