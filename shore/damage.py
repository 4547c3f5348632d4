"""Which table is damaged, once something could not be read: a commit or a file of it is gone, or cut off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from fairlead.errors import UnavailableError
from shore.opened import unreadable
from shore.places import CUSTOMERS, Places
from shore.tables import TABLES

READING: Final = (DeltaError, OSError, pa.ArrowException, duckdb.Error)
"""What reading tables raises when files are gone or damaged, and writing them when the disk refuses."""


def damaged(places: Places, names: Iterable[str]) -> dict[str, str]:
    """Those of these tables that are there and cannot be read, with the reason. Data files are looked at (not their
    rows, but their ends) for tables on this machine."""
    found = {}
    for name in names:
        try:
            _look(places, name)
        except TableNotFoundError:
            continue
        except READING as error:
            found[name] = (str(error).splitlines() or [type(error).__name__])[0]
    return found


def made_again(places: Places, name: str) -> str:
    """What to do about a damaged table."""
    if name.startswith(CUSTOMERS):
        return f"remove {places.table(name)}: the next run fills it again from the feed"
    from shore.verify.catalogue import job_of  # knows the jobs, which know this module

    return (
        f"the logs still hold everything, shore can build it again: move {places.table(name)} away (or put it back "
        f"from a copy), then fairlead shore rebuild {job_of(name)} --yes"
    )


@contextlib.contextmanager
def told(places: Places, names: Iterable[str] = TABLES) -> Iterator[None]:
    """Whatever cannot be read inside, as an error that names the damaged one of these tables.

    Raises:
        UnavailableError: a table cannot be read, or not be written.
    """
    try:
        yield
    except READING as error:
        for name, why in damaged(places, names).items():
            raise UnavailableError(
                f"table {name} cannot be read: {why}", hint=made_again(places, name), table=name
            ) from error
        raise unreadable(str(error)) from error


def _look(places: Places, name: str) -> None:
    paths = pa.table(DeltaTable(places.table(name)).get_add_actions())["path"].to_pylist()
    for path in paths if places.is_local else ():
        pq.read_metadata(Path(places.table(name), path))
