"""What ``shore verify`` found. Pure data, JSON-ready."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import msgspec

What = Literal["missing", "extra", "doubled", "changed"]


LONGEST_SHOWN = 100  # characters of a value


def shown(found: Any, expected: Any) -> tuple[Any, Any]:
    """Two values of one column as they are told: JSON-ready, and of long texts the part where they differ."""
    one, other = _plain(found), _plain(expected)
    if not (isinstance(one, str) and isinstance(other, str)):
        return _part(one, 0), _part(other, 0)
    same = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    begin = max(0, same - LONGEST_SHOWN // 2) if max(len(one), len(other)) > LONGEST_SHOWN else 0
    return _part(one, begin), _part(other, begin)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _part(value: Any, begin: int) -> Any:
    if not isinstance(value, str):
        return value
    end = begin + LONGEST_SHOWN
    return f"{'…' if begin else ''}{value[begin:end]}{'…' if len(value) > end else ''}"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One row that is not as it must be.

    Args:
        key: Its key: column to value.
        what: ``missing``: it should be there; ``extra``: it should not; ``doubled``: it is there more than once;
            ``changed``: it holds something else, in ``columns``.
        found: What the table has in these columns.
        expected: What it must have there.
    """

    table: str
    what: What
    key: dict[str, Any]
    columns: tuple[str, ...] = ()
    found: dict[str, Any] = msgspec.field(default_factory=dict)
    expected: dict[str, Any] = msgspec.field(default_factory=dict)


class TableCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One table, or the tables that hold a log's records together, against what it must hold.

    Args:
        kind: ``logs``: compared with the logs; ``derived``: with what its inputs give.
        same: Whether they are equal; None where nothing could be compared (``notes`` say why).
        rows: Rows that were compared.
        expected: Rows that there must be.
        behind: Records of the logs, or rows of its inputs, that the job has not read yet; no difference.
        gone: Rows whose records the logs have no more (retention, a deleted topic); no difference.
        differing: Logs (``logs``) or rows (``derived``) that differ.
        differences: The first few of them, row by row.
        unreadable: Its files, or those of a table that it is made from, are damaged: ``same`` is False, and nothing
            was counted.
    """

    table: str
    kind: Literal["logs", "derived"]
    same: bool | None
    rows: int = 0
    expected: int = 0
    logs: int | None = None
    behind: int | None = None
    gone: int = 0
    differing: int = 0
    differences: tuple[Difference, ...] = ()
    unreadable: bool = False
    notes: tuple[str, ...] = ()


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """All checks. ``ok``: no table that could be compared differs."""

    tables: tuple[TableCheck, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return all(check.same is not False for check in self.tables)

    @property
    def whole(self) -> bool:
        """Whether every table was compared."""
        return all(check.same is not None for check in self.tables)

    def of(self, table: str) -> TableCheck | None:
        """The check that a table is part of."""
        return next((check for check in self.tables if table in check.table.split(" + ")), None)
