"""How many rows table ``feeds`` has of each customer, noted with every commit: whether somebody else took some away.

What a customer has is what this table says, so a row that is missing would have its record given a second time.
"""

from __future__ import annotations

from collections.abc import Collection

import duckdb
import pyarrow as pa
import pyarrow.dataset as pads

from shore.delta.datasets import open_dataset
from shore.delta.write import last_version
from shore.errors import SplitStateError
from shore.paths import TablePaths


def rows_app(customer: str) -> str:
    """The name under which the table remembers how many rows it has of a customer."""
    return f"rows:{customer}"


def with_more(paths: TablePaths, customer: str, rows: int) -> dict[str, int]:
    """What the commit of so many more rows notes."""
    noted = last_version(paths.table("feeds"), rows_app(customer))
    before = noted if noted is not None else counted(paths).get(customer, 0)  # a table of an older version
    return {rows_app(customer): before + rows}


def check_whole(paths: TablePaths, customers: Collection[str]) -> None:
    """Do nothing where table ``feeds`` has of each customer the rows that were written.

    Raises:
        SplitStateError: it has not; records would be given to that customer a second time.
    """
    found = counted(paths)
    for customer in customers:
        noted = last_version(paths.table("feeds"), rows_app(customer))
        if noted is not None and found.get(customer, 0) != noted:
            raise SplitStateError(
                f"table feeds has {found.get(customer, 0):,} rows of customer {customer}, and {noted:,} were written: "
                "somebody else changed it, and going on could give records a second time",
                hint="fairlead shore rebuild feeds --yes reads it again from the feeds; then shore goes on",
                customer=customer,
            )


def counted(paths: TablePaths) -> dict[str, int]:
    """The rows of each customer in the table as it is now."""
    rows: pads.Dataset = open_dataset(paths, "feeds")
    with duckdb.connect(":memory:") as connection:
        connection.register("feeds", rows.scanner(columns=["customer"]).to_reader())
        found: pa.Table = connection.sql("select customer, count(*) as rows from feeds group by 1").to_arrow_table()
    return dict(zip(found["customer"].to_pylist(), found["rows"].to_pylist(), strict=True))
