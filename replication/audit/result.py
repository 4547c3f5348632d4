"""An audit's result, and how it shows records. Pure data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

OnProgress = Callable[[int, int], None]
"""Called with logs done and logs in all."""

SHOWN: Final = 400  # characters of a key, value or header


class SeenRecord(NamedTuple):
    """A record as a consumer sees it. ``timestamp`` is milliseconds since 1970, whoever set it."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def as_json(self) -> dict[str, Any]:
        """Text if it is printable, else hexadecimal; long values are cut and get their size and digest."""
        return {
            "timestamp": self.timestamp,
            "key": shown(self.key),
            "value": shown(self.value),
            "headers": [[name, shown(value)] for name, value in self.headers],
        }


def shown(data: bytes | None) -> str | None:
    """Show bytes; different bytes never look the same."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or (data and not text) or text.startswith("0x"):
        text = "0x" + data.hex()
    if len(text) <= SHOWN:
        return text
    return f"{text[:SHOWN]}... ({len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()})"


@dataclass(frozen=True, slots=True)
class AuditDifference:
    """The first difference of one log: what each site has at ``offset``; None where it has nothing that is data.

    A record's fields (``SeenRecord.as_json``), or a batch's where every record is the same and only the batches differ.
    """

    log: str
    offset: int
    a: dict[str, Any] | None
    b: dict[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        return {"log": self.log, "offset": self.offset, "a": self.a, "b": self.b}


@dataclass(slots=True)
class Audit:
    """The result. ``ok`` when every offset that both sites have holds the same.

    Args:
        mode: ``full`` or ``quick``.
        compared: Logs of which both sites have the same offsets, at least in part; those that differ included.
        resumed: Logs of ``compared`` of which an earlier audit had compared some or all offsets.
        batches: Stored batches compared (quick).
        records: Records found the same; quick counts what the batches compared hold, fillers included.
        rebuilt: Ranges whose batches are not the same, and whose records are (quick).
        compacted: Logs of which one site's compaction has removed records that it has not removed at the other.
        behind: Logs of which one site has less; no difference, but not everything.
        apart: Logs of which the sites have no offset in common: not compared.
    """

    a: str
    b: str
    mode: str
    compared: int = 0
    resumed: int = 0
    batches: int = 0
    records: int = 0
    rebuilt: int = 0
    compacted: int = 0
    behind: int = 0
    apart: list[str] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    differences: list[AuditDifference] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.differences

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "mode": self.mode,
            "a": self.a,
            "b": self.b,
            "logs_compared": self.compared,
            "logs_differing": len(self.differences),
            "logs_behind": self.behind,
            "logs_resumed": self.resumed,
            "logs_compacted": self.compacted,
            "apart": self.apart,
            "batches": self.batches,
            "records": self.records,
            "rebuilt": self.rebuilt,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "differences": [each.as_json() for each in self.differences],
        }
