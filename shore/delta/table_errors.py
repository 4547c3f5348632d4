"""Open a Delta table without a JVM, and describe tables that are missing or damaged, in the same words everywhere."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from fairlead.errors import ConfigurationError, UnavailableError, UnknownNameError, first_line
from shore.joins import VIEWS
from shore.paths import CUSTOMERS, TablePaths
from shore.tables import TABLES
from shore.tables.catalogue import job_of

_DISK: Final = re.compile(r"No space left|File too large|Permission denied|Read-only file system")
_VIEWS: Final = re.compile(r"no kernel matching input types .*(string|binary)_view")


def check_tables(names: Iterable[str], known: Collection[str] = TABLES) -> None:
    """Check that each is the name of a table (one of ``known``), whether the table exists yet or not.

    Raises:
        UnknownNameError: a name is unknown; the error has the nearest and all valid names.
        ConfigurationError: a name is that of a view, which stores no rows.
    """
    for name in names:
        if name in VIEWS:
            raise ConfigurationError(
                f"{name} is a view and no table",
                hint=f"'fairlead sql' reads it; its rows are those of {', '.join(VIEWS[name].inputs)}",
            )
        if name not in known:
            raise UnknownNameError("table", name, known)


def open_table(paths: TablePaths, name: str) -> DeltaTable | None:
    """Return the newest version of a table; None when it does not exist yet.

    Raises:
        UnavailableError: it exists and cannot be opened.
    """
    location = paths.table(name)
    try:
        return DeltaTable(location)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise UnavailableError(
            f"table {name} cannot be opened: {first_line(error)}",
            hint=rebuild_hint(paths, name),
            table=name,
        ) from error


def disk_refuses(message: str) -> bool:
    """Return whether an error says that a disk is full or may not be written."""
    return _DISK.search(message) is not None


def repair_hint(message: str) -> str:
    """Return how to repair a table that cannot be read, if the error's message tells; else an empty text."""
    if _VIEWS.search(message):
        return (
            "somebody changed rows with delta-rs's delete, update or merge, and files that these write cannot be "
            "filtered: fairlead shore compact --yes writes them again, then fairlead shore verify tells what is wrong"
        )
    return ""


def unreadable_table_error(message: str) -> UnavailableError:
    """Return the error for tables that cannot be written, because the disk refuses, or read: files are gone (vacuumed
    while they were read, or removed by hand), damaged, or of a kind that cannot be filtered."""
    first, *_ = message.splitlines() or ["a file is damaged"]
    if disk_refuses(message):
        return UnavailableError(
            f"a table cannot be written: {first}",
            hint="give it room, or this user the right to write there, then run the same command again: nothing was "
            "written by half",
        )
    return UnavailableError(
        f"a table cannot be read: {first}",
        hint=repair_hint(first)
        or "try again; if it stays so, a file was removed or damaged: 'fairlead shore verify' tells "
        "which table, and how to have it again",
    )


def missing_table_error(name: str, *, view: str = "") -> UnavailableError:
    """Return the error for a table that is needed and does not exist yet.

    Args:
        view: The view that needs the table, if the user did not ask for the table itself.
    """
    needed = f", and view {view} reads it" if view else ""
    return UnavailableError(
        f"table {name} is not there yet{needed}",
        hint="the job that writes it has not run: fairlead shore run --once",
        table=name,
    )


def no_tables_error(paths: TablePaths) -> UnavailableError:
    """Return the error for a topology without any tables."""
    return UnavailableError(
        f"there are no tables in {paths.tables} yet",
        hint="run 'fairlead shore run --once' (the site must be up); if they are elsewhere, set FAIRLEAD_HOME "
        "(those of 'make demo' are in build/demo/home)",
    )


READ_ERRORS: Final = (DeltaError, OSError, pa.ArrowException, duckdb.Error)
"""The exceptions of reading tables whose files are gone or damaged, and of writing where the disk refuses."""


def damaged_tables(paths: TablePaths, names: Iterable[str]) -> dict[str, str]:
    """Return the tables that exist and cannot be read, with the reason. For tables on this machine, this reads the
    footers of all data files, but no rows."""
    found = {}
    for name in names:
        try:
            _look(paths, name)
        except TableNotFoundError:
            continue
        except READ_ERRORS as error:
            found[name] = first_line(error)
    return found


def rebuild_hint(paths: TablePaths, name: str) -> str:
    """Return how to rebuild a damaged table."""
    if name.startswith(CUSTOMERS):
        return f"remove {paths.table(name)}: the next run fills it again from the feed"
    return (
        f"the logs still hold everything, shore can build it again: move {paths.table(name)} away (or put it back "
        f"from a copy), then fairlead shore rebuild {job_of(name)} --yes"
    )


@contextlib.contextmanager
def as_table_errors(paths: TablePaths, names: Iterable[str] = TABLES) -> Iterator[None]:
    """Turn ``READ_ERRORS`` raised inside into an error that names the damaged table.

    Raises:
        UnavailableError: a table cannot be read or written.
    """
    try:
        yield
    except READ_ERRORS as error:
        for name, why in damaged_tables(paths, names).items():
            raise UnavailableError(
                f"table {name} cannot be read: {why}", hint=rebuild_hint(paths, name), table=name
            ) from error
        raise unreadable_table_error(str(error)) from error


def _look(paths: TablePaths, name: str) -> None:
    files = pa.table(DeltaTable(paths.table(name)).get_add_actions())["path"].to_pylist()
    for path in files if paths.is_local else ():
        pq.read_metadata(Path(paths.table(name), path))
