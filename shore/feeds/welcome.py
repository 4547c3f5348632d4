"""As what each customer was last looked at whole, noted in table ``feeds``: who is new, or gets another kind of feed.

A look at everything gives what is missing and takes back what is too much, whatever kind of feed it was before; so a
customer may change to any other kind and back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from shore.delta.write import append_once, last_version
from shore.feeds.readers import FeedReader
from shore.paths import TablePaths
from shore.tables.feeds import FEEDS


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A customer that has not been looked at whole as what it is now. ``known``: but as something else."""

    reader: FeedReader
    known: bool


def newcomers(paths: TablePaths, readers: Iterable[FeedReader]) -> list[Newcomer]:
    """Those of these readers that table ``feeds`` does not know as what they are."""
    table, found = paths.table("feeds"), []
    for reader in readers:
        noted = last_version(table, _kind_app(reader))
        if noted != _number(reader.kind):
            found.append(Newcomer(reader, known=noted is not None))
    return found


def note(paths: TablePaths, reader: FeedReader) -> None:
    """Remember that the customer has been looked at whole as what it is."""
    table, app = paths.table("feeds"), f"kinds:{reader.customer}"
    before = last_version(table, app)
    append_once(
        table,
        FEEDS.plain_schema.empty_table(),
        app=app,
        version=0 if before is None else before + 1,
        noted={_kind_app(reader): _number(reader.kind)},
    )


def _kind_app(reader: FeedReader) -> str:
    return f"kind:{reader.customer}"


def _number(kind: str) -> int:
    """A table's log remembers numbers only."""
    return int.from_bytes(hashlib.sha256(kind.encode()).digest()[:6])
