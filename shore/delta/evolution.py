"""The rules for schema changes: only add nullable columns at a table's end. A rename is a new column; types stay.

So old readers find the columns that they know, old files stay readable, and ``shore.delta.commit.create_table`` updates
a stored table by adding columns. ``shore/tables/schemas.json`` records the released schemas. ``python -m
shore.delta.evolution`` updates the record, and refuses changes that the rules forbid.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deltalake import DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError

from shore.delta.table_errors import rebuild_hint
from shore.errors import SchemaError
from shore.paths import CUSTOMERS, TablePaths
from shore.tables import TABLES
from shore.tables.feeds import CUSTOMER_FEED
from shore.tables.model import Table

RECORD: Final = Path(__file__).parents[1] / "tables" / "schemas.json"
RELEASED: Final = TABLES | {f"{CUSTOMERS}*": CUSTOMER_FEED}
"""All tables in the record. Customers' own tables share one schema."""
Recorded = dict[str, dict[str, str]]
"""Types by table and column, in the order of the columns."""


def schemas(tables: Mapping[str, Table] = RELEASED) -> Recorded:
    """Return the schemas that the code defines now."""
    return {name: {column.name: str(column.type) for column in table.columns} for name, table in tables.items()}


def broken_rules(before: Recorded, after: Recorded) -> list[str]:
    """Return a sentence for each removed or renamed table or column and each changed type. Pure."""
    found = []
    for table, columns in before.items():
        if table not in after:
            found.append(f"table {table} was removed")
            continue
        for column, kind in columns.items():
            now = after[table].get(column)
            if now is None:
                found.append(f"column {table}.{column} was removed or renamed")
            elif now != kind:
                found.append(f"column {table}.{column} was {kind} and is {now}")
    return found


def recorded() -> Recorded:
    """Return the recorded schemas."""
    found: Recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def check_types(paths: TablePaths, tables: Mapping[str, Table] = TABLES) -> None:
    """Check that every column of the stored tables has the type that this version of Fairlead writes.

    Raises:
        SchemaError: a column has another type.
    """
    for name, table in tables.items():
        try:
            there = DeltaTable(paths.table(name)).schema()
        except TableNotFoundError:
            continue
        types = {field.name: str(field.type) for field in there.fields}
        for field in Schema.from_arrow(table.schema).fields:
            if types.get(field.name, str(field.type)) != str(field.type):
                raise SchemaError(
                    f"column {field.name} of table {name} is {types[field.name]} in {paths.table(name)}, and this "
                    f"version of Fairlead writes {field.type}: types of columns never change",
                    hint=f"the table was made by another program or changed by hand: {rebuild_hint(paths, name)}",
                    table=name,
                    column=field.name,
                )


def main(arguments: list[str]) -> int:
    """Check the rules and write the record. ``--first`` skips the check. Return the exit code."""
    before = {} if "--first" in arguments or not RECORD.exists() else recorded()
    broken = broken_rules(before, schemas())
    for rule in broken:
        sys.stderr.write(f"{rule}\n")
    if not broken:
        RECORD.write_text(json.dumps(schemas(), indent=1) + "\n", encoding="utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
