"""A Delta table's own log, as far as delta-rs does not tell it: the actions of one commit; which table has which id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from shore.places import Places
from shore.storage import Storage


def commit_actions(table: DeltaTable, version: int) -> list[dict[str, Any]]:
    """The actions of one commit (``add``, ``remove``, ``commitInfo``, ``txn``, ...), one key each.

    Raises:
        FileNotFoundError: the commit is not in the table's log any more.
    """
    uri = table.table_uri.rstrip("/")
    here = unquote(urlsplit(uri).path) if uri.startswith("file://") else uri
    found = Storage(here).read(f"_delta_log/{version:020d}.json")
    return [msgspec.json.decode(line) for line in found.splitlines() if line]


def table_ids(places: Places, names: Iterable[str]) -> dict[str, str]:
    """Names of the tables that are there by their own ids: a table that is made anew has another."""
    found = {}
    for name in names:
        try:
            found[str(DeltaTable(places.table(name)).metadata().id)] = name
        except DeltaError:
            continue
    return found
