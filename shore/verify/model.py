"""What ``shore verify`` found. Pure data, JSON-ready."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

What = Literal["missing", "extra", "doubled", "changed"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One row that is not as it must be.

    Args:
        key: Its key: column to value.
        what: ``missing``: it should be there; ``extra``: it should not; ``doubled``: it is there more than once;
            ``changed``: it holds something else, in ``columns``.
    """

    table: str
    what: What
    key: dict[str, Any]
    columns: tuple[str, ...] = ()


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
