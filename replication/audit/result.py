"""Define an audit's result and the JSON form of records. Pure data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

OnProgress = Callable[[int, int], None]
"""Called with the number of logs done and the number of all logs."""

SHOWN: Final = 400  # characters of a key, value or header


class SeenRecord(NamedTuple):
    """A record as a consumer sees it. ``timestamp`` is in ms since 1970, set by the producer or the broker."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def as_json(self) -> dict[str, Any]:
        """Return JSON-ready fields: text if printable, else hexadecimal. Long values are cut, with size and digest."""
        return {
            "timestamp": self.timestamp,
            "key": shown(self.key),
            "value": shown(self.value),
            "headers": [[name, shown(value)] for name, value in self.headers],
        }


def shown(data: bytes | None) -> str | None:
    """Return bytes as text; different bytes never give the same text."""
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
    """The first difference of one log: each site's record at ``offset``, or None where a site has no data there.

    A record has the fields of ``SeenRecord.as_json``. If all records are equal and only the batches differ, the fields
    are those of the batch.
    """

    log: str
    offset: int
    a: dict[str, Any] | None
    b: dict[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        return {"log": self.log, "offset": self.offset, "a": self.a, "b": self.b}


@dataclass(slots=True)
class Audit:
    """The result. ``ok`` is true when the sites are equal at every offset that both have.

    Args:
        mode: ``full`` or ``quick``.
        compared: Number of logs with common offsets, including those that differ.
        resumed: Number of compared logs of which an earlier audit had compared some or all offsets.
        batches: Number of stored batches compared (quick).
        records: Number of records found equal; quick counts the records in the compared batches, including fillers.
        rebuilt: Number of ranges whose batches differ and whose records are equal (quick).
        compacted: Number of logs in which only one site's compaction has removed some records.
        behind: Number of logs of which one site has fewer records; this is not a difference.
        apart: Logs without a common offset; they are not compared.
        only_a, only_b: Logs that only this site has.
        missing_a, missing_b: Those that this site lacks although links from the other one carry them.
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
    missing_a: list[str] = field(default_factory=list)
    missing_b: list[str] = field(default_factory=list)
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
            "missing_a": self.missing_a,
            "missing_b": self.missing_b,
            "differences": [each.as_json() for each in self.differences],
        }
