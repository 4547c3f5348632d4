"""Delta tables for tests: rows of the declared schemas, written by delta-rs without any job."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from shore.paths import TablePaths
from shore.tables import TABLES
from tests.support.delta_rs import create

Rows = Mapping[str, Iterable[Mapping[str, Any]]]


def fill(folder: Path, rows: Rows) -> None:
    """Create these tables if they do not exist, and append the rows; columns that a row lacks are null.

    Raises:
        ValueError: a row has a column that its table does not have.
    """
    for name, found in rows.items():
        table, listed = TABLES[name], list(found)
        location = TablePaths.of(folder).table(name)
        create(table, location)
        known = set(table.plain_schema.names)
        if strange := {column for row in listed for column in row} - known:
            raise ValueError(f"table {name} has no column {', '.join(sorted(strange))}")
        if listed:
            content = pa.Table.from_pylist([dict(row) for row in listed], schema=table.plain_schema)
            write_deltalake(DeltaTable(location), content, mode="append")


def age(paths: TablePaths, table: str, days: float) -> None:
    """Make all entries of the table's Delta log, and its files, older by this much."""
    root = Path(paths.table(table))
    back = int(days * 86_400_000)
    for checksum in root.rglob(".*.crc"):  # Hadoop's, of what is changed here
        checksum.unlink()
    for file in (root / "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for action in lines:
            for kind, name in (
                ("remove", "deletionTimestamp"),
                ("add", "modificationTime"),
                ("commitInfo", "timestamp"),
            ):
                if name in action.get(kind, {}):
                    action[kind][name] -= back
        file.write_text("\n".join(json.dumps(line) for line in lines))
    for file in root.rglob("*"):
        then = file.stat().st_mtime - back / 1000
        os.utime(file, (then, then))
